"""Dense rows clipped by their norm in a metric, ||P a||, in one read of memory and without P a.

With a = (s f, constant), s = 1 / max(F, ||f||), G the largest gain of P, and directions v_1 .. v_k of P'P with gains
g_1 .. g_k, each tile of rows takes its products with x_0, x_1 and one direction v, of gain g:

    c   = w_0 slope(<a, x_0>, y) + w_1 slope(<a, x_1>, y)
    N^2 = G^2 max(0, ||a||^2 - t^2) + g^2 t^2 + doubt ||a||^2,                                    t = <a, v>

Where |c| N is above the clip, and only there, N is made again with more directions: first with v_1 .. v_k,

    N^2 = sum_j g_j^2 t_j^2 + rest^2 max(0, ||a||^2 - sum_j t_j^2) + doubt ||a||^2,             t_j = <a, v_j>

then with all p of them. The least of these bounds cuts c to [-target / N, target / N], and

    sum <- fma(c s, f, sum)                                                     in float64, for a whole unit of rows.

The caller multiplies each unit's sum by P.

Guarantee
    * Each N >= ||P a||, so |c| ||P a|| <= clip in exact arithmetic, if ``rest`` bounds P outside v_1 .. v_k and each
      ``doubt`` is at least that of clipping/leading_directions.py for its number of directions. c s differs from its
      exact value by 2^-53: ``rounding`` counts it.
    * Which bounds a row takes depends on that row and public numbers alone.
    * The sum of m rows has an error of at most m gamma_(m + 1) of the largest |c| ||a||, in float64.
    * A row that does not count adds nothing, so its values cannot affect another row's bits.
Cost: rows are read from memory once, in any order; 5 p multiply-adds per row, k p more where the first bound is above
the clip, p^2 more where the second is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM
from dpsco.clipping.kernels.directions import GROUP, add_wide, along, four_firsts, project_eight
from dpsco.clipping.kernels.simd import add_totals, claim, lanes
from dpsco.clipping.kernels.slopes import CAREFUL, FAST, INNER, OPTIONS, TILE, as_ask, careful_factor, factors, new_tile

__all__ = ["mapped"]


class First(NamedTuple):
    """What the first bound needs. Public."""

    vectors: Any
    """x_0, x_1 and v, each of ``stride`` numbers in the type of the rows, filled up with zeros."""
    stride: int
    constant_0: float
    constant_1: float
    constant_v: float
    """The constant times the last entry of x_0, x_1 and v."""
    largest: float
    """G^2."""
    own: float
    """g^2."""
    doubt: float
    feature_norm: float
    square: float
    """The constant squared."""


class Metric(NamedTuple):
    """Directions of P as the kernel needs them; no columns if there are none. Public."""

    columns: Any
    """Blocks of ``lanes`` columns, each (p, lanes) in C order, in the type of the rows."""
    constant: Any
    """The constant times the last entry of each column."""
    gains: Any
    mask: Any
    """1 for directions, 0 for columns that fill a block."""
    rest: float
    """Square of a bound on the gains of P outside these directions."""
    doubt: float


class Memory(NamedTuple):
    """Working memory of one thread."""

    products: Any
    """<f, x_0>, <f, x_1>, ||f||^2, <f, v> per row of the tile."""
    scale: Any
    tile: Any
    labels: Any
    starts: Any
    """Start of each row of the tile, then of those of the next one: half of these are prefetched by products, half by
    sums. Rows may be anywhere, so no hardware prefetcher follows."""
    at: Any
    chosen: Any
    """Starts and factors of the rows that are added."""
    total: Any
    few: Any
    """Rows of the tile that may be clipped, their starts, products and sums."""
    few_starts: Any
    few_products: Any
    few_sums: Any


@njit(**INNER)
def first_bounds(ask: Any, first: Any, memory: Any, count: int) -> None:
    """Turn the products of a tile into its scores and N^2."""
    products, scale, scores = memory.products, memory.scale, memory.tile.scores
    for i in range(count):
        q = products[2 * TILE + i]
        s = 1.0 / max(first.feature_norm, math.sqrt(q))
        energy = s * s * q + first.square
        t = s * products[3 * TILE + i] + first.constant_v
        usable = (q >= ask.least_square) & (q <= ask.most_square)
        scale[i] = s
        scores[i] = s * products[i] + first.constant_0 if usable else np.nan
        scores[TILE + i] = s * products[TILE + i] + first.constant_1
        scores[2 * TILE + i] = first.largest * max(energy - t * t, 0.0) + first.own * (t * t) + first.doubt * energy


@njit(**INNER)
def cut_again(ask: Any, first: Any, metric: Any, rows: Any, width: int, memory: Any, count: int) -> int:
    """Cut the factors of clipped rows of a tile by the bound of ``metric``; return how many are no longer clipped."""
    tile, few, starts = memory.tile, memory.few, memory.few_starts
    sums, products = memory.few_sums, memory.few_products
    norm, c, squares, size = tile.slopes_1, tile.factors, tile.scores, len(metric.mask)
    kind, found, free = rows.dtype.type, 0, 0
    for i in range(count):
        if (norm[i] > ask.target) & (tile.state[i] == FAST):
            few[found] = i
            found += 1
    for k in range(0, found, GROUP):
        for r in range(GROUP):
            few[k + r] = few[min(k + r, found - 1)]
            starts[r] = memory.starts[few[k + r]]
        project_eight(rows, starts, width, metric.columns, products, size)
        sums[:] = 0.0
        for r in range(0, GROUP, 4):
            e0, r0 = along(products, r, size, metric, kind(memory.scale[few[k + r]]))
            e1, r1 = along(products, r + 1, size, metric, kind(memory.scale[few[k + r + 1]]))
            e2, r2 = along(products, r + 2, size, metric, kind(memory.scale[few[k + r + 2]]))
            e3, r3 = along(products, r + 3, size, metric, kind(memory.scale[few[k + r + 3]]))
            add_totals(sums, r, e0, e1, e2, e3)
            add_totals(sums, GROUP + r, r0, r1, r2, r3)
        for r in range(min(GROUP, found - k)):
            i = few[k + r]
            s = memory.scale[i]
            energy = s * s * memory.products[2 * TILE + i] + first.square
            square = sums[r] + metric.rest * max(energy - sums[GROUP + r], 0.0) + metric.doubt * energy
            before = squares[2 * TILE + i]
            if square < before:  # both are bounds
                length, whole = math.sqrt(square), norm[i] / math.sqrt(before)
                most = ask.target / length
                free += whole <= most
                c[i] = math.copysign(min(whole, most), c[i])
                squares[2 * TILE + i] = square
                norm[i] = whole * length if whole > most else 0.0  # 0: not clipped, for a bound that follows
    return free


@njit(**INNER)
def careful_row(
    ask: Any, first: Any, metric: Any, rows: Any, start: int, width: int, labels: Any, place: int, tile: Any, total: Any
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
    s = 1.0 / max(first.feature_norm, length) if length >= SMALLEST_NORM else 0.0
    lift = 1.0  # without a constant N is made of the row times a power of two, so that no square is subnormal
    if first.square == 0.0 and s * length >= SMALLEST_NORM:
        lift = math.ldexp(1.0, -math.frexp(s * length)[1])
    raised = s * lift
    energy = (raised * length) * (raised * length) + first.square
    score_0, score_1, inside, held = first.constant_0, first.constant_1, 0.0, 0.0
    for j in range(width):
        a = s * np.float64(rows[start + j])
        score_0 += a * np.float64(first.vectors[j])
        score_1 += a * np.float64(first.vectors[first.stride + j])
    step = lanes(rows)
    for m in range(len(metric.mask)):
        t, column = 0.0, (m // step) * width * step + m % step
        for j in range(width):
            t += (raised * np.float64(rows[start + j])) * np.float64(metric.columns[column + j * step])
        t += np.float64(metric.constant[m])
        if metric.mask[m] != 0.0:
            inside += (t * metric.gains[m]) * (t * metric.gains[m])
            held += t * t
    square = inside + metric.rest * max(energy - held, 0.0) + metric.doubt * energy
    c, over, zeroed = careful_factor(ask, tile, score_0, score_1, math.sqrt(square) / lift, labels, place, width)
    if c != 0.0:
        for j in range(width):
            total[j] += (c * s) * np.float64(rows[start + j])
        total[width] += c
    return over, zeroed


@njit(**INNER)
def take(
    ask: Any,
    first: Any,
    metric: Any,
    exact: Any,
    rows: Any,
    width: int,
    places: Any,
    labels: Any,
    edges: Any,
    counter: Any,
    unit: int,
    step: int,
    memory: Any,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces, places edges[i] .. edges[i + 1] with i from ``counter``, until none is left."""
    products, scale, tile, own, starts, at, chosen, total, _, _, _, _ = memory
    clipped, zeroed = 0, 0
    piece = claim(counter)
    while piece < len(edges) - 1:
        end = edges[piece + 1]
        for begin in range(edges[piece], end, unit):
            stop = min(begin + unit, end)
            total[:] = 0.0
            for at_row in range(begin, stop, step):
                count = min(step, stop - at_row)
                for i in range(2 * step):  # rows of the tile, then those of the next one
                    place = min(at_row + i, (stop if i < step else end) - 1)
                    starts[i] = (places[place] if len(places) else place) * width
                for i in range(count):
                    own[i] = labels[at_row + i]
                products[:] = 0.0
                for k in range(0, count, GROUP):  # the tile has room for whole groups
                    four_firsts(rows, starts, k, step, True, width, first.vectors, first.stride, products)
                    four_firsts(rows, starts, k + 4, 0, False, width, first.vectors, first.stride, products)
                first_bounds(ask, first, memory, count)
                _, over = factors(ask, tile, own, 0, count)
                if over and len(metric.mask):
                    over -= cut_again(ask, first, metric, rows, width, memory, count)
                if over and len(exact.mask):
                    over -= cut_again(ask, first, exact, rows, width, memory, count)
                clipped += over
                used = 0
                for i in range(count):
                    if tile.state[i] == FAST:
                        c = tile.factors[i]
                        at[used], chosen[used] = starts[i], c * scale[i]
                        total[width] += c
                        used += 1
                    elif tile.state[i] == CAREFUL:
                        over, zero = careful_row(ask, first, metric, rows, starts[i], width, own, i, tile, total)
                        clipped, zeroed = clipped + over, zeroed + zero
                if used:
                    for i in range(used, used + GROUP):  # fill the group: 0 times the last row adds nothing
                        at[i], chosen[i] = at[used - 1], 0.0
                for k in range(0, used, GROUP):
                    add_wide(rows, at, chosen, k, width, total, starts, step + k + 4)
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
    vectors: Any,
    numbers: Any,
    columns: Any,
    constant: Any,
    gains: Any,
    mask: Any,
    all_columns: Any,
    all_constant: Any,
    all_gains: Any,
    all_mask: Any,
    edges: Any,
    counter: Any,
    unit: int,
    step: int,
    out: Any,
    tallies: Any,
) -> None:
    """Process pieces of rows (``take``) until none is left, in tiles of ``step`` rows, a multiple of 8.

    Row i is rows[places[i] width : (places[i] + 1) width], or rows[i width : ..] if ``places`` is empty. Writes the
    sum of c (s f, 1) over places unit k .. unit (k + 1) to out[k]. Pieces begin at whole units. Adds the number of
    clipped rows and the number of zeroed rows to ``tallies``.
    """
    memory = Memory(
        np.zeros(4 * TILE),
        np.zeros(TILE),
        new_tile(np.zeros(0)),
        np.zeros(TILE),
        np.zeros(2 * TILE, np.intp),
        np.zeros(TILE + GROUP, np.intp),
        np.zeros(TILE + GROUP),
        np.zeros((width // 8 + 1) * 8),
        np.zeros(TILE + GROUP, np.intp),
        np.zeros(GROUP, np.intp),
        np.zeros(GROUP * max(len(mask), len(all_mask)), rows.dtype),
        np.zeros(2 * GROUP),
    )
    n = numbers
    first = First(vectors, vectors.size // 3, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    metric = Metric(columns, constant, gains, mask, n[8], n[9])
    exact = Metric(all_columns, all_constant, all_gains, all_mask, 0.0, n[10])
    ask, given = as_ask(asked), (rows, width, places, labels)
    take(ask, first, metric, exact, *given, edges, counter, unit, step, memory, out, tallies)
