"""A random order of rows for rounds that sum whole batches: which rows a batch holds is random, not their order in it.

    group      one row, or in a large table ``adjacent`` rows that lie side by side
    key_g      16 random bits per group
    rank_g     place of (key_g, tie_g) among all groups, tie_g a random order of the groups with equal keys
    batch      the rows of ranks first .. last, ascending by their position; rows of a group have consecutive ranks

The ranks of groups of one row are a uniform random permutation. Ties are decided where a batch begins or ends among
them, and nowhere else.

A batch of single rows that lie apart in a large table makes the processor read almost the whole table. Groups of rows
that fill two pages are read at the speed of memory. Each 16 neighbouring groups have one key in every sixteenth of the
keys, in a random order, so a batch has its share of every part of the table: also of one that is sorted.

Guarantee: no value of a row decides on its rank. The sum of a batch does not depend on the order of its rows beyond
rounding, and a row's place in its batch is a function of the ranks alone: it stays where it is if a row is zeroed.
Cost: two bytes and a few nanoseconds per group, about a tenth of a permutation. A batch of m groups of n takes about n
comparisons, or 2 sqrt(n m) if it is small. It is read in the order of memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SMALL_BYTES", "Permutation", "Positions", "RandomOrder", "Ranks", "adjacent_rows", "ranks_of"]

_KEYS = 1 << 16
_SMALL = 8
"""Batches in all rows from which a window is made."""
_COUNTED = 1 << 17
"""Keys counted at a time."""
_STRATUM = 16
"""Neighbouring groups that share out the keys."""
_GROUP_BYTES = 1 << 13
"""Of the rows of a group: two pages. No processor reads ahead beyond a page by itself."""
SMALL_BYTES = 1 << 20
"""Of a table that is gathered as a whole: a round of it would cost more calls than work."""
_LARGE_BYTES = 1 << 26
"""Of a table that caches do not hold. It has 2^13 groups or more."""


def adjacent_rows(rows: int, row_bytes: int) -> int:
    """Return the rows of a group of a table of ``rows`` rows: public numbers decide."""
    return max(1, _GROUP_BYTES // row_bytes) if rows * row_bytes >= _LARGE_BYTES else 1


class Positions:
    """Rows in the order in which they are."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions ``first`` .. ``last``."""
        return np.arange(first, last)


