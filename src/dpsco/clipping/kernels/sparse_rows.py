"""Compressed sparse rows: gather the entries of both points for a piece of rows, compute factors, scatter the piece.

The two points are interleaved, x_0[j], x_1[j], x_0[j + 1], ..., so one cache line serves both scores. All gathers of a
piece precede its scatters, so that points and sums do not evict each other from the cache.

With a grid g, sums start at ``origin(g)`` = 3/2 2^52 g, where the spacing of float64 is g. Adding c a_j in one
operation then rounds the product to the grid. The grid is the finest on which sums of the whole round are exact
(``finest``; finer than the query's). The order of addition then does not matter, each thread has one sum, and the rows
of a round are one block. Without a grid each unit of rows is a block.

Guarantee
    * The fast path requires that the columns of a row increase strictly and lie inside the matrix. Any other row takes
      the careful path. There, values stored twice for a column are added first (otherwise the norm would be wrong),
      and a row with a column outside the matrix counts as zero.
    * |c| ||a|| <= clip in exact arithmetic (margin (width + 32) 2^-53). With a grid, a row's part of the sum has an
      error of at most sqrt(p) B 2^-50 clip, for any other rows; without, a block of 4096 rows has an error of at most
      4096 gamma_4097 clip.
    * A row's addend does not depend on the sum so far. That sum could decide between two neighbours on the grid only if
      c a_j were exactly between them. This never happens for an odd c of 53 digits: c a_j = (k + 1/2) g would be a
      multiple of c's last digit and of nothing finer, so |c a_j| >= 2^52 g/2, but |c a_j| <= clip <= 2^50 g.
    * No sum leaves [2^52 g, 2^53 g), where the above holds: B rows add at most B (clip + g/2) <= 2^50 g + B g/2.
Cost: one gather and one scatter per stored value, which is read twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels.simd import claim, fma_one, odd
from dpsco.clipping.kernels.slopes import (
    CAREFUL,
    FAST,
    INNER,
    LEAST_FACTOR,
    OPTIONS,
    TILE,
    as_ask,
    careful_factor,
    factors,
    new_tile,
)

__all__ = ["finest", "origin", "sparse"]


def finest(rows: int, clip: float) -> float:
    """Return the finest grid on which sums of ``rows`` rows, clipped at ``clip``, are exact in every order."""
    return 2.0 ** (math.frexp(max(1, rows) * clip)[1] - 50)


def origin(grid: Any) -> Any:
    """Return the initial value of sums on the grid."""
    return 1.5 * 2.0**52 * grid


@njit(**INNER)
def increasing(indices: Any, start: int, stop: int, width: int) -> bool:
    """Whether the columns of a row increase strictly and lie inside the matrix."""
    if start == stop:
        return True
    falls = 0
    for k in range(np.uintp(start), np.uintp(stop - 1)):
        falls += indices[k] >= indices[k + np.uintp(1)]
    return (falls == 0) & (indices[start] >= 0) & (indices[stop - 1] < width)


@njit(**INNER)
def all_increasing(indices: Any, ends: Any, first: int, count: int, width: int) -> bool:
    """Whether ``increasing`` holds for ``count`` rows: one long loop, corrected for falls from a row to the next."""
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


@njit(**INNER)
def gather(data: Any, indices: Any, start: int, stop: int, points: Any) -> tuple[float, float, float]:
    """Compute <a, x_0>, <a, x_1> and ||a||^2, one value at a time; vector gathers are slower for typical rows.

    Four partial sums each hide the latency of additions. Unsigned indices avoid the test for negative ones.
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
        s0, t0, q0 = fma_one(a, points[i], s0), fma_one(a, points[i + one], t0), fma_one(a, a, q0)
        s1, t1, q1 = fma_one(b, points[j], s1), fma_one(b, points[j + one], t1), fma_one(b, b, q1)
        i, j = two * np.uintp(indices[k + two]), two * np.uintp(indices[k + three])
        s2, t2, q2 = fma_one(c, points[i], s2), fma_one(c, points[i + one], t2), fma_one(c, c, q2)
        s3, t3, q3 = fma_one(d, points[j], s3), fma_one(d, points[j + one], t3), fma_one(d, d, q3)
        k += two + two
    while k < end:
        a, i = np.float64(data[k]), two * np.uintp(indices[k])
        s0, t0, q0 = fma_one(a, points[i], s0), fma_one(a, points[i + one], t0), fma_one(a, a, q0)
        k += one
    return (s0 + s1) + (s2 + s3), (t0 + t1) + (t2 + t3), (q0 + q1) + (q2 + q3)


