"""Working memory of kernels: zeros that are reused, because allocating 1e5 numbers takes longer than filling them.

Guarantee: what ``borrow`` returns is zero and nobody else has it. Memory that holds sums is not in the pool: whoever
borrows it gives it back after use, and an error or an interrupt in between drops it. Sums of an interrupted call would
otherwise be part of the next sum.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dpsco.query import Array

__all__ = ["borrow", "give_back"]

_SIZES = 4
"""Sizes in the pool before it is emptied: a run needs one or two."""
_POOL: dict[int, deque[Array]] = {}


def borrow(size: int) -> Array:
    """Return ``size`` zeros, from the pool or new."""
    try:
        return _POOL[size].pop()
    except (KeyError, IndexError):
        return np.zeros(size)


def give_back(sums: Array) -> None:
    """Erase ``sums``, which are sensitive, and put them into the pool."""
    sums.fill(0.0)
    if len(_POOL) > _SIZES:
        _POOL.clear()
    _POOL.setdefault(sums.size, deque(maxlen=64)).append(sums)
