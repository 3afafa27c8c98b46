"""A draft of public columns from rows that somebody declares public: a start for people to review, never for training.

What each column seems to be is decided by its cells: numbers, dates or yes and no where nearly all cells are;
categories where few texts come back; hashed categories otherwise. Columns that look like ids are left out and named.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsco.errors import DataError
from dpsco.rows.cells import Coded, label_text
from dpsco.rows.column_kinds import FALSE, TRUE, day_of
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.source import TableSource

__all__ = ["Draft", "draft_columns", "looks_like_id"]

NEARLY_ALL = 0.8
MOST_LEVELS = 50
BUCKETS = 64
_SKEWED = 10.0
_NINES = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
_ID = re.compile(r"(^|[_\-. ])(id|ids|uuid|guid|key|index|idx|rownum|row)($|[_\-. ])|Id$|ID$", re.ASCII)


def looks_like_id(name: str) -> bool:
    """Return whether the name of a column says that it tells rows apart.

    >>> looks_like_id("customer_id"), looks_like_id("userId"), looks_like_id("paid")
    (True, True, False)
    """
    return _ID.search(name) is not None or name.lower() in ("id", "uuid", "ssn", "email", "phone")


@dataclass
class Draft:
    """What was found: arguments of ``PublicColumns``, and notes about columns left out and columns to look at."""

    arguments: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    check: dict[str, str] = field(default_factory=dict)

    def note(self, argument: str, name: str, value: Any = None) -> None:
        """Add a column to an argument."""
        if value is None:
            self.arguments.setdefault(argument, []).append(name)
        else:
            self.arguments.setdefault(argument, {})[name] = value

    @property
    def columns(self) -> PublicColumns:
        """The columns."""
        if not self.arguments:
            raise DataError("No column of the file can be a feature: all are empty, constant or ids.")
        return PublicColumns(**self.arguments)


def draft_columns(source: TableSource, besides: tuple[str, ...] = ()) -> Draft:
    """Return a draft for the columns of a file whose rows are public, without those in ``besides``."""
    names = tuple(name for name in source.found_names() if name not in {*besides, *source.index_columns})
    numeric = list(source.read(_readable(source, names), ())) if names else []
    textual = list(source.read((), names)) if names else []
    draft = Draft()
    for name in names:
        texts = [text for table in textual for text in _texts(table[name])]
        if not texts:
            raise DataError("The file has columns and no row: nothing says what they hold. Use a file with rows.")
        numbers = np.concatenate([np.asarray(t[name], dtype=float) for t in numeric]) if name in numeric[0] else None
        _decide(draft, name, texts, numbers)
    return draft


def _readable(source: TableSource, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that can be read as numbers: all of a text file, those of its schema elsewhere."""
    return names if source.number_columns is None else tuple(n for n in names if n in source.number_columns)


def _texts(column: Any) -> list[str]:
    if not isinstance(column, Coded):
        raise TypeError
    return [label_text(column.values[code]) if code >= 0 else "" for code in column.codes.tolist()]


def _decide(draft: Draft, name: str, texts: list[str], numbers: Any) -> None:
    known = [text for text in texts if text]
    levels = sorted(set(known))
    most = NEARLY_ALL * len(known)
    finite = np.zeros(0) if numbers is None else numbers[np.isfinite(numbers)]
    if len(levels) < 2:
        draft.left_out[name] = "empty or constant"
        return
    if looks_like_id(name) or (len(levels) == len(texts) > 100 and len(finite) < most and not _dates(levels)):
        draft.left_out[name] = "looks like an id"
        return
    numeric = len(finite) >= most
    if (len(finite) if numeric else len(known)) < len(texts):
        draft.note("missing", name)
    if {level.lower() for level in levels} <= {*TRUE, *FALSE}:
        draft.note("booleans", name)
    elif numeric:
        finite, codes = without_codes(finite)
        if codes:
            shown = " and ".join(f"{code:g}" for code in codes)
            draft.check[name] = f"{shown} looks like a code for a missing cell: the range leaves it out and clamps it"
        low, high = wide_range(float(finite.min()), float(finite.max()))
        draft.note("ranges", name, (low, high))
        typical = float(np.median(np.abs(finite[finite != 0]))) if np.any(finite) else 0.0
        if float(np.max(np.abs(finite))) > _SKEWED * typical:
            draft.note("log", name)
    elif sum(not math.isnan(day_of(text)) for text in known) >= most:
        years = sorted(int(text[:4]) for text in known if not math.isnan(day_of(text)))
        draft.note("dates", name, (f"{max(years[0] - 5, 1):04d}-01-01", f"{min(years[-1] + 5, 9998) + 1:04d}-01-01"))
    elif len(levels) <= MOST_LEVELS:
        draft.note("categories", name, levels)
        draft.note("other", name)
    else:
        draft.note("hashed", name, BUCKETS)


def _dates(levels: list[str]) -> bool:
    return all(not math.isnan(day_of(level)) for level in levels)


def without_codes(values: Any) -> tuple[Any, list[float]]:
    """Return the numbers without -1, -99, -999, 999, ... where these stand far apart from all others, and those codes.

    >>> without_codes(np.array([30.0, 41.0, -999.0, 60.0]))
    (array([30., 41., 60.]), [-999.0])
    >>> without_codes(np.array([97.0, 98.0, 99.0]))[1]
    []
    """
    codes = []
    for code in (float(values.min()), float(values.max())):
        rest = values[values != code]
        nines = abs(code) in _NINES
        if len(rest) and ((nines and _apart(code, rest)) or (code == -1 and rest.min() >= 0)):
            codes.append(code)
            values = rest
    return values, codes


def _apart(code: float, rest: Any) -> bool:
    """Return whether a code is farther from the other numbers than these are from each other."""
    low, high = float(rest.min()), float(rest.max())
    return max(low - code, code - high) > high - low


def wide_range(least: float, most: float) -> tuple[float, float]:
    """Return a round range that leaves room for half of what was seen on either side; 0 stays an end.

    >>> wide_range(17.0, 90.0), wide_range(-3.0, 4.0), wide_range(0.0, 99999.0)
    ((0.0, 200.0), (-10.0, 10.0), (0.0, 200000.0))
    """
    room = (most - least) / 2 or abs(most) or 1.0
    return _outward(least - room, -1) if least < 0 else 0.0, _outward(most + room, 1) if most > 0 else 0.0


def _outward(value: float, sign: int) -> float:
    size = max(value * sign, 1e-12)
    step = 10.0 ** math.floor(math.log10(size))
    return sign * next(float(f"{k * step:.6g}") for k in (1, 2, 5, 10) if k * step >= size * (1 - 1e-12))