@njit(**INNER)
def scatter(c: float, data: Any, indices: Any, start: int, stop: int, out: Any) -> None:
    """Add c a to ``out``, rounding each product together with its addition; ``c`` is odd."""
    for k in range(np.uintp(start), np.uintp(stop)):
        out[np.uintp(indices[k])] = fma_one(c, np.float64(data[k]), out[np.uintp(indices[k])])


@njit(**INNER)
def merge(data: Any, indices: Any, start: int, stop: int, merged: Any) -> None:
    """Add the values of a row to ``merged``, column by column."""
    for k in range(start, stop):
        merged[indices[k]] += data[k]


@njit(**INNER)
def careful_row(
    ask: Any,
    data: Any,
    indices: Any,
    start: int,
    stop: int,
    points: Any,
    labels: Any,
    row: int,
    tile: Any,
    merged: Any,
    out: Any,
) -> Any:
    """Add c a of one row of any order, scale and repetition; return (clipped, zeroed). ``merged`` is zero on exit.

    Values of one column are merged. Visiting a column clears it, so a second visit finds 0. This is done once for the
    scores and once more for the sum.
    """
    width = len(merged)
    for k in range(start, stop):
        if not 0 <= indices[k] < width:
            return 0, 1
    merge(data, indices, start, stop, merged)
    largest, finite = 1.0 if ask.intercept else 0.0, True
    for k in range(start, stop):
        size = abs(merged[indices[k]])
        finite &= size < np.inf
        largest = max(largest, size)
    exponent = math.frexp(largest)[1] if finite else 0
    scale = math.ldexp(1.0, -exponent) if exponent > -1000 else math.ldexp(1.0, 1000)
    score_0, score_1, square = 0.0, 0.0, 0.0
    for k in range(start, stop):
        j = indices[k]
        a, merged[j] = merged[j], 0.0
        if a != 0.0:
            score_0 += a * points[2 * j]
            score_1 += a * points[2 * j + 1]
            square += (a * scale) * (a * scale)
    if not finite:
        return 0, 1
    if ask.intercept:
        score_0, score_1 = score_0 + points[2 * width], score_1 + points[2 * width + 1]
        square += scale * scale
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, math.sqrt(square) / scale, labels, row, width)
    if abs(c) >= LEAST_FACTOR:  # a smaller c may have too few digits to be odd; it adds nothing
        c = odd(c)
        merge(data, indices, start, stop, merged)
        for k in range(start, stop):
            j = indices[k]
            a, merged[j] = merged[j], 0.0
            out[j] = fma_one(c, a, out[j])
        if ask.intercept:
            out[width] += c
    return over, zeroed


@njit(**INNER)
def take(
    ask: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    labels: Any,
    points: Any,
    merged: Any,
    edges: Any,
    counter: Any,
    unit: int,
    tile: Any,
    c: Any,
    state: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces, rows edges[i] .. edges[i + 1] with i from ``counter``, until none is left.

    ``c`` and ``state`` are working memory for the rows of a piece.
    """
    width = len(merged)
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
            clipped += factors(ask, tile, labels, first, count)[1]
            for k in range(count):
                c[first - start + k], state[first - start + k] = tile.factors[k], tile.state[k]
        for row in range(start, end):
            lo, hi = np.intp(indptr[row]), np.intp(indptr[row + 1])
            factor = c[row - start]
            if state[row - start] == FAST:
                factor = odd(factor)
                scatter(factor, data, indices, lo, hi, own)
                if ask.intercept:
                    own[width] += factor
            elif state[row - start] == CAREFUL:
                over, zero = careful_row(ask, data, indices, lo, hi, points, labels, row, tile, merged, own)
                clipped, zeroed = clipped + over, zeroed + zero
        piece = claim(counter)
    tallies[0] += clipped
    tallies[1] += zeroed


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
    """Process pieces of rows (``take``) until none is left.

    Adds contributions to ``out``: those of a piece inside rows unit k .. unit (k + 1) to out[k], or all to its only
    row. Adds the number of clipped rows and the number of zeroed rows to ``tallies``. ``merged`` is zero on exit.
    """
    longest = 0
    for piece in range(len(edges) - 1):
        longest = max(longest, edges[piece + 1] - edges[piece])
    tile, c, state = new_tile(points[:0].astype(np.float64)), np.empty(longest), np.empty(longest, np.uint8)
    ask = as_ask(asked)
    take(ask, data, indices, indptr, labels, points, merged, edges, counter, unit, tile, c, state, out, tallies)
