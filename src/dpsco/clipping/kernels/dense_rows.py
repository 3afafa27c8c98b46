"""Dense rows in one read of memory: scores, norm, factor and sum, while the rows are in the cache.

For each tile of rows: scores in vectors of 64 bytes, four rows at a time; factors (slopes.py); then, eight at a time,

    sum_j <- fma(c_3, a_3j, .. fma(c_0, a_0j, sum_j)) + fma(c_7, a_7j, .. fma(c_4, a_4j, 0)).

Eight rows of 4 to 8 KB do not fit into the smallest cache beside points and sum. Such a row is a tile of its own, four
vectors at a time: sum_j <- fma(c, a_j, sum_j).

Threads take pieces of rows from one counter until none is left, so all of them finish at about the same time.

Guarantee
    * |c_i| ||a_i|| <= clip in exact arithmetic. float32: each lane adds at most SEGMENT/16 + 1 squares and its total
      four times more before float64 takes over, so ||a||^2 is within 38 2^-24 and c within 2^-24 of exact; MARGIN is
      32 2^-24. Rows with squares outside [2^-70, 2^100] or factors below 2^-100 take the careful path: float64, scaled
      by a power of two. float64: margin (width + 32) 2^-53.
    * A block sum has an error of at most rows gamma_(rows + 1) clip: 2.5e-4 for 64 float32 rows, 7e-12 for 256 float64
      rows.
    * A row that does not count adds nothing, so its values cannot affect another row's bits.
Cost: rows are read from memory once; 12 float32 or 7 float64 elements per nanosecond of compute on one 3 GHz core.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dpsco.clipping.kernels.simd import BYTES, add_totals, claim, fma, lanes, load, load_some, prefetch, spread, store
from dpsco.clipping.kernels.slopes import CAREFUL, FAST, INNER, OPTIONS, TILE, as_ask, careful_factor, factors, new_tile

__all__ = ["block_rows", "dense", "four_scores", "padded", "tile_of_kernel", "tile_rows"]

SEGMENT = 512
"""Columns summed in the type of the rows before the sum continues in float64."""

_TILE_BYTES = 1 << 13
"""A sixth of the smallest cache: rows are still there when their sum is made, beside points, sum and the next rows."""

_AHEAD_TILES, _AHEAD_ROWS = 1 << 14, 1 << 13
"""Bytes between a tile, or a tile of one row, and the one that its scores prefetch, and its sums once more: a busy
processor drops hints. The hardware prefetcher follows neither four rows at a time nor the second read of a tile;
without prefetching, half the bandwidth is lost."""


def block_rows(itemsize: int) -> int:
    """Return the number of rows whose sum is rounded to the grid together."""
    return 64 if itemsize == 4 else 256


def tile_rows(width: int, itemsize: int, size: int) -> int:
    """Return the number of rows, of about ``size`` bytes, that stay in the cache until their factors are known."""
    return max(8, min(TILE, size // (width * itemsize) // 8 * 8))


def tile_of_kernel(width: int, itemsize: int) -> int:
    """Return the number of rows of a tile of ``dense``: 1 where eight rows do not fit into the smallest cache.

    Beyond 8 KB points, sum and one row do not fit either, and eight rows that share them cost less.
    """
    return 1 if 1 << 12 <= width * itemsize <= 1 << 13 else tile_rows(width, itemsize, _TILE_BYTES)


def padded(width: int, itemsize: int) -> int:
    """Return the length of a vector, rounded up so that it can be read 64 bytes at a time."""
    return -(-width * itemsize // BYTES) * BYTES // itemsize


@njit(forceinline=True, **INNER)
def four_scores(
    rows: Any, b0: int, b1: int, b2: int, b3: int, width: int, points: Any, stride: int, out: Any, k: int, ahead: int
) -> None:
    """Add <a, x_0>, <a, x_1>, ||a||^2 of the rows that start at b0 .. b3 to out[k : k + 4] of each third of ``out``.

    Prefetch as many rows from ``ahead``.
    """
    whole = width - width % lanes(rows)
    start = 0
    while True:
        stop = min(whole, start + SEGMENT)
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = q0 = q1 = q2 = q3 = spread(points[0] - points[0])
        j = start
        while j < stop:  # range(start, stop, step) divides to count its steps, which takes as long as a short row
            for r in range(4):
                prefetch(rows, ahead + 4 * j + r * lanes(rows))
            u, v = load(points, j), load(points, stride + j)
            a = load(rows, b0 + j)
            s0, t0, q0 = fma(a, u, s0), fma(a, v, t0), fma(a, a, q0)
            a = load(rows, b1 + j)
            s1, t1, q1 = fma(a, u, s1), fma(a, v, t1), fma(a, a, q1)
            a = load(rows, b2 + j)
            s2, t2, q2 = fma(a, u, s2), fma(a, v, t2), fma(a, a, q2)
            a = load(rows, b3 + j)
            s3, t3, q3 = fma(a, u, s3), fma(a, v, t3), fma(a, a, q3)
            j += lanes(rows)
        if stop == whole and whole < width:
            m = width - whole
            u, v = load(points, j), load(points, stride + j)
            a = load_some(rows, b0 + j, m)
            s0, t0, q0 = fma(a, u, s0), fma(a, v, t0), fma(a, a, q0)
            a = load_some(rows, b1 + j, m)
            s1, t1, q1 = fma(a, u, s1), fma(a, v, t1), fma(a, a, q1)
            a = load_some(rows, b2 + j, m)
            s2, t2, q2 = fma(a, u, s2), fma(a, v, t2), fma(a, a, q2)
            a = load_some(rows, b3 + j, m)
            s3, t3, q3 = fma(a, u, s3), fma(a, v, t3), fma(a, a, q3)
        add_totals(out, k, s0, s1, s2, s3)
        add_totals(out, TILE + k, t0, t1, t2, t3)
        add_totals(out, 2 * TILE + k, q0, q1, q2, q3)
        start = stop
        if stop == whole:
            return


@njit(forceinline=True, **INNER)
def add_eight(rows: Any, b: int, at: Any, c: Any, k: int, width: int, total: Any, ahead: int) -> None:
    """Add c[k + r] a over the eight rows that start at b + at[k + r] to ``total``; prefetch from ``ahead``."""
    whole = width - width % lanes(rows)
    c0, c1, c2, c3 = spread(c[k]), spread(c[k + 1]), spread(c[k + 2]), spread(c[k + 3])
    c4, c5, c6, c7 = spread(c[k + 4]), spread(c[k + 5]), spread(c[k + 6]), spread(c[k + 7])
    b0, b1, b2, b3 = b + at[k], b + at[k + 1], b + at[k + 2], b + at[k + 3]
    b4, b5, b6, b7 = b + at[k + 4], b + at[k + 5], b + at[k + 6], b + at[k + 7]
    zero, one = spread(rows.dtype.type(0)), spread(rows.dtype.type(1))
    j = 0
    while j < whole:
        for r in range(8):
            prefetch(rows, ahead + 8 * j + r * lanes(rows))
        v, w = load(total, j), zero
        v, w = fma(c0, load(rows, b0 + j), v), fma(c4, load(rows, b4 + j), w)
        v, w = fma(c1, load(rows, b1 + j), v), fma(c5, load(rows, b5 + j), w)
        v, w = fma(c2, load(rows, b2 + j), v), fma(c6, load(rows, b6 + j), w)
        v, w = fma(c3, load(rows, b3 + j), v), fma(c7, load(rows, b7 + j), w)
        store(total, j, fma(w, one, v))
        j += lanes(rows)
    if whole < width:
        m = width - whole
        v, w = load(total, j), zero
        v, w = fma(c0, load_some(rows, b0 + j, m), v), fma(c4, load_some(rows, b4 + j, m), w)
        v, w = fma(c1, load_some(rows, b1 + j, m), v), fma(c5, load_some(rows, b5 + j, m), w)
        v, w = fma(c2, load_some(rows, b2 + j, m), v), fma(c6, load_some(rows, b6 + j, m), w)
        v, w = fma(c3, load_some(rows, b3 + j, m), v), fma(c7, load_some(rows, b7 + j, m), w)
        store(total, j, fma(w, one, v))


@njit(forceinline=True, **INNER)
def row_scores(rows: Any, b: int, width: int, points: Any, stride: int, scores: Any, ahead: int) -> None:
    """Write <a, x_0>, <a, x_1>, ||a||^2 of the row that starts at b to the thirds of ``scores``.

    Prefetch a row from ``ahead``.
    """
    step, zero = lanes(rows), spread(rows.dtype.type(0))
    whole = width - width % (4 * step)
    scores[0:4], scores[TILE : TILE + 4], scores[2 * TILE : 2 * TILE + 4] = 0.0, 0.0, 0.0
    start = 0
    while True:
        stop = min(whole, start + 4 * SEGMENT)  # four sums of each: every lane adds as many squares as in four_scores
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = q0 = q1 = q2 = q3 = zero
        j = start
        while j < stop:
            for r in range(4):
                prefetch(rows, ahead + j + r * step)
            a = load(rows, b + j)
            s0, t0, q0 = fma(a, load(points, j), s0), fma(a, load(points, stride + j), t0), fma(a, a, q0)
            j += step
            a = load(rows, b + j)
            s1, t1, q1 = fma(a, load(points, j), s1), fma(a, load(points, stride + j), t1), fma(a, a, q1)
            j += step
            a = load(rows, b + j)
            s2, t2, q2 = fma(a, load(points, j), s2), fma(a, load(points, stride + j), t2), fma(a, a, q2)
            j += step
            a = load(rows, b + j)
            s3, t3, q3 = fma(a, load(points, j), s3), fma(a, load(points, stride + j), t3), fma(a, a, q3)
            j += step
        add_totals(scores, 0, s0, s1, s2, s3)
        add_totals(scores, TILE, t0, t1, t2, t3)
        add_totals(scores, 2 * TILE, q0, q1, q2, q3)
        start = stop
        if stop == whole:
            break
    while start < width:
        m = min(step, width - start)
        a = load_some(rows, b + start, m)
        s0, t0, q0 = fma(a, load(points, start), zero), fma(a, load(points, stride + start), zero), fma(a, a, zero)
        add_totals(scores, 0, s0, zero, zero, zero)
        add_totals(scores, TILE, t0, zero, zero, zero)
        add_totals(scores, 2 * TILE, q0, zero, zero, zero)
        start += m
    for k in (0, TILE, 2 * TILE):
        scores[k] = (scores[k] + scores[k + 1]) + (scores[k + 2] + scores[k + 3])


@njit(forceinline=True, **INNER)
def add_row(rows: Any, b: int, c: Any, width: int, total: Any, ahead: int) -> None:
    """Add c a of the row that starts at b to ``total``; prefetch from ``ahead``."""
    step, factor = lanes(rows), spread(c)
    whole = width - width % (4 * step)
    j = 0
    while j < whole:
        for r in range(4):
            prefetch(rows, ahead + j + r * step)
        for _ in range(4):
            store(total, j, fma(factor, load(rows, b + j), load(total, j)))
            j += step
    while j < width:
        store(total, j, fma(factor, load_some(rows, b + j, min(step, width - j)), load(total, j)))
        j += step


@njit(**INNER)
def careful_row(ask: Any, rows: Any, row: int, width: int, points: Any, labels: Any, tile: Any, out: Any) -> Any:
    """Add c a of one row in float64; return (clipped, zeroed). The norm is that of the row scaled by a power of two."""
    at, stride = row * width, points.size // 2
    largest = 1.0 if ask.intercept else 0.0
    for j in range(width):
        size = abs(np.float64(rows[at + j]))
        if not (size < np.inf):
            return 0, 1
        largest = max(largest, size)
    exponent = math.frexp(largest)[1]
    scale = math.ldexp(1.0, -exponent) if exponent > -1000 else math.ldexp(1.0, 1000)
    score_0, score_1, square = 0.0, 0.0, 0.0
    for j in range(width):
        a = np.float64(rows[at + j])
        score_0 += a * np.float64(points[j])
        score_1 += a * np.float64(points[stride + j])
        square += (a * scale) * (a * scale)
    if ask.intercept:
        score_0, score_1, square = score_0 + points[width], score_1 + points[stride + width], square + scale * scale
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, math.sqrt(square) / scale, labels, row, width)
    if c != 0.0:
        for j in range(width):
            out[j] += c * np.float64(rows[at + j])
        if ask.intercept:
            out[width] += c
    return over, zeroed


@njit(**INNER)
def flush(ask: Any, width: int, total: Any, extra: Any, careful: bool, out: Any, k: int) -> None:
    """Add the rounded block sum to out[k], then clear the block."""
    steps = 1.0 / ask.grid if ask.grid > 0.0 else 0.0  # both are powers of two: exact
    if ask.grid > 0.0 and not careful:
        for j in range(width):
            out[k, j] += np.rint(np.float64(total[j]) * steps) * ask.grid
            total[j] = 0
    else:
        for j in range(width):
            v = extra[j] + total[j]
            out[k, j] += np.rint(v * steps) * ask.grid if ask.grid > 0.0 else v
            total[j], extra[j] = 0, 0.0
    if ask.intercept:
        last = extra[width]
        out[k, width] += np.rint(last * steps) * ask.grid if ask.grid > 0.0 else last
        extra[width] = 0.0


@njit(**OPTIONS)
def aligned_zeros(size: int, like: Any) -> Any:
    """Allocate zeros of the type of ``like`` from the start of a cache line: else every vector lies on two lines."""
    room = np.zeros(size + BYTES // like.itemsize, like.dtype)
    start = (-room.ctypes.data % BYTES) // like.itemsize
    return room[start : start + size]


class Memory(NamedTuple):
    """Working memory of one thread."""

    total: Any
    """Sum of the block so far, in the type of the rows."""
    extra: Any
    """Sum of the careful rows and the intercept, in float64."""
    tile: Any
    every: Any
    """Start of each row of a tile."""
    at: Any
    chosen: Any
    """Starts and factors of the added rows of a tile, if not all are added."""


@njit(forceinline=True, **INNER)
def tile_scores(
    rows: Any, first: int, count: int, width: int, points: Any, stride: int, scores: Any, ahead: int
) -> None:
    """Write <a, x_0>, <a, x_1>, ||a||^2 of ``count`` rows to the thirds of ``scores``.

    Prefetch as many from row ``ahead``.
    """
    scores[:] = 0.0
    for k in range(0, count, 4):
        b0, b1 = (first + k) * width, (first + min(k + 1, count - 1)) * width
        b2, b3 = (first + min(k + 2, count - 1)) * width, (first + min(k + 3, count - 1)) * width
        four_scores(rows, b0, b1, b2, b3, width, points, stride, scores, k, (ahead + k) * width)


@njit(**INNER)
def take(
    ask: Any,
    rows: Any,
    width: int,
    labels: Any,
    points: Any,
    edges: Any,
    counter: Any,
    unit: int,
    block: int,
    step: int,
    memory: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces, rows edges[i] .. edges[i + 1] with i from ``counter``, until none is left."""
    total, extra, tile, every, at, chosen = memory
    stride, alone = points.size // 2, step == 1
    away = step * max(1, (_AHEAD_ROWS if alone else _AHEAD_TILES) // (step * width * rows.itemsize))
    clipped, zeroed, careful = 0, 0, False
    piece = claim(counter)
    while piece < len(edges) - 1:
        first, end = edges[piece], edges[piece + 1]
        start = first
        while first < end:
            stop = min(start + block, end)
            count = min(step, stop - first)
            ahead = min(first + away, end - count)  # inside this piece: other pieces may belong to other threads
            if alone:
                row_scores(rows, first * width, width, points, stride, tile.scores, ahead * width)
            else:
                tile_scores(rows, first, count, width, points, stride, tile.scores, ahead)
            if ask.intercept:
                for k in range(count):
                    tile.scores[k] += points[width]
                    tile.scores[TILE + k] += points[stride + width]
                    tile.scores[2 * TILE + k] += 1.0
            used, over = factors(ask, tile, labels, first, count)
            clipped += over
            if used == count and (alone or count % 8 == 0):
                if alone:
                    add_row(rows, first * width, tile.factors[0], width, total, ahead * width)
                else:
                    for k in range(0, count, 8):
                        add_eight(rows, first * width, every, tile.factors, k, width, total, (ahead + k) * width)
                if ask.intercept:
                    for k in range(count):
                        extra[width] += tile.factors[k]
            else:
                used = 0
                for k in range(count):
                    if tile.state[k] == FAST:
                        at[used], chosen[used] = every[k], tile.factors[k]
                        used += 1
                        if ask.intercept:
                            extra[width] += tile.factors[k]
                    elif tile.state[k] == CAREFUL:
                        over, zero = careful_row(ask, rows, first + k, width, points, labels, tile, extra)
                        careful, clipped, zeroed = True, clipped + over, zeroed + zero
                if used:
                    for k in range(used, used + 8):  # fill the group of eight: 0 times the last row adds nothing
                        at[k], chosen[k] = at[used - 1], 0.0
                for k in range(0, used, 8):
                    add_eight(rows, first * width, at, chosen, k, width, total, (ahead + k) * width)
            first += count
            if first == stop:
                flush(ask, width, total, extra, careful, out, (start // unit) % len(out))
                start, careful = stop, False
        piece = claim(counter)
    tallies[0] += clipped
    tallies[1] += zeroed


@njit(**OPTIONS)
def dense(
    asked: Any,
    rows: Any,
    width: int,
    labels: Any,
    points: Any,
    edges: Any,
    counter: Any,
    unit: int,
    block: int,
    step: int,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces of rows (``take``) until none is left.

    Adds rounded block sums to ``out``: those of rows unit k .. unit (k + 1) to out[k], or all to its only row. Adds
    the number of clipped rows and the number of zeroed rows to ``tallies``.
    """
    memory = Memory(
        aligned_zeros(points.size // 2, rows),
        np.zeros(width + 1),
        new_tile(rows),
        np.arange(TILE) * width,
        np.zeros(TILE + 8, np.intp),
        np.zeros(TILE + 8, rows.dtype),
    )
    take(as_ask(asked), rows, width, labels, points, edges, counter, unit, block, step, memory, out, tallies)
