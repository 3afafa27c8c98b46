"""A random order of rows for rounds that sum whole batches: which rows a batch holds is random, not their order in it.

    key_i      16 random bits per row
    rank_i     place of (key_i, tie_i) among all rows, tie_i a random order of the rows with equal keys
    batch      the rows of ranks first .. last, ascending by their position

The ranks are a uniform random permutation. Ties are decided where a batch begins or ends among them, and nowhere else.

Guarantee: no value of a row decides on its rank. The sum of a batch does not depend on the order of its rows beyond
rounding, and a row's place in its batch is a function of the ranks alone: it stays where it is if a row is zeroed.
Cost: two bytes and a few nanoseconds per row, about a tenth of a permutation. A batch of m rows of n takes about n
comparisons, or 2 sqrt(n m) if it is small. It is read in the order of memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positions", "RandomOrder", "Ranks"]

_KEYS = 1 << 16
_SMALL = 8
"""Batches in all rows from which a window is made."""
_COUNTED = 1 << 17
"""Keys counted at a time."""


class Positions:
    """Rows in the order in which they are."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions ``first`` .. ``last``."""
        return np.arange(first, last)


class RandomOrder:
    """Rows in a random order.

    Parameters
    ----------
    rows : int
        How many there are.
    random : numpy.random.Generator
        Draws the keys.
    """

    def __init__(self, rows: int, random: np.random.Generator) -> None:
        self._keys = random.integers(0, _KEYS, rows, dtype=np.uint16)
        self._seed = random.integers(0, 1 << 63, 2).tolist()
        self._starts = _first_ranks(self._keys)
        """Rank of the first row of each key."""
        self._window: _Window | None = None
        self._cut: _Cut | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions of the rows of ranks ``first`` .. ``last``, ascending."""
        if first >= last:
            return np.zeros(0, np.int64)
        low, high = (int(np.searchsorted(self._starts, rank, side="right")) - 1 for rank in (first, last - 1))
        rows, keys = self._among(low, high, last - first)
        inside = keys - np.uint16(low) <= np.uint16(high - low)  # one comparison: smaller keys wrap around
        for key in (low, high) if low < high else (low,):
            start, stop = int(self._starts[key]), int(self._starts[key + 1])
            if start < first or last < stop:
                tied = self._tied(key, keys)
                inside[tied[: max(first - start, 0)]] = False
                inside[tied[max(last - start, 0) :]] = False
        found = np.flatnonzero(inside)
        return found if rows is None else rows[found]

    def _among(self, low: int, high: int, size: int) -> tuple[NDArray[np.int64] | None, NDArray[np.uint16]]:
        """Return rows, ascending, that hold all those with keys from ``low`` to ``high``, and their keys; None for all.

        Small batches are taken from a window of sqrt(n size) rows that serves those after it too: a batch then costs
        about 2 sqrt(n size) comparisons instead of n.
        """
        if size * _SMALL > len(self):
            return None, self._keys
        if self._window is None or low < self._window.low or high > self._window.high:
            reach = int(self._starts[low]) + math.isqrt(len(self) * size)
            last = max(high, int(np.searchsorted(self._starts, min(reach, len(self)) - 1, side="right")) - 1)
            rows = np.flatnonzero(self._keys - np.uint16(low) <= np.uint16(last - low))
            self._window = _Window(low, last, rows, self._keys[rows])
        return self._window.rows, self._window.keys

    def _tied(self, key: int, keys: NDArray[np.uint16]) -> NDArray[np.int64]:
        """Return the places of one key among ``keys``, in the order of the ranks of their rows.

        The last ones are kept: a batch begins where the one before it ends.
        """
        if self._cut is None or self._cut.key != key or self._cut.keys is not keys:
            places = np.random.default_rng([*self._seed, key]).permutation(np.flatnonzero(keys == key))
            self._cut = _Cut(key, keys, places)
        return self._cut.places


def _first_ranks(keys: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the number of keys below each key, and of all: in blocks, because ``bincount`` copies what it counts."""
    counts = np.zeros(_KEYS + 1, np.int64)
    for start in range(0, len(keys), _COUNTED):
        counts[1:] += np.bincount(keys[start : start + _COUNTED], minlength=_KEYS)
    return np.cumsum(counts)


class _Window(NamedTuple):
    """The rows with keys from ``low`` to ``high``, ascending, and their keys."""

    low: int
    high: int
    rows: NDArray[np.int64]
    keys: NDArray[np.uint16]


class _Cut(NamedTuple):
    """A key at which a batch ends, the keys it was looked for among, and its places there, by rank."""

    key: int
    keys: NDArray[np.uint16]
    places: NDArray[np.int64]


Ranks = Positions | RandomOrder
