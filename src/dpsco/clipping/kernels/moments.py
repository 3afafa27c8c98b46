"""Second moments of dense rows: sum of a (a, s)' over a unit of rows, in one read of memory.

Blocks of 64 rows are scaled into a buffer, with the constant and the slopes s behind them. Each tile of 8 rows and one
vector of columns of the upper triangle is summed over the block in registers, then added to the total in float64.

Guarantee
    * ||f|| scale <= 1 in exact arithmetic for every row that is taken: norms are off by at most (width / 8 + 8) u, and
      ``margin`` is (width + 32) u, u the unit roundoff of the type of the rows.
    * The sum over a block is off by at most 64 gamma_65 of the largest ||a|| ||(a, s)||, in the Frobenius norm: 2.5e-4
      of it for float32. The float64 total adds less than 1e-12.
    * A row that does not count adds nothing, so its values cannot affect another row's bits.
Cost: p^2 / 2 multiply-adds per row in the type of the rows, 16 (float32) or 8 at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels.simd import (
    add_to_wide,
    add_totals,
    broadcast,
    fma,
    lanes,
    load,
    load_some,
    prefetch_second,
    spread,
    store,
)
from dpsco.clipping.kernels.slopes import INNER, OPTIONS

__all__ = ["BLOCK", "CAREFUL", "TAKEN", "moments"]

BLOCK = 64
_TILE = 8
_AHEAD = 8
TAKEN, CAREFUL = 1, 2
"""State of a row: in the sum; left out, because its square is out of range or not finite."""
_LEAST, _MOST = 2.0**-70, 2.0**100


@njit(forceinline=True, **INNER)
def square(rows: Any, start: int, width: int, four: Any) -> float:
    """Compute ||f||^2 of one row; four[0] is working memory."""
    step = lanes(rows)
    whole = width - width % step
    zero = spread(rows.dtype.type(0))
    p = q = zero
    j = 0
    while j + step < whole:
        a, b = load(rows, start + j), load(rows, start + j + step)
        p, q = fma(a, a, p), fma(b, b, q)
        j += 2 * step
    if j < whole:
        a = load(rows, start + j)
        p = fma(a, a, p)
    if whole < width:
        a = load_some(rows, start + whole, width - whole)
        q = fma(a, a, q)
    four[0] = four[1] = four[2] = four[3] = 0.0
    add_totals(four, 0, p, q, zero, zero)
    return four[0] + four[1]


@njit(forceinline=True, **INNER)
def scaled(rows: Any, start: int, width: int, scale: Any, out: Any, at: int) -> None:
    """Write scale times the row to out[at : at + width]."""
    step = lanes(rows)
    whole = width - width % step
    zero, s = spread(rows.dtype.type(0)), spread(scale)
    j = 0
    while j < whole:
        store(out, at + j, fma(load(rows, start + j), s, zero))
        j += step
    for i in range(whole, width):
        out[at + i] = rows[start + i] * scale


@njit(**INNER)
def add_block(block: Any, columns: int, size: int, total: Any) -> None:
    """Add the upper triangle of the block's products to ``total``, of ``size`` columns in whole vectors."""
    step = lanes(block)
    for i in range(0, columns, _TILE):
        for j in range(i - i % step, size, step):
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(block.dtype.type(0))
            at = 0
            for _ in range(BLOCK):
                b, w = at + i, load(block, at + j)
                s0, s1 = fma(broadcast(block, b), w, s0), fma(broadcast(block, b + 1), w, s1)
                s2, s3 = fma(broadcast(block, b + 2), w, s2), fma(broadcast(block, b + 3), w, s3)
                s4, s5 = fma(broadcast(block, b + 4), w, s4), fma(broadcast(block, b + 5), w, s5)
                s6, s7 = fma(broadcast(block, b + 6), w, s6), fma(broadcast(block, b + 7), w, s7)
                at += size
            o = i * size + j
            for s in (s0, s1, s2, s3, s4, s5, s6, s7):
                add_to_wide(total, o, s)
                o += size


@njit(**OPTIONS)
def moments(
    rows: Any,
    width: int,
    places: Any,
    start: int,
    stop: int,
    feature_norm: float,
    constant: float,
    weights: Any,
    slopes: Any,
    total: Any,
    lengths: Any,
    state: Any,
) -> None:
    """Add sum of a (a, s)' over rows start .. stop to ``total``, flat, of whole tiles and vectors.

    Row i is rows[places[i] width : ..], or rows[i width : ..] if ``places`` is empty. Row start + k is multiplied by
    weights[k], which is 0 if it does not count, and has the slopes slopes[k]. Writes ||f|| / feature_norm and the
    state of each row.
    """
    unit = 2.0**-24 if rows.itemsize == 4 else 2.0**-53
    margin = (width + 32) * unit
    columns, outputs = width + (constant > 0.0), slopes.shape[1]
    size = -(-(columns + outputs) // lanes(rows)) * lanes(rows)
    block, four = np.zeros(BLOCK * size, rows.dtype), np.zeros(4)
    kind = rows.dtype.type
    for first in range(start, stop, BLOCK):
        block[:] = 0
        for r in range(min(BLOCK, stop - first)):
            place = first + r
            at = (places[place] if len(places) else place) * width
            later = min(place + _AHEAD, stop - 1)
            later = (places[later] if len(places) else later) * width
            for j in range(0, width, lanes(rows)):
                prefetch_second(rows, later + j)
            k = place - start
            q = square(rows, at, width, four)
            fits = (q == 0.0) | ((q >= _LEAST) & (q <= _MOST))
            state[k] = TAKEN if fits else CAREFUL
            if not fits or weights[k] == 0.0:
                continue
            length = math.sqrt(q)
            lengths[k] = length / feature_norm
            scale = (1.0 - margin) / max(feature_norm * (1.0 - margin), length)
            scaled(rows, at, width, kind(scale * weights[k] * (1.0 - 2.0 * unit)), block, r * size)
            if constant > 0.0:
                block[r * size + width] = kind(constant * weights[k] * (1.0 - 2.0 * unit))
            for m in range(outputs):
                block[r * size + columns + m] = kind(slopes[k, m])
        add_block(block, columns, size, total)
