"""A random order of rows for rounds that sum whole batches: which rows a batch holds is random, not their order in it.

    key_i      16 random bits per row
    rank_i     place of (key_i, tie_i) among all rows, tie_i a random order of the rows with equal keys
    batch      the rows of ranks first .. last, ascending by their position

The ranks are a uniform random permutation. Ties are decided where a batch begins or ends among them, and nowhere else.

Guarantee: no value of a row decides on its rank. The sum of a batch does not depend on the order of its rows beyond
rounding, and a row's place in its batch is a function of the ranks alone: it stays where it is if a row is zeroed.
Cost: two bytes and a few nanoseconds per row, about a tenth of a permutation; a batch is read in the order of memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positions", "RandomOrder", "Ranks"]

_KEYS = 1 << 16


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
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(self._keys, minlength=_KEYS))])
        """Rank of the first row of each key."""

    def __len__(self) -> int:
        return len(self._keys)

    def batch(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the positions of the rows of ranks ``first`` .. ``last``, ascending."""
        if first >= last:
            return np.zeros(0, np.int64)
        low, high = (int(np.searchsorted(self._starts, rank, side="right")) - 1 for rank in (first, last - 1))
        inside = (self._keys >= low) & (self._keys <= high)
        for key in {low, high}:
            start, stop = int(self._starts[key]), int(self._starts[key + 1])
            if start < first or last < stop:
                tied = self._tied(key)
                inside[tied[: max(first - start, 0)]] = False
                inside[tied[max(last - start, 0) :]] = False
        return np.flatnonzero(inside)

    def _tied(self, key: int) -> NDArray[np.int64]:
        """Return the rows of one key, in the order of their ranks."""
        return np.random.default_rng([*self._seed, key]).permutation(np.flatnonzero(self._keys == key))


Ranks = Positions | RandomOrder
