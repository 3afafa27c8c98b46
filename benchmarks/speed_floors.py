"""The least work of any method, in one thread: read every byte, or gather and scatter every stored value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels.simd import add_totals, fma, lanes, load, spread


@njit(nogil=True)
def read_only(values: Any, start: int, stop: int) -> float:
    """Sum of ``values[start:stop]``, as fast as memory gives it."""
    step, sums = 4 * lanes(values), np.zeros(4)
    ones = np.ones(16, values.dtype)
    one = load(ones, 0)
    a = b = c = d = spread(values[0] - values[0])
    while start + step <= stop:
        a, b = fma(load(values, start), one, a), fma(load(values, start + lanes(values)), one, b)
        c = fma(load(values, start + 2 * lanes(values)), one, c)
        d = fma(load(values, start + 3 * lanes(values)), one, d)
        start += step
    add_totals(sums, 0, a, b, c, d)
    return sums.sum()


@njit(nogil=True)
def gather_only(data: Any, indices: Any, indptr: Any, start: int, stop: int, points: Any) -> float:
    """Scores at two interleaved points, and nothing else."""
    total = 0.0
    for row in range(start, stop):
        score_0, score_1 = 0.0, 0.0
        for k in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
            a, j = np.float64(data[k]), np.uintp(2) * np.uintp(indices[k])
            score_0 += a * points[j]
            score_1 += a * points[j + np.uintp(1)]
        total += score_0 - score_1
    return total


@njit(nogil=True)
def scatter_only(data: Any, indices: Any, indptr: Any, start: int, stop: int, total: Any) -> None:
    """Every stored value, times a number of its row, into its column's sum."""
    for row in range(start, stop):
        c = 0.5 + 1e-9 * row
        for k in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
            total[np.uintp(indices[k])] += c * data[k]
