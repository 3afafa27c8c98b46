"""Compressed sparse rows: gather both points' entries for a piece of rows, factors, then scatter the piece.

The two points are interleaved, x_0[j], x_1[j], x_0[j + 1], ...: one cache line serves both scores. All the gathers of
a piece come before its scatters, so that points and sums do not drive each other out of the cache. With a grid,
products are rounded to a finer one, the finest on which sums of the whole round are exact: their order does not
matter, each thread has one sum, and the rows of a round are one block. Without, each unit of rows is a block.

Guarantee
    * A row is taken as it is only if its columns increase strictly and lie inside the matrix; any other row goes the
      careful way, where values stored twice for a column are added first (their norm would be wrong) and a row with a
      column outside the matrix counts as zero.
    * |c| ||a|| <= clip in exact arithmetic (margin (width + 32) 2^-53). With a grid a row's part of the sum is off by
      at most sqrt(p) B 2^-51 clip, whatever the other rows are; without, a block of 4096 rows by 4096 gamma_4097 clip.
Cost: one gather and one scatter for each stored value, which is read twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.oracles.kernels.simd import claim
from dpsco.oracles.kernels.slopes import CAREFUL, FAST, OPTIONS, TILE, as_ask, careful_factor, factors, new_tile

__all__ = ["sparse"]


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
def all_increasing(indices: Any, ends: Any, first: int, count: int, width: int) -> bool:
    """Whether ``increasing`` holds for ``count`` rows: one long loop, less what falls from a row to the next."""
    start, stop = np.uintp(ends[first]), np.uintp(ends[first + count])
    if start == stop:
        return True
    falls, outside = 0, 0
    for k in range(start, stop - np.uintp(1)):
        falls += indices[k] >= indices[k + np.uintp(1)]
    for row in range(first, first + count):
        own, after = np.uintp(ends[row]), np.uintp(ends[row + 1])
        if own < after:
            outside += (indices[own] < 0) | (indices[after - np.uintp(1)] >= width)
            if after < stop:
                falls -= indices[after - np.uintp(1)] >= indices[after]
    return (falls == 0) & (outside == 0)


@njit(**OPTIONS)
def gather(data: Any, indices: Any, start: int, stop: int, points: Any) -> tuple[float, float, float]:
    """<a, x_0>, <a, x_1> and ||a||^2, one value after the other: gathers of whole vectors are slower where it counts.

    Four sums of each, since an addition waits for the one before. Unsigned indices spare the test for negative ones.
    """
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = q0 = q1 = q2 = q3 = 0.0
    k, end, one, two, three = np.uintp(start), np.uintp(stop), np.uintp(1), np.uintp(2), np.uintp(3)
    while k + three < end:
        a, b, c, d = (
            np.float64(data[k]),
            np.float64(data[k + one]),
            np.float64(data[k + two]),
            np.float64(data[k + three]),
        )
        i, j = two * np.uintp(indices[k]), two * np.uintp(indices[k + one])
        s0, t0, q0 = s0 + a * points[i], t0 + a * points[i + one], q0 + a * a
        s1, t1, q1 = s1 + b * points[j], t1 + b * points[j + one], q1 + b * b
        i, j = two * np.uintp(indices[k + two]), two * np.uintp(indices[k + three])
        s2, t2, q2 = s2 + c * points[i], t2 + c * points[i + one], q2 + c * c
        s3, t3, q3 = s3 + d * points[j], t3 + d * points[j + one], q3 + d * d
        k += two + two
    while k < end:
        a, i = np.float64(data[k]), two * np.uintp(indices[k])
        s0, t0, q0 = s0 + a * points[i], t0 + a * points[i + one], q0 + a * a
        k += one
    return (s0 + s1) + (s2 + s3), (t0 + t1) + (t2 + t3), (q0 + q1) + (q2 + q3)


@njit(**OPTIONS)
def scatter(c: float, data: Any, indices: Any, start: int, stop: int, rounder: float, out: Any) -> None:
    """out <- out + c a, each product rounded to the grid: (v + 3/2 2^52 grid) - 3/2 2^52 grid; as it is without one."""
    for k in range(np.uintp(start), np.uintp(stop)):
        out[np.uintp(indices[k])] += (c * data[k] + rounder) - rounder


@njit(**OPTIONS)
def careful_row(
    ask: Any,
    data: Any,
    indices: Any,
    start: int,
    stop: int,
    points: Any,
    label: float,
    merged: Any,
    rounder: float,
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
    c, over, zeroed = careful_factor(ask, score_0, score_1, math.sqrt(square) / scale, label, width)
    if c != 0.0:
        scatter(c, values, columns, 0, count, rounder, out)
        if ask.intercept:
            out[width] += (c + rounder) - rounder
    return over, zeroed


@njit(**OPTIONS)
def sparse(
    asked: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    labels: Any,
    points: Any,
    merged: Any,
    edges: Any,
    counter: Any,
    unit: int,
    out: Any,
    tallies: Any,
) -> None:
    """Take pieces, rows edges[i] .. edges[i + 1] with i from ``counter``, until none is left.

    Adds contributions to ``out``, those of a piece inside rows unit k .. unit (k + 1) to out[k], or all to its only
    row; and to ``tallies`` how many rows were clipped, and how many counted as zero rows. ``merged`` is and stays zero.
    """
    ask, width = as_ask(asked), len(merged)
    rounder = 1.5 * 2.0**52 * ask.grid
    tile, longest = new_tile(points[:0].astype(np.float64)), 0
    for piece in range(len(edges) - 1):
        longest = max(longest, edges[piece + 1] - edges[piece])
    c, state = np.empty(longest), np.empty(longest, np.uint8)
    clipped, zeroed = 0, 0
    piece = claim(counter)
    while piece < len(edges) - 1:
        start, end = edges[piece], edges[piece + 1]
        own = out[(start // unit) % len(out)]
        for first in range(start, end, TILE):
            count = min(TILE, end - first)
            ordered = all_increasing(indices, indptr, first, count, width)
            for k in range(count):
                lo, hi = np.intp(indptr[first + k]), np.intp(indptr[first + k + 1])
                if ordered or increasing(indices, lo, hi, width):
                    s, t, q = gather(data, indices, lo, hi, points)
                    if ask.intercept:
                        s, t, q = s + points[2 * width], t + points[2 * width + 1], q + 1.0
                else:
                    s, t, q = 0.0, 0.0, np.nan
                tile.scores[k], tile.scores[TILE + k], tile.scores[2 * TILE + k] = s, t, q
            clipped += factors(ask, tile, labels[first:end], count)[1]
            c[first - start : first - start + count] = tile.factors[:count]
            state[first - start : first - start + count] = tile.state[:count]
        for row in range(start, end):
            lo, hi = np.intp(indptr[row]), np.intp(indptr[row + 1])
            factor = c[row - start]
            if state[row - start] == FAST:
                scatter(factor, data, indices, lo, hi, rounder, own)
                if ask.intercept:
                    own[width] += (factor + rounder) - rounder
            elif state[row - start] == CAREFUL:
                over, zero = careful_row(ask, data, indices, lo, hi, points, labels[row], merged, rounder, own)
                clipped, zeroed = clipped + over, zeroed + zero
        piece = claim(counter)
    tallies[0] += clipped
    tallies[1] += zeroed
