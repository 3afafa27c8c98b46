"""Kinds of declared columns: what each makes of its cells. A feature depends on one cell and on public constants.

    entries(column) -> [(place, value), ...]     row i sets feature place[i] to value[i]; place -1 sets none

``bound`` is the largest sum of squares that the features of one cell can have. ``units`` says how each feature is made
of a quantity that people know: feature = slope * quantity + offset.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument
from dpsco.lazy import cached_property
from dpsco.rows.cells import Coded, label_text

__all__ = ["FALSE", "TRUE", "Boolean", "Column", "Date", "Entry", "Number", "Unit", "day_of"]

Entry = tuple[int | NDArray[Any], float | NDArray[Any]]

TRUE, FALSE = ("1", "true", "yes", "t", "y", "on"), ("0", "false", "no", "f", "n", "off")
DECADES = 1000.0
_DAY = re.compile(r"^(\d{4})(?:([-/.])(\d{1,2})\2(\d{1,2})|()(\d\d)(\d\d))(?:$|[T ])", re.ASCII)
_MONTH = re.compile(r"^(\d{4})(?:[-/](\d{1,2}))?$", re.ASCII)
_OFFSET = re.compile(r"^(\d\d)(?::?(\d\d)(?::?\d\d(?:[.,]\d*)?)?)?\s*([-+])(\d\d):?(\d\d)?$", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def day_of(text: str) -> float:
    """Return the days since 1970 of a text that begins with a date, year first; NaN if it does not.

    Dates are 2024-02-29, 2024/02/29, 2024.02.29 and 20240229, with or without a time; 2024-02 and 2024 are the first
    day. Other orders are missing cells. A time with an offset counts on its day in UTC, as it does in columns of times:
    readers make these of such texts.

    >>> day_of("1970-01-03T01:30+02:00"), day_of("1970-01-01 22:30:00-0200"), day_of("1970-01-02T23:30Z")
    (1.0, 1.0, 1.0)
    >>> day_of("1970-01-02"), day_of("1970/1/2 12:00"), day_of("19700102"), day_of("1970-02"), day_of("2024-02-30")
    (1.0, 1.0, 1.0, 31.0, nan)
    """
    later = 0
    if found := _DAY.match(text):
        later = _days_to_utc(text[found.end() :])
        year, _, month, day, _, *packed = found.groups()
        month, day = (month, day) if month else packed
    elif found := _MONTH.match(text):
        year, month, day = *found.groups("1"), "1"
    else:
        return math.nan
    try:
        return float(datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH + later)
    except ValueError:
        return math.nan


def _days_to_utc(time: str) -> int:
    """Return by how many days a time of day with an offset moves to UTC; 0 if it has none."""
    found = _OFFSET.match(time)
    if found is None:
        return 0
    hour, minute, sign, hours, minutes = found.groups("0")
    offset = 60 * int(hours) + int(minutes)
    return (60 * int(hour) + int(minute) - (offset if sign == "+" else -offset)) // 1440


class Unit(NamedTuple):
    """A feature in terms of a quantity of the table: feature = slope * quantity + offset, exactly."""

    quantity: str
    """What is measured: the column itself, the logarithm that its range states, days since its first day."""
    slope: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Column:
    """What all kinds share: a name, and a feature that is 1 where the cell is missing, if ``missing`` asks for it."""

    name: str
    missing: bool = False
    reads: ClassVar[str] = "text"
    """How cells are read: "number", "text" or "date"."""

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the features."""
        return (*self._own(), f"{self.name} is missing") if self.missing else self._own()

    def units(self) -> tuple[Unit, ...]:
        """Return the unit of each feature; 0/1 features are their own."""
        return tuple(Unit(name) for name in self.outputs())

    @cached_property
    def size(self) -> int:
        """Number of features."""
        return len(self._own()) + self.missing

    @property
    def bound(self) -> float:
        """Largest sum of squares of the features of one cell; inf if none is declared."""
        return 1.0

    def entries(self, column: Any) -> list[Entry]:
        """Return which features each row sets, and to what."""
        raise NotImplementedError

    def write(self, column: Any, out: NDArray[np.float32]) -> None:
        """Write the features of all rows to ``out``, a line per feature."""
        entries = self.entries(column)
        if len(entries) == 1 and isinstance(entries[0][0], int):  # each row sets the one feature
            out[0] = entries[0][1]
            return
        out[...] = 0.0
        for place, value in entries:
            if isinstance(place, int):
                out[place] = value
            else:
                known = np.flatnonzero(place >= 0)
                out[place[known], known] = value

    @property
    def share(self) -> tuple[float, float, int] | None:
        """How a number becomes the one feature: ends of the range; 0 without one, 1 to [0, 1], 2 to [-1, 1].

        None if the feature is made otherwise. A cell that is not finite is 0 without a range, else the middle.
        """
        return None

    def chosen(self, column: Any) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
        """Return codes of the cells, and the feature that each code sets: -1 for none, code -1 first.

        None if a row may set several features, or one to another value than 1.
        """
        return None

    def _own(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _flag(self, absent: NDArray[np.bool_]) -> list[Entry]:
        return [(np.where(absent, self.size - 1, -1), 1.0)] if self.missing else []


@dataclass(frozen=True)
class _Scaled(Column):
    """One feature: the place of the cell in its range, as a share."""

    centered: bool = False

    @property
    def bound(self) -> float:
        """Largest sum of squares of the features of one cell."""
        return 1.0 + (self.missing and not self.centered) / 4

    def _own(self) -> tuple[str, ...]:
        return (self.name,)

    def units(self) -> tuple[Unit, ...]:
        """Return the unit of the place in the range: an affine map, or one of the logarithm."""
        quantity, slope, offset = self._quantity()
        own = Unit(quantity, 2 * slope, 2 * offset - 1) if self.centered else Unit(quantity, slope, offset)
        return (own, *super().units()[1:])

    def _quantity(self) -> Unit:
        """Return the share of the range in terms of what is measured."""
        return Unit(self.name)

    def _share(self, share: NDArray[np.float64], known: NDArray[np.bool_] | None = None) -> list[Entry]:
        """Clamp shares in place; the middle where there is none, or where it is not ``known``."""
        known = np.isfinite(share) if known is None else known
        np.clip(share, 0.0, 1.0, out=share)
        if not known.all():
            share[~known] = 0.5
        if self.centered:
            share *= 2.0
            share -= 1.0
        return [(0, share), *self._flag(~known)]


@dataclass(frozen=True)
class Number(_Scaled):
    """A column of numbers; with ``low`` and ``high`` clamped to them and mapped to [0, 1], ``centered`` to [-1, 1].

    ``log`` is linear in log(1 + 1000 s), three decades from the low end, with s the share of the range; in a range on
    both sides of 0 it is linear in sign(x) log(1 + 1000 |x| / largest end). A missing cell is in the middle; without a
    range it is 0.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    reads: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        if self.low is None or self.high is None:
            if self.low is not self.high or self.log or self.centered:
                raise InvalidArgument(
                    f"Expected both ends of the range of {self.name!r}, or none (then neither log nor centered)."
                )
            return
        low, high = float(self.low), float(self.high)
        if not -1e100 < low < high < 1e100:
            raise InvalidArgument(f"Expected the range of {self.name!r} as low < high, got {low} and {high}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def bound(self) -> float:
        """Largest sum of squares of the features of one cell; inf without a range."""
        return math.inf if self.low is None else super().bound

    def entries(self, column: Any) -> list[Entry]:
        """Return the feature of each cell."""
        cells = np.asarray(column)
        if self.low is None or self.high is None:
            value = cells.astype(np.float32)
            known = np.isfinite(value)
            if not known.all():
                value[~known] = 0.0
            return [(0, value), *self._flag(~known)]
        known = np.isfinite(cells)
        share = np.clip(cells, self.low, self.high, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            low, high = (float(self._log(np.float64(end))) for end in (self.low, self.high))
            share = self._log(share)
        share -= low
        share /= high - low
        return self._share(share, known)

    def write(self, column: Any, out: NDArray[np.float32]) -> None:
        """Write the feature; without a range, in one pass where all cells are finite."""
        if self.low is None and not self.missing:
            out[0] = column
            if np.isfinite(out[0]).all():
                return
        super().write(column, out)

    @property
    def share(self) -> tuple[float, float, int] | None:
        """How a number becomes the feature, unless it has a logarithm or a flag."""
        if self.missing or self.log:
            return None
        return (0.0, 0.0, 0) if self.low is None or self.high is None else (self.low, self.high, 1 + self.centered)

    def _quantity(self) -> Unit:
        if self.low is None or self.high is None:
            return Unit(self.name)
        low, high, name = self.low, self.high, self.name
        if self.log:
            low, high = (float(self._log(np.float64(end))) for end in (self.low, self.high))
            if self.low < 0 < self.high:
                name = f"sign({name}) log(1 + |{name}|{_over(max(-self.low, self.high))})"
            else:
                above = name if self.low == 0 else f"({name} {'-' if self.low > 0 else '+'} {abs(self.low):.6g})"
                name = f"log(1 + {above}{_over(self.high - self.low)})"
        return Unit(name, 1 / (high - low), -low / (high - low))

    def _log(self, cells: Any) -> Any:
        """Map numbers of the range by the logarithm, up to scale."""
        low, high = self.low or 0.0, self.high or 0.0
        if low < 0 < high:
            return np.sign(cells) * np.log1p(DECADES * np.abs(cells) / max(-low, high))
        return np.log1p(DECADES * (cells - low) / (high - low))


def _over(length: float) -> str:
    """Return how a number is divided in ``Number._log``."""
    return "" if length == DECADES else f" / {length / DECADES:.6g}"


@dataclass(frozen=True)
class Date(_Scaled):
    """A column of dates (``day_of`` says which texts are, or dates of the container), mapped like a number.

    A time with a zone counts on its day in UTC.
    """

    low: str = "1900-01-01"
    high: str = "2100-01-01"
    reads: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            object.__setattr__(self, end, str(getattr(self, end))[:10])
        if not day_of(self.low) < day_of(self.high):
            raise InvalidArgument(
                f"Expected the range of {self.name!r} as two dates, such as 1900-01-01 and 2030-01-01."
            )

    def _quantity(self) -> Unit:
        return Unit(f"{self.name} in days since {self.low}", 1 / (day_of(self.high) - day_of(self.low)))

    def entries(self, column: Coded) -> list[Entry]:
        """Return the feature of each cell."""
        low, high = day_of(self.low), day_of(self.high)
        days = np.array([*(day_of(text) for text in column.values), math.nan])[column.codes]
        return self._share((days - low) / (high - low))


@dataclass(frozen=True)
class Boolean(_Scaled):
    """A column of yes and no: 1, true, yes, t, y, on and their opposites, in any case."""

    def entries(self, column: Coded) -> list[Entry]:
        """Return the feature of each cell."""
        known = {**dict.fromkeys(TRUE, 1.0), **dict.fromkeys(FALSE, 0.0)}
        values = [known.get(label_text(text).lower(), math.nan) for text in column.values]
        return self._share(np.array([*values, math.nan])[column.codes])
