"""Products of dense rows that lie anywhere in memory: with three vectors, with many directions; and their weighted sum.

Guarantee: each row has lanes and totals of its own, so its products do not depend on the rows beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels.dense_rows import SEGMENT
from dpsco.clipping.kernels.simd import (
    add_totals,
    broadcast,
    fma,
    lanes,
    load,
    load_some,
    load_wide,
    prefetch_second,
    spread,
    store,
)
from dpsco.clipping.kernels.slopes import INNER, TILE

__all__ = ["GROUP", "add_wide", "along", "four_firsts", "project_eight"]

GROUP = 8
_WIDE = 8


@njit(forceinline=True, **INNER)
def four_firsts(
    rows: Any, starts: Any, k: int, later: int, ahead: bool, width: int, first: Any, stride: int, out: Any
) -> None:
    """Add <f, x_0>, <f, x_1>, ||f||^2, <f, v> of rows k .. k + 3 of a tile to out[k : k + 4] of each quarter of out.

    ``first`` holds x_0, x_1 and v, ``stride`` apart. Prefetches the rows ``later`` places on, if ``ahead``.
    """
    whole = width - width % lanes(rows)
    b0, b1, b2, b3 = starts[k], starts[k + 1], starts[k + 2], starts[k + 3]
    n0, n1, n2, n3 = starts[k + later], starts[k + later + 1], starts[k + later + 2], starts[k + later + 3]
    start = 0
    while True:
        stop = min(whole, start + SEGMENT)
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = spread(rows.dtype.type(0))
        q0 = q1 = q2 = q3 = d0 = d1 = d2 = d3 = s0
        j = start
        while j < stop:
            if ahead:  # a constant of the compiled code
                prefetch_second(rows, n0 + j)
                prefetch_second(rows, n1 + j)
                prefetch_second(rows, n2 + j)
                prefetch_second(rows, n3 + j)
            u, v, w = load(first, j), load(first, stride + j), load(first, 2 * stride + j)
            a = load(rows, b0 + j)
            s0, t0, q0, d0 = fma(a, u, s0), fma(a, v, t0), fma(a, a, q0), fma(a, w, d0)
            a = load(rows, b1 + j)
            s1, t1, q1, d1 = fma(a, u, s1), fma(a, v, t1), fma(a, a, q1), fma(a, w, d1)
            a = load(rows, b2 + j)
            s2, t2, q2, d2 = fma(a, u, s2), fma(a, v, t2), fma(a, a, q2), fma(a, w, d2)
            a = load(rows, b3 + j)
            s3, t3, q3, d3 = fma(a, u, s3), fma(a, v, t3), fma(a, a, q3), fma(a, w, d3)
            j += lanes(rows)
        if stop == whole and whole < width:
            m = width - whole
            u, v, w = load(first, j), load(first, stride + j), load(first, 2 * stride + j)
            a = load_some(rows, b0 + j, m)
            s0, t0, q0, d0 = fma(a, u, s0), fma(a, v, t0), fma(a, a, q0), fma(a, w, d0)
            a = load_some(rows, b1 + j, m)
            s1, t1, q1, d1 = fma(a, u, s1), fma(a, v, t1), fma(a, a, q1), fma(a, w, d1)
            a = load_some(rows, b2 + j, m)
            s2, t2, q2, d2 = fma(a, u, s2), fma(a, v, t2), fma(a, a, q2), fma(a, w, d2)
            a = load_some(rows, b3 + j, m)
            s3, t3, q3, d3 = fma(a, u, s3), fma(a, v, t3), fma(a, a, q3), fma(a, w, d3)
        add_totals(out, k, s0, s1, s2, s3)
        add_totals(out, TILE + k, t0, t1, t2, t3)
        add_totals(out, 2 * TILE + k, q0, q1, q2, q3)
        add_totals(out, 3 * TILE + k, d0, d1, d2, d3)
        start = stop
        if stop == whole:
            return


@njit(forceinline=True, **INNER)
def project_eight(rows: Any, starts: Any, width: int, columns: Any, out: Any, size: int) -> None:
    """Write the products of the eight rows that start at starts[0 : 8] with every column."""
    step = lanes(rows)
    b0, b1, b2, b3 = starts[0], starts[1], starts[2], starts[3]
    b4, b5, b6, b7 = starts[4], starts[5], starts[6], starts[7]
    for block in range(0, size, step):
        at = block * width
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(rows.dtype.type(0))
        for j in range(width):
            w = load(columns, at)
            s0, s1 = fma(broadcast(rows, b0 + j), w, s0), fma(broadcast(rows, b1 + j), w, s1)
            s2, s3 = fma(broadcast(rows, b2 + j), w, s2), fma(broadcast(rows, b3 + j), w, s3)
            s4, s5 = fma(broadcast(rows, b4 + j), w, s4), fma(broadcast(rows, b5 + j), w, s5)
            s6, s7 = fma(broadcast(rows, b6 + j), w, s6), fma(broadcast(rows, b7 + j), w, s7)
            at += step
        o = block
        for s in (s0, s1, s2, s3, s4, s5, s6, s7):
            store(out, o, s)
            o += size


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


@njit(forceinline=True, **INNER)
def add_wide(rows: Any, at: Any, c: Any, k: int, width: int, total: Any, starts: Any, later: int) -> None:
    """Add c[k + r] f over the eight rows that start at at[k + r] to ``total``, in float64.

    Prefetches the four rows that start at starts[later : later + 4].
    """
    lines = 4 * _WIDE // lanes(rows)  # of the four rows, per step
    whole = width - width % _WIDE
    b0, b1, b2, b3, b4, b5, b6, b7 = at[k], at[k + 1], at[k + 2], at[k + 3], at[k + 4], at[k + 5], at[k + 6], at[k + 7]
    c0, c1, c2, c3 = spread(c[k]), spread(c[k + 1]), spread(c[k + 2]), spread(c[k + 3])
    c4, c5, c6, c7 = spread(c[k + 4]), spread(c[k + 5]), spread(c[k + 6]), spread(c[k + 7])
    zero, one = spread(0.0), spread(1.0)
    j = line = 0
    while j < whole:
        for _ in range(lines):
            prefetch_second(rows, starts[later + (line & 3)] + (line >> 2) * lanes(rows))
            line += 1
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
