"""Compressed sparse rows: gather both points' entries, factor, scatter, with the row still in the cache.

The two points are interleaved, x_0[j], x_1[j], x_0[j + 1], ...: one cache line serves both scores. Sums are float64.

Guarantee
    * A row is taken as it is only if its columns increase strictly and lie inside the matrix; any other row goes the
      careful way, where values stored twice for a column are added first (their norm would be wrong) and a row with a
      column outside the matrix counts as zero.
    * |c| ||a|| <= clip in exact arithmetic (margin (width + 32) 2^-53); a block of 4096 rows has a summation error of
      at most 4096 gamma_4097 clip = 2e-9 clip.
Cost: one gather and one scatter for each stored value; for each block min(p, stored values) to round its sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.oracles.kernels.slopes import CAREFUL, FAST, OPTIONS, TILE, as_ask, careful_factor, factors, new_tile

__all__ = ["SPARSE_BLOCK", "sparse"]

SPARSE_BLOCK = 4096


@njit(**OPTIONS)
def increasing(indices: Any, start: int, stop: int, width: int) -> bool:
    """Whether the columns of a row increase strictly and lie inside the matrix."""
    if start == stop:
        return True
    falls = 0
    for k in range(np.uintp(start), np.uintp(stop - 1)):
        falls += indices[k] >= indices[k + np.uintp(1)]
    return (falls == 0) & (indices[start] >= 0) & (indices[stop - 1] < width)


@njit(**OPTIONS)
def gather(data: Any, indices: Any, start: int, stop: int, points: Any) -> tuple[float, float, float]:
    """<a, x_0>, <a, x_1> and ||a||^2, one value after the other: gathers of whole vectors are slower where it counts.

    Unsigned indices spare the test for negative ones, here a third of the work.
    """
    score_0, score_1, square = 0.0, 0.0, 0.0
    for k in range(np.uintp(start), np.uintp(stop)):
        a, j = np.float64(data[k]), np.uintp(2) * np.uintp(indices[k])
        score_0 += a * points[j]
        score_1 += a * points[j + np.uintp(1)]
        square += a * a
    return score_0, score_1, square


@njit(**OPTIONS)
def scatter(c: float, data: Any, indices: Any, start: int, stop: int, total: Any) -> None:
    """total <- total + c a."""
    for k in range(np.uintp(start), np.uintp(stop)):
        total[np.uintp(indices[k])] += c * data[k]


@njit(**OPTIONS)
def careful_row(
    ask: Any,
    tile: Any,
    data: Any,
    indices: Any,
    start: int,
    stop: int,
    points: Any,
    label: float,
    merged: Any,
    out: Any,
) -> Any:
    """Add c a of one row whatever its order, scale or repetitions; (clipped, zeroed). ``merged`` is and stays zero."""
    width = len(merged)
    for k in range(start, stop):
        if not 0 <= indices[k] < width:
            return 0, 1
    for k in range(start, stop):
        merged[indices[k]] += data[k]
    columns, values, count = np.empty(stop - start, np.intp), np.empty(stop - start), 0
    largest, finite = 1.0 if ask.intercept else 0.0, True
    for k in range(start, stop):
        a = merged[indices[k]]
        if a != 0.0:  # also when it is not a number; a second visit finds 0
            merged[indices[k]] = 0.0
            columns[count], values[count] = indices[k], a
            count += 1
            finite &= abs(a) < np.inf
            largest = max(largest, abs(a))
    if not finite:
        return 0, 1
    exponent = math.frexp(largest)[1]
    scale = math.ldexp(1.0, -exponent) if exponent > -1000 else math.ldexp(1.0, 1000)
    score_0, score_1, square = 0.0, 0.0, 0.0
    for k in range(count):
        score_0 += values[k] * points[2 * columns[k]]
        score_1 += values[k] * points[2 * columns[k] + 1]
        square += (values[k] * scale) * (values[k] * scale)
    if ask.intercept:
        score_0, score_1 = score_0 + points[2 * width], score_1 + points[2 * width + 1]
        square += scale * scale
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, math.sqrt(square) / scale, label, width)
    if c != 0.0:
        for k in range(count):
            out[columns[k]] += c * values[k]
        if ask.intercept:
            out[width] += c
    return over, zeroed


@njit(**OPTIONS)
def settle(total: Any, j: int, grid: float, out: Any) -> None:
    """Round one coordinate of a block's sum into ``out`` and clear it."""
    if total[j] != 0.0:
        out[j] += np.rint(total[j] / grid) * grid if grid > 0.0 else total[j]
        total[j] = 0.0


@njit(**OPTIONS)
def flush(ask: Any, indices: Any, start: int, stop: int, total: Any, out: Any) -> None:
    """out <- out + round(block sum), and an empty block: by coordinate, or by stored value if those are fewer."""
    width = len(total) - 1
    if 2 * (stop - start) < width:
        for k in range(start, stop):
            if 0 <= indices[k] < width:
                settle(total, indices[k], ask.grid, out)
        if ask.intercept:
            settle(total, width, ask.grid, out)
        return
    steps = 1.0 / ask.grid if ask.grid > 0.0 else 0.0  # both are powers of two: exact
    for j in range(len(out)):
        out[j] += np.rint(total[j] * steps) * ask.grid if ask.grid > 0.0 else total[j]
        total[j] = 0.0


@njit(**OPTIONS)
def sparse(
    asked: Any, data: Any, indices: Any, indptr: Any, labels: Any, points: Any, total: Any, merged: Any, out: Any
) -> Any:
    """Add rounded block sums to ``out``: that of block k to out[k], or all to its only row.

    ``total`` (width + 1 numbers) and ``merged`` (width) are working memory, zero before and after.
    Returns how many rows were clipped, and how many counted as zero rows.
    """
    ask, width = as_ask(asked), len(total) - 1
    tile, ordered = new_tile(points[:0].astype(np.float64)), np.zeros(TILE, np.bool_)
    clipped, zeroed = 0, 0
    for start in range(0, labels.size, SPARSE_BLOCK):
        end = min(start + SPARSE_BLOCK, labels.size)
        for first in range(start, end, TILE):
            count = min(TILE, end - first)
            for k in range(count):
                lo, hi = np.intp(indptr[first + k]), np.intp(indptr[first + k + 1])
                ordered[k] = increasing(indices, lo, hi, width)
                s, t, q = gather(data, indices, lo, hi, points) if ordered[k] else (0.0, 0.0, 0.0)
                if ask.intercept:
                    s, t, q = s + points[2 * width], t + points[2 * width + 1], q + 1.0
                tile.scores[k], tile.scores[TILE + k], tile.scores[2 * TILE + k] = s, t, q if ordered[k] else np.nan
            clipped += factors(ask, tile, labels[first:end], count)[1]
            for k in range(count):
                lo, hi = np.intp(indptr[first + k]), np.intp(indptr[first + k + 1])
                if tile.state[k] == FAST:
                    scatter(tile.factors[k], data, indices, lo, hi, total)
                    if ask.intercept:
                        total[width] += tile.factors[k]
                elif tile.state[k] == CAREFUL:
                    over, zero = careful_row(ask, tile, data, indices, lo, hi, points, labels[first + k], merged, total)
                    clipped, zeroed = clipped + over, zeroed + zero
        row = out[(start // SPARSE_BLOCK) % len(out)]
        flush(ask, indices, np.intp(indptr[start]), np.intp(indptr[end]), total, row)
    return clipped, zeroed
