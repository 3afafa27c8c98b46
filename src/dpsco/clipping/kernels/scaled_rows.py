"""Compressed sparse rows clipped by their norm in a diagonal metric, ||D a||, in one read and without the rows D a.

With a = (s f, constant), s = 1 / max(F, ||f||), D = diag(d) and d_p the constant's scale,

    c   = w_0 slope(<a, D u_0>, y) + w_1 slope(<a, D u_1>, y)
    N^2 = s^2 (1 + doubt) sum_j (d_j f_j)^2 + (constant d_p)^2
    c   is cut to [-target / N, target / N]
    sum <- fma(c s, f_j, sum_j) for each stored value, and sum_p <- sum_p + c

D u_0, D u_1 and d are interleaved, so mostly one cache line serves a stored value. The caller multiplies the sum of the
round by d, and by constant d_p in its last place: D (sum of c a) is the sum of c D a.

Each column has a grid of its own, g_j: a power of two, the finest on which sums of the round are exact for addends up
to clip / d_j. Sums start at ``origin(g_j)``, as in kernels/sparse_rows.py. The statements there hold for each column.

Guarantee
    * The vector that a row adds, times (d, constant d_p), has a norm of at most the clip in exact arithmetic. Scores
      and squares are sums in the type of the rows, of unit roundoff w = 2^-24 or 2^-53. With n <= 2^20 stored values
      d_j f_j is rounded once, its square and each addition once: the computed sum of squares is at least
      (1 - w)^(n + 4) of the exact one, and doubt = 2 (n + 16) w makes up for it. Sums outside a range far from the
      limits of the type take the careful path; single squares that underflow are below w of the least of them. The rest
      is float64 with u = 2^-53: N is at least 1 - 8 u of the exact norm for the same s, whatever error s has. c s is
      off by at most u, and odd factors are not longer. Together this is below the margin (width + 32) u of the target.
      The careful path never squares N: the square of a norm below 1e-154 is subnormal and has few digits. It takes the
      root of the sum of squares, which is far from the limits, multiplies it by the ratio, and joins the constant by
      hypot: three more roundings. Norms below SMALLEST_NORM, where a product may be subnormal, add nothing.
    * An addend is at most clip / d_j <= 2^50 g_j, and B rows add at most 2^50 g_j + B g_j / 2: no sum leaves the range
      where the spacing is g_j, and no addend depends on the sum so far (the factors are odd). A row's part of the sum,
      times d, has an error of at most sqrt(p) B 2^-49 clip.
    * Rows whose columns do not increase strictly, whose squares leave the range of float64, or that are empty take the
      careful path, as in kernels/sparse_rows.py: values of one column are merged first, and a column outside the matrix
      makes a zero row.
Cost: two gathers from one cache line and one scatter per stored value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM
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
from dpsco.clipping.kernels.sparse_rows import all_increasing, increasing, merge, scatter

__all__ = ["STRIDE", "scaled"]

MOST_STORED = 1 << 20
"""Stored values of a row on the fast path, for which its doubt is a bound in float32."""

STRIDE = 3
"""Numbers per column of the points: D u_0, D u_1 and d."""


@njit(**INNER)
def gather(data: Any, indices: Any, start: int, stop: int, points: Any) -> tuple[float, float, float, float]:
    """Compute <f, D u_0>, <f, D u_1>, ||f||^2 and ||D f||^2 in the type of the rows, in two partial sums each.

    Four partial sums, as in kernels/sparse_rows.py, are more than there are registers, and conversions to float64 would
    take longer than all else.
    """
    zero = data.dtype.type(0.0)
    s0, s1, t0, t1, q0, q1, r0, r1 = zero, zero, zero, zero, zero, zero, zero, zero
    k, end, one, two, each = np.uintp(start), np.uintp(stop), np.uintp(1), np.uintp(2), np.uintp(STRIDE)
    while k + one < end:
        a, b = data[k], data[k + one]
        i, j = each * np.uintp(indices[k]), each * np.uintp(indices[k + one])
        v, w = a * points[i + two], b * points[j + two]
        s0, s1 = s0 + a * points[i], s1 + b * points[j]
        t0, t1 = t0 + a * points[i + one], t1 + b * points[j + one]
        q0, q1, r0, r1 = q0 + a * a, q1 + b * b, r0 + v * v, r1 + w * w
        k += two
    if k < end:
        a, i = data[k], each * np.uintp(indices[k])
        v = a * points[i + two]
        s0, t0, q0, r0 = s0 + a * points[i], t0 + a * points[i + one], q0 + a * a, r0 + v * v
    return np.float64(s0 + s1), np.float64(t0 + t1), np.float64(q0 + q1), np.float64(r0 + r1)


@njit(**INNER)
def careful_row(
    ask: Any,
    numbers: Any,
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
    """Add c (s f, 1) of one row of any order, scale and repetition; return (clipped, zeroed). ``merged`` ends as zeros.

    Values of one column are merged. Visiting a column clears it, so a second visit finds 0. This is done once for the
    scores and once more for the sum.
    """
    width, feature_norm, constant = len(merged), numbers[0], numbers[1]
    for k in range(start, stop):
        if not 0 <= indices[k] < width:
            return 0, 1
    merge(data, indices, start, stop, merged)
    largest, finite = 0.0, True
    for k in range(start, stop):
        size = abs(merged[indices[k]])
        finite &= size < np.inf
        largest = max(largest, size)
    exponent = math.frexp(largest)[1] if finite else 0
    scale = math.ldexp(1.0, -exponent) if exponent > -1000 else math.ldexp(1.0, 1000)
    score_0, score_1, square, mapped = 0.0, 0.0, 0.0, 0.0
    for k in range(start, stop):
        j = indices[k]
        a, merged[j] = merged[j] * scale, 0.0
        if a != 0.0:
            score_0 += a * points[STRIDE * j]
            score_1 += a * points[STRIDE * j + 1]
            square += a * a
            b = a * points[STRIDE * j + 2]
            mapped += b * b
    length = math.sqrt(square) / scale
    if not finite or not (length <= LARGEST_NORM):
        return 0, 1
    s = 1.0 / max(feature_norm, length) if length >= SMALLEST_NORM else 0.0
    ratio = s / scale
    score_0 = ratio * score_0 + constant * points[STRIDE * width]
    score_1 = ratio * score_1 + constant * points[STRIDE * width + 1]
    norm = math.hypot(ratio * math.sqrt(mapped), math.sqrt(numbers[2]))  # its square may be subnormal
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, norm, labels, row, width)
    add(c, s, data, indices, start, stop, merged, True, out)
    return over, zeroed


@njit(**INNER)
def add(
    c: float, s: float, data: Any, indices: Any, start: int, stop: int, merged: Any, careful: bool, out: Any
) -> None:
    """Add c (s f, 1); factors too small to be odd add nothing."""
    if abs(c * s) >= LEAST_FACTOR:
        factor = odd(c * s)
        if careful:
            merge(data, indices, start, stop, merged)
            for k in range(start, stop):
                j = indices[k]
                a, merged[j] = merged[j], 0.0
                out[j] = fma_one(factor, a, out[j])
        else:
            scatter(factor, data, indices, start, stop, out)
    if len(out) > len(merged) and abs(c) >= LEAST_FACTOR:  # there is a constant
        out[len(merged)] += odd(c)


@njit(**INNER)
def take(
    ask: Any,
    numbers: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    labels: Any,
    points: Any,
    merged: Any,
    edges: Any,
    counter: Any,
    tile: Any,
    c: Any,
    scale: Any,
    state: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces, rows edges[i] .. edges[i + 1] with i from ``counter``, until none is left."""
    width = len(merged)
    feature_norm, square, least, most, doubt = numbers[0], numbers[2], numbers[3], numbers[4], numbers[5]
    last_0, last_1 = numbers[1] * points[STRIDE * width], numbers[1] * points[STRIDE * width + 1]
    clipped, zeroed = 0, 0
    piece = claim(counter)
    while piece < len(edges) - 1:
        start, end = edges[piece], edges[piece + 1]
        for first in range(start, end, TILE):
            count = min(TILE, end - first)
            ordered = all_increasing(indices, indptr, first, count, width)
            for k in range(count):
                lo, hi = np.intp(indptr[first + k]), np.intp(indptr[first + k + 1])
                s, t, n, a = np.nan, 0.0, 0.0, 1.0
                if ordered or increasing(indices, lo, hi, width):
                    p, t, q, r = gather(data, indices, lo, hi, points)
                    a = 1.0 / max(feature_norm, math.sqrt(q))
                    n = (a * a * r) * (1.0 + (hi - lo + 16) * doubt) + square
                    usable = (q >= least) & (q <= most) & (r >= least) & (r <= most) & (hi - lo <= MOST_STORED)
                    s = a * p + last_0 if usable else np.nan
                    t = a * t + last_1
                tile.scores[k], tile.scores[TILE + k], tile.scores[2 * TILE + k] = s, t, n
                scale[first - start + k] = a
            clipped += factors(ask, tile, labels, first, count)[1]
            for k in range(count):
                c[first - start + k], state[first - start + k] = tile.factors[k], tile.state[k]
        for row in range(start, end):
            lo, hi = np.intp(indptr[row]), np.intp(indptr[row + 1])
            if state[row - start] == FAST:
                add(c[row - start], scale[row - start], data, indices, lo, hi, merged, False, out)
            elif state[row - start] == CAREFUL:
                over, zero = careful_row(ask, numbers, data, indices, lo, hi, points, labels, row, tile, merged, out)
                clipped, zeroed = clipped + over, zeroed + zero
        piece = claim(counter)
    tallies[0] += clipped
    tallies[1] += zeroed


@njit(**OPTIONS)
def scaled(
    asked: Any,
    numbers: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    labels: Any,
    points: Any,
    merged: Any,
    edges: Any,
    counter: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces of rows (``take``) until none is left.

    ``numbers`` are F, the constant, (constant d_p)^2, and for the type of the rows the least and the largest sum of
    squares and twice the unit roundoff. Adds c (s f, 1) of each row to ``out``, of width + 1 numbers,
    or of width without a constant, and the number of clipped rows and of zeroed rows to ``tallies``. ``merged`` is zero
    on exit.
    """
    longest = 0
    for piece in range(len(edges) - 1):
        longest = max(longest, edges[piece + 1] - edges[piece])
    tile, c, scale = new_tile(points[:0].astype(np.float64)), np.empty(longest), np.empty(longest)
    state, ask = np.empty(longest, np.uint8), as_ask(asked)
    given = (data, indices, indptr, labels, points, merged, edges, counter)
    take(ask, numbers, *given, tile, c, scale, state, out, tallies)
