"""Declared columns of categories: one feature of several is 1, by the text of the cell (``column_kinds``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, positive_integer
from dpsco.lazy import cached_property
from dpsco.rows.cells import Coded, label_text
from dpsco.rows.column_kinds import Column, Entry

__all__ = ["Category", "Hashed"]

_FEW_LINES, _FEW_TEXTS = 24, 256
_MEAN = -2
"""Place of a cell that is the mean of the levels."""


@dataclass(frozen=True)
class _Chosen(Column):
    """One feature of several is 1."""

    def places(self, column: Coded) -> NDArray[np.int32]:
        """Which of its features each row sets; -1 for none."""
        return np.roll(self._table(column), -1)[column.codes]  # code -1 finds the last

    def chosen(self, column: Coded) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
        """Return the codes, and the feature of each."""
        return None if self.missing else (column.codes, self._table(column))

    def _table(self, column: Coded) -> NDArray[np.int32]:
        return (_places_of if len(column.values) <= _FEW_TEXTS else _places_of.__wrapped__)(self, column.values)

    def entries(self, column: Coded) -> list[Entry]:
        """Return the feature of each cell."""
        texts = np.array([*(bool(label_text(text)) for text in column.values), False])
        return [(self.places(column), 1.0), *self._flag(~texts[column.codes])]

    def write(self, column: Coded, out: NDArray[np.float32]) -> None:
        """Write the features; few of them line by line, which is faster than place by place."""
        if self.missing or self.size > _FEW_LINES:
            super().write(column, out)
            return
        places = self.places(column).astype(np.int8)
        for place, line in enumerate(out):
            np.equal(places, np.int8(place), out=line)

    def _place(self) -> Callable[[str], int]:
        raise NotImplementedError


@lru_cache(maxsize=64)  # chunks of a file have the same few texts
def _places_of(column: _Chosen, values: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the feature that code -1 sets, a missing cell, and that of each code."""
    place = column._place()
    return np.array([place(text) for text in ("", *map(label_text, values))], dtype=np.int32)


@dataclass(frozen=True)
class Category(_Chosen):
    """A column of categories: one feature per declared level, and one for ``other`` levels if that is asked for.

    The level ``drop`` has no feature: the others are measured against it. A cell that then has no feature of its own
    (an undeclared level without ``other``, a missing cell without ``missing``) is the mean of the K declared levels,
    1/K in each feature, as a missing number is the middle of its range. So it never looks like the dropped level.
    """

    levels: tuple[str, ...] = ()
    other: bool = False
    drop: str = ""

    def __post_init__(self) -> None:
        levels, drop = tuple(label_text(level) for level in self.levels), label_text(self.drop)
        if not levels or len(set(levels)) != len(levels) or "" in levels:
            raise InvalidArgument(f"Expected the levels of {self.name!r} to be different texts, at least one.")
        if drop and drop not in levels:
            raise InvalidArgument(f"drop={drop!r} is not a level of {self.name!r}. Its levels: {', '.join(levels)}.")
        if drop and len(levels) < 2:
            raise InvalidArgument(f"{self.name!r} has one level, and drop would leave none. Declare two.")
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "drop", drop)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The levels that have a feature."""
        return tuple(level for level in self.levels if level != self.drop)

    @property
    def spreads(self) -> bool:
        """Whether a cell can be the mean of the levels."""
        return bool(self.drop) and not (self.other and self.missing)

    def chosen(self, column: Coded) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
        """Return the codes, and the feature of each; None where a cell may set several."""
        return None if self.spreads else super().chosen(column)

    def unlisted(self, column: Coded) -> NDArray[np.int64]:
        """Return the rows whose cell is the mean of the levels."""
        return np.flatnonzero(self.places(column) == _MEAN)

    def write(self, column: Coded, out: NDArray[np.float32]) -> None:
        """Write the features."""
        super().write(column, out)
        if self.spreads:
            out[: len(self.kept), self.unlisted(column)] = 1.0 / len(self.levels)

    def _own(self) -> tuple[str, ...]:
        named = tuple(f"{self.name}={level}" for level in self.kept)
        return (*named, f"{self.name} is other") if self.other else named

    @cached_property
    def _places(self) -> dict[str, int]:
        return {**{level: place for place, level in enumerate(self.kept)}, **({self.drop: -1} if self.drop else {})}

    def _place(self) -> Callable[[str], int]:
        none = _MEAN if self.drop else -1
        places, other = self._places, len(self.kept) if self.other else none
        absent = -1 if self.missing else none
        return lambda text: places.get(text, other if text else absent)


@dataclass(frozen=True)
class Hashed(_Chosen):
    """A column of categories: one feature for each of ``buckets`` values of a fixed hash of the text."""

    buckets: int = 0

    def __post_init__(self) -> None:
        why = "It is the number of buckets to hash into."
        object.__setattr__(self, "buckets", positive_integer("buckets", self.buckets, why))

    def _own(self) -> tuple[str, ...]:
        return tuple(f"{self.name}#{bucket}" for bucket in range(self.buckets))

    def _place(self) -> Callable[[str], int]:
        return lambda text: self._bucket(text) if text else -1

    def _bucket(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.buckets
