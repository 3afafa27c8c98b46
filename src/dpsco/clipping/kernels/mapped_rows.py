"""Dense rows clipped by their norm in a metric, ||P a||, in one read of memory and without P a.

With a = (s f, constant), s = 1 / max(F, ||f||), and directions v_1 .. v_k of P'P with gains g_1 .. g_k, each tile of
rows takes its products with x_0, x_1, v_1 .. v_k (eight rows at a time, one column of a row against all directions):

    N^2 = sum_j g_j^2 t_j^2 + G^2 max(0, ||a||^2 - sum_j t_j^2) + doubt ||a||^2,      t_j = <a, v_j>
    c   = w_0 slope(<a, x_0>, y) + w_1 slope(<a, x_1>, y), cut to [-target / N, target / N]
    sum <- fma(c s, f, sum)                                                     in float64, for a whole unit of rows.

Where the clip binds with k < p directions, N is made again with all p of them before c is cut: few rows are clipped,
and these are clipped as if all directions had been there from the start. The caller multiplies each unit's sum by P.

Guarantee
    * N >= ||P a||, so |c| ||P a|| <= clip in exact arithmetic, if G bounds P outside v_1 .. v_k and ``doubt`` is at
      least that of clipping/leading_directions.py. c s differs from its exact value by 2^-53: ``rounding`` counts it.
    * The sum of m rows has an error of at most m gamma_(m + 1) of the largest |c| ||a||, in float64.
    * A row that does not count adds nothing, so its values cannot affect another row's bits.
Cost: rows are read from memory once, in any order; (k + 2) p multiply-adds per row, 3 p for norm and sum, p^2 for a row
that may be clipped.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM
from dpsco.clipping.kernels.simd import (
    add_totals,
    broadcast,
    claim,
    fma,
    lanes,
    load,
    load_some,
    load_wide,
    prefetch,
    spread,
    store,
)
from dpsco.clipping.kernels.slopes import CAREFUL, FAST, INNER, OPTIONS, TILE, as_ask, careful_factor, factors, new_tile

__all__ = ["mapped"]

GROUP = 8
_WIDE = 8
_AHEAD = 2
"""Groups of rows by which products prefetch: rows may be anywhere, so no hardware prefetcher follows."""


class Metric(NamedTuple):
    """P as the kernel needs it; columns 0 and 1 belong to the points and have gain and mask 0.

    The same with all directions, and ``rest`` 0, for rows that may be clipped; no columns if none are left out.
    """

    columns: Any
    """Blocks of ``lanes`` columns, each (p, lanes) in C order, in the type of the rows."""
    constant: Any
    """The constant times the last entry of each column."""
    gains: Any
    mask: Any
    """1 for directions, else 0."""
    rest: float
    """G^2."""
    doubt: float
    feature_norm: float
    square: float
    """The constant squared."""


class Memory(NamedTuple):
    """Working memory of one thread."""

    products: Any
    squares: Any
    """||f||^2, and the two sums of N^2, per row of the tile."""
    scale: Any
    tile: Any
    labels: Any
    starts: Any
    """Start of each row of the tile."""
    at: Any
    chosen: Any
    """Starts and factors of the rows that are added."""
    total: Any
    few: Any
    """Rows of the tile that may be clipped, their starts, products and sums."""
    few_starts: Any
    few_products: Any
    few_sums: Any


@njit(forceinline=True, **INNER)
def project_eight(rows: Any, starts: Any, k: int, later: int, width: int, columns: Any, out: Any, size: int) -> None:
    """Write the products of rows k .. k + 7 of a tile with every column; prefetch the rows ``later`` places on."""
    step = lanes(rows)
    b0, b1, b2, b3 = starts[k], starts[k + 1], starts[k + 2], starts[k + 3]
    b4, b5, b6, b7 = starts[k + 4], starts[k + 5], starts[k + 6], starts[k + 7]
    for block in range(0, size, step):
        at = block * width
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(rows.dtype.type(0))
        first = 0
        while first < width:
            if block == 0:
                for r in range(GROUP):
                    prefetch(rows, starts[k + later + r] + first)
            stop = min(width, first + step)
            j = first
            while j < stop:
                w = load(columns, at)
                s0, s1 = fma(broadcast(rows, b0 + j), w, s0), fma(broadcast(rows, b1 + j), w, s1)
                s2, s3 = fma(broadcast(rows, b2 + j), w, s2), fma(broadcast(rows, b3 + j), w, s3)
                s4, s5 = fma(broadcast(rows, b4 + j), w, s4), fma(broadcast(rows, b5 + j), w, s5)
                s6, s7 = fma(broadcast(rows, b6 + j), w, s6), fma(broadcast(rows, b7 + j), w, s7)
                at += step
                j += 1
            first = stop
        o = k * size + block
        for s in (s0, s1, s2, s3, s4, s5, s6, s7):
            store(out, o, s)
            o += size


@njit(forceinline=True, **INNER)
def four_squares(rows: Any, starts: Any, k: int, width: int, out: Any) -> None:
    """Add ||f||^2 of rows k .. k + 3 of a tile to out[k : k + 4]."""
    step = lanes(rows)
    whole = width - width % step
    b0, b1, b2, b3 = starts[k], starts[k + 1], starts[k + 2], starts[k + 3]
    q0 = q1 = q2 = q3 = spread(rows.dtype.type(0))
    j = 0
    while j < whole:
        a, b, c, d = load(rows, b0 + j), load(rows, b1 + j), load(rows, b2 + j), load(rows, b3 + j)
        q0, q1, q2, q3 = fma(a, a, q0), fma(b, b, q1), fma(c, c, q2), fma(d, d, q3)
        j += step
    if whole < width:
        m = width - whole
        a, b = load_some(rows, b0 + j, m), load_some(rows, b1 + j, m)
        c, d = load_some(rows, b2 + j, m), load_some(rows, b3 + j, m)
        q0, q1, q2, q3 = fma(a, a, q0), fma(b, b, q1), fma(c, c, q2), fma(d, d, q3)
    add_totals(out, k, q0, q1, q2, q3)


@njit(forceinline=True, **INNER)
def along(products: Any, row: int, size: int, metric: Any, scale: Any) -> Any:
    """Return the lane sums, not yet added up, of g_j^2 t_j^2 and of t_j^2 of one row of a tile."""
    step = lanes(products)
    zero = spread(products.dtype.type(0))
    s, e, r = spread(scale), zero, zero
    j = 0
    while j < size:
        t = fma(fma(s, load(products, row * size + j), load(metric.constant, j)), load(metric.mask, j), zero)
        y = fma(t, load(metric.gains, j), zero)
        e, r = fma(y, y, e), fma(t, t, r)
        j += step
    return e, r


@njit(**INNER)
def norms(ask: Any, metric: Any, memory: Any, count: int, size: int) -> None:
    """Turn products and squares of a tile into its scores and N^2."""
    products, squares, scale, scores = memory.products, memory.squares, memory.scale, memory.tile.scores
    kind = products.dtype.type
    for i in range(count):
        scale[i] = 1.0 / max(metric.feature_norm, math.sqrt(squares[i]))
    for i in range(0, count, 4):  # the tile has room for whole groups
        e0, r0 = along(products, i, size, metric, kind(scale[i]))
        e1, r1 = along(products, i + 1, size, metric, kind(scale[i + 1]))
        e2, r2 = along(products, i + 2, size, metric, kind(scale[i + 2]))
        e3, r3 = along(products, i + 3, size, metric, kind(scale[i + 3]))
        add_totals(squares, TILE + i, e0, e1, e2, e3)
        add_totals(squares, 2 * TILE + i, r0, r1, r2, r3)
    for i in range(count):
        q, s = squares[i], scale[i]
        energy = s * s * q + metric.square
        left = max(energy - squares[2 * TILE + i], 0.0)
        usable = (q >= ask.least_square) & (q <= ask.most_square)
        scores[i] = s * products[i * size] + metric.constant[0] if usable else np.nan
        scores[TILE + i] = s * products[i * size + 1] + metric.constant[1]
        scores[2 * TILE + i] = squares[TILE + i] + metric.rest * left + metric.doubt * energy


@njit(**INNER)
def cut_again(ask: Any, exact: Any, rows: Any, width: int, memory: Any, count: int) -> int:
    """Cut the factors of clipped rows of a tile by their norm along all directions; return how many are not clipped."""
    tile, few, starts = memory.tile, memory.few, memory.few_starts
    sums, products = memory.few_sums, memory.few_products
    norm, c, kind, size = tile.slopes_1, tile.factors, products.dtype.type, len(exact.mask)
    found, free = 0, 0
    for i in range(count):
        if (norm[i] > ask.target) & (tile.state[i] == FAST):
            few[found] = i
            found += 1
    for k in range(0, found, GROUP):
        for r in range(GROUP):
            few[k + r] = few[min(k + r, found - 1)]
            starts[r] = memory.starts[few[k + r]]
        project_eight(rows, starts, 0, 0, width, exact.columns, products, size)
        sums[:] = 0.0
        for r in range(0, GROUP, 4):
            e0, _ = along(products, r, size, exact, kind(memory.scale[few[k + r]]))
            e1, _ = along(products, r + 1, size, exact, kind(memory.scale[few[k + r + 1]]))
            e2, _ = along(products, r + 2, size, exact, kind(memory.scale[few[k + r + 2]]))
            e3, _ = along(products, r + 3, size, exact, kind(memory.scale[few[k + r + 3]]))
            add_totals(sums, r, e0, e1, e2, e3)
        for r in range(min(GROUP, found - k)):
            i = few[k + r]
            s = memory.scale[i]
            length = math.sqrt(sums[r] + exact.doubt * (s * s * memory.squares[i] + exact.square))
            before = math.sqrt(tile.scores[2 * TILE + i])
            if length < before:  # both are bounds
                whole, most = norm[i] / before, ask.target / length
                free += whole <= most
                c[i] = math.copysign(min(whole, most), c[i])
    return free


@njit(forceinline=True, **INNER)
def add_wide(rows: Any, at: Any, c: Any, k: int, width: int, total: Any) -> None:
    """Add c[k + r] f over the eight rows that start at at[k + r] to ``total``, in float64."""
    whole = width - width % _WIDE
    b0, b1, b2, b3, b4, b5, b6, b7 = at[k], at[k + 1], at[k + 2], at[k + 3], at[k + 4], at[k + 5], at[k + 6], at[k + 7]
    c0, c1, c2, c3 = spread(c[k]), spread(c[k + 1]), spread(c[k + 2]), spread(c[k + 3])
    c4, c5, c6, c7 = spread(c[k + 4]), spread(c[k + 5]), spread(c[k + 6]), spread(c[k + 7])
    zero, one = spread(0.0), spread(1.0)
    j = 0
    while j < whole:
        v, w = load(total, j), zero
        v, w = fma(c0, load_wide(rows, b0 + j), v), fma(c4, load_wide(rows, b4 + j), w)
        v, w = fma(c1, load_wide(rows, b1 + j), v), fma(c5, load_wide(rows, b5 + j), w)
        v, w = fma(c2, load_wide(rows, b2 + j), v), fma(c6, load_wide(rows, b6 + j), w)
        v, w = fma(c3, load_wide(rows, b3 + j), v), fma(c7, load_wide(rows, b7 + j), w)
        store(total, j, fma(w, one, v))
        j += _WIDE
    for r in range(k, k + GROUP):
        for i in range(whole, width):
            total[i] += c[r] * np.float64(rows[at[r] + i])


@njit(**INNER)
def careful_row(
    ask: Any, metric: Any, rows: Any, start: int, width: int, size: int, labels: Any, place: int, tile: Any, total: Any
) -> Any:
    """Add c a of one row in float64; return (clipped, zeroed). The norm is that of the row scaled by a power of two."""
    largest = 0.0
    for j in range(width):
        value = abs(np.float64(rows[start + j]))
        if not (value < np.inf):
            return 0, 1
        largest = max(largest, value)
    exponent = math.frexp(largest)[1]
    power = math.ldexp(1.0, -exponent) if exponent > -1000 else math.ldexp(1.0, 1000)
    square = 0.0
    for j in range(width):
        a = np.float64(rows[start + j]) * power
        square += a * a
    length = math.sqrt(square) / power
    if not (length <= LARGEST_NORM):
        return 0, 1
    s = 1.0 / max(metric.feature_norm, length) if length >= SMALLEST_NORM else 0.0
    energy = (s * length) * (s * length) + metric.square
    score_0, score_1, inside, held = 0.0, 0.0, 0.0, 0.0
    step = lanes(rows)
    for m in range(size):
        t, column = 0.0, (m // step) * width * step + m % step
        for j in range(width):
            t += (s * np.float64(rows[start + j])) * np.float64(metric.columns[column + j * step])
        t += np.float64(metric.constant[m])
        if m == 0:
            score_0 = t
        elif m == 1:
            score_1 = t
        elif metric.mask[m] != 0.0:
            inside += (t * metric.gains[m]) * (t * metric.gains[m])
            held += t * t
    square = inside + metric.rest * max(energy - held, 0.0) + metric.doubt * energy
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, math.sqrt(square), labels, place, width)
    if c != 0.0:
        for j in range(width):
            total[j] += (c * s) * np.float64(rows[start + j])
        total[width] += c
    return over, zeroed


@njit(**INNER)
def take(
    ask: Any,
    metric: Any,
    exact: Any,
    rows: Any,
    width: int,
    places: Any,
    labels: Any,
    edges: Any,
    counter: Any,
    unit: int,
    memory: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces, places edges[i] .. edges[i + 1] with i from ``counter``, until none is left."""
    products, squares, scale, tile, own, starts, at, chosen, total, _, _, _, _ = memory
    size = len(metric.mask)
    clipped, zeroed = 0, 0
    piece = claim(counter)
    while piece < len(edges) - 1:
        end = edges[piece + 1]
        for begin in range(edges[piece], end, unit):
            stop = min(begin + unit, end)
            total[:] = 0.0
            for first in range(begin, stop, TILE):
                count = min(TILE, stop - first)
                for i in range(TILE + _AHEAD * GROUP):  # rows of the tile, then rows to prefetch
                    place = min(first + i, (stop if i < TILE else end) - 1)
                    starts[i] = (places[place] if len(places) else place) * width
                for i in range(count):
                    own[i] = labels[first + i]
                squares[:] = 0.0
                for k in range(0, count, GROUP):
                    project_eight(rows, starts, k, _AHEAD * GROUP, width, metric.columns, products, size)
                    four_squares(rows, starts, k, width, squares)
                    four_squares(rows, starts, k + 4, width, squares)
                norms(ask, metric, memory, count, size)
                _, over = factors(ask, tile, own, 0, count)
                clipped += over
                if over and len(exact.mask):
                    clipped -= cut_again(ask, exact, rows, width, memory, count)
                used = 0
                for i in range(count):
                    if tile.state[i] == FAST:
                        c = tile.factors[i]
                        at[used], chosen[used] = starts[i], c * scale[i]
                        total[width] += c
                        used += 1
                    elif tile.state[i] == CAREFUL:
                        over, zero = careful_row(ask, metric, rows, starts[i], width, size, own, i, tile, total)
                        clipped, zeroed = clipped + over, zeroed + zero
                if used:
                    for i in range(used, used + GROUP):  # fill the group: 0 times the last row adds nothing
                        at[i], chosen[i] = at[used - 1], 0.0
                for k in range(0, used, GROUP):
                    add_wide(rows, at, chosen, k, width, total)
            for j in range(width + 1):
                out[begin // unit, j] = total[j]
        piece = claim(counter)
    tallies[0] += clipped
    tallies[1] += zeroed


@njit(**OPTIONS)
def mapped(
    asked: Any,
    rows: Any,
    width: int,
    places: Any,
    labels: Any,
    columns: Any,
    constant: Any,
    gains: Any,
    mask: Any,
    numbers: Any,
    all_columns: Any,
    all_constant: Any,
    all_gains: Any,
    all_mask: Any,
    edges: Any,
    counter: Any,
    unit: int,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces of rows (``take``) until none is left.

    Row i is rows[places[i] width : (places[i] + 1) width], or rows[i width : ..] if ``places`` is empty. Writes the
    sum of c (s f, 1) over places unit k .. unit (k + 1) to out[k]. Pieces begin at whole units. Adds the number of
    clipped rows and the number of zeroed rows to ``tallies``.
    """
    memory = Memory(
        np.zeros(TILE * len(mask), rows.dtype),
        np.zeros(3 * TILE),
        np.zeros(TILE),
        new_tile(np.zeros(0)),
        np.zeros(TILE),
        np.zeros(TILE + _AHEAD * GROUP, np.intp),
        np.zeros(TILE + GROUP, np.intp),
        np.zeros(TILE + GROUP),
        np.zeros((width // _WIDE + 1) * _WIDE),
        np.zeros(TILE + GROUP, np.intp),
        np.zeros(2 * GROUP, np.intp),
        np.zeros(GROUP * len(all_mask), rows.dtype),
        np.zeros(GROUP),
    )
    metric = Metric(columns, constant, gains, mask, numbers[0], numbers[1], numbers[3], numbers[4])
    exact = Metric(all_columns, all_constant, all_gains, all_mask, 0.0, numbers[2], numbers[3], numbers[4])
    take(as_ask(asked), metric, exact, rows, width, places, labels, edges, counter, unit, memory, out, tallies)