class Permutation(Positions):
    """Rows of a small table in a random order; those of a batch too, so that whoever gathers all rows does it once."""

    def __init__(self, rows: int, random: np.random.Generator) -> None:
        super().__init__(rows)
        self._places = random.permutation(rows)

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions of the rows of ranks ``first`` .. ``last``."""
        return self._places[first:last]


class RandomOrder:
    """Rows in a random order.

    Parameters
    ----------
    rows : int
        How many there are.
    random : numpy.random.Generator
        Draws the keys.
    adjacent : int, optional
        Rows of a group. One: every order of the rows is equally likely.
    """

    def __init__(self, rows: int, random: np.random.Generator, adjacent: int = 1) -> None:
        self._rows, self._adjacent = rows, adjacent
        groups = -(-rows // adjacent)
        self._keys = random.integers(0, _KEYS, groups, dtype=np.uint16) if adjacent == 1 else _shared(groups, random)
        self._seed = random.integers(0, 1 << 63, 2).tolist()
        self._starts = _first_ranks(self._keys, rows, adjacent)
        """Rank of the first row of each key."""
        self._window: _Window | None = None
        self._cut: _Cut | None = None

    def __len__(self) -> int:
        return self._rows

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions of the rows of ranks ``first`` .. ``last``, ascending."""
        if first >= last:
            return np.zeros(0, np.int64)
        low, high = (int(np.searchsorted(self._starts, rank, side="right")) - 1 for rank in (first, last - 1))
        groups, keys = self._among(low, high, last - first)
        inside = keys - np.uint16(low) <= np.uint16(high - low)  # one comparison: smaller keys wrap around
        parts: list[NDArray[np.int64]] = []
        for key in (low, high) if low < high else (low,):
            start, stop = int(self._starts[key]), int(self._starts[key + 1])
            if start < first or last < stop:
                tied = self._tied(key, keys)
                begin = (tied if groups is None else groups[tied]) * self._adjacent
                size = np.minimum(self._adjacent, self._rows - begin)
                rank = start + np.cumsum(size) - size
                lower, upper = np.maximum(first - rank, 0), np.minimum(last - rank, size)
                inside[tied[upper - lower < size]] = False
                for cut in np.flatnonzero((lower < upper) & (upper - lower < size)).tolist():
                    parts.append(begin[cut] + np.arange(lower[cut], upper[cut]))
        found = np.flatnonzero(inside)
        return self._positions(found if groups is None else groups[found], parts)

    def _positions(self, groups: NDArray[np.int64], parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the positions of the rows of whole groups, and of parts of at most two others, ascending."""
        if self._adjacent == 1:
            return groups
        rows = (groups[:, None] * self._adjacent + np.arange(self._adjacent)).reshape(-1)
        rows = rows[: np.searchsorted(rows, self._rows)]  # the last group of the table may be shorter
        for part in parts:
            rows = np.insert(rows, np.searchsorted(rows, part[0]), part)
        return rows

    def _among(self, low: int, high: int, size: int) -> tuple[NDArray[np.int64] | None, NDArray[np.uint16]]:
        """Return groups, ascending, with all those of keys from ``low`` to ``high``, and their keys; None for all.

        Small batches are taken from a window of sqrt(n size) rows that serves those after it too: a batch then costs
        about 2 sqrt(n size) comparisons instead of n.
        """
        if size * _SMALL > len(self):
            return None, self._keys
        if self._window is None or low < self._window.low or high > self._window.high:
            reach = int(self._starts[low]) + math.isqrt(len(self) * size)
            last = max(high, int(np.searchsorted(self._starts, min(reach, len(self)) - 1, side="right")) - 1)
            groups = np.flatnonzero(self._keys - np.uint16(low) <= np.uint16(last - low))
            self._window = _Window(low, last, groups, self._keys[groups])
        return self._window.groups, self._window.keys

    def _tied(self, key: int, keys: NDArray[np.uint16]) -> NDArray[np.int64]:
        """Return the places of one key among ``keys``, in the order of their ranks.

        The last ones are kept: a batch begins where the one before it ends.
        """
        if self._cut is None or self._cut.key != key or self._cut.keys is not keys:
            places = np.random.default_rng([*self._seed, key]).permutation(np.flatnonzero(keys == key))
            self._cut = _Cut(key, keys, places)
        return self._cut.places


def _shared(groups: int, random: np.random.Generator) -> NDArray[np.uint16]:
    """Return keys such that neighbouring groups have one in every part of them."""
    cells = np.tile(np.arange(_STRATUM, dtype=np.uint16), (-(-groups // _STRATUM), 1))
    width = _KEYS // _STRATUM
    cells = random.permuted(cells, axis=1, out=cells).reshape(-1)[:groups] * np.uint16(width)
    return cells + random.integers(0, width, groups, dtype=np.uint16)


def _first_ranks(keys: NDArray[np.uint16], rows: int, adjacent: int) -> NDArray[np.int64]:
    """Return the number of rows below each key, and of all: in blocks, because ``bincount`` copies what it counts."""
    counts = np.zeros(_KEYS + 1, np.int64)
    for start in range(0, len(keys), _COUNTED):
        counts[1:] += np.bincount(keys[start : start + _COUNTED], minlength=_KEYS)
    if adjacent > 1:
        counts *= adjacent
        counts[int(keys[-1]) + 1] -= len(keys) * adjacent - rows  # what the last group of the table lacks
    return np.cumsum(counts)


class _Window(NamedTuple):
    """The groups with keys from ``low`` to ``high``, ascending, and their keys."""

    low: int
    high: int
    groups: NDArray[np.int64]
    keys: NDArray[np.uint16]


class _Cut(NamedTuple):
    """A key at which a batch ends, the keys it was looked for among, and its places there, by rank."""

    key: int
    keys: NDArray[np.uint16]
    places: NDArray[np.int64]


Ranks = Positions | RandomOrder


def ranks_of(rows: int, row_bytes: int, random: np.random.Generator | None) -> Ranks:
    """Return the order of a table's rows, sparse or not: random, or as they are if ``random`` is None."""
    if random is None:
        return Positions(rows)
    if rows * row_bytes <= SMALL_BYTES:
        return Permutation(rows, random)
    return RandomOrder(rows, random, adjacent_rows(rows, row_bytes))
