"""Kernels for softmax besides its matrix products: row norms, factors, and rounding of block sums into the total."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels.dense_rows import SEGMENT
from dpsco.clipping.kernels.simd import add_totals, fma, lanes, load, load_some, spread
from dpsco.clipping.kernels.slopes import CAREFUL, FAST, OPTIONS, as_ask, exponential

__all__ = ["class_factors", "settle", "squares"]


@njit(**OPTIONS)
def squares(rows: Any, width: int, out: Any) -> None:
    """Compute ||a||^2 of every row, with the same error as the dense kernel."""
    four, last, whole = np.zeros(4), len(out) - 1, width - width % lanes(rows)
    nothing = spread(np.zeros(1, rows.dtype)[0])
    for k in range(0, len(out), 4):
        b0, b1, b2, b3 = k * width, min(k + 1, last) * width, min(k + 2, last) * width, min(k + 3, last) * width
        four[:] = 0.0
        start = 0
        while True:
            stop = min(whole, start + SEGMENT)
            q0 = q1 = q2 = q3 = nothing
            j = start
            while j < stop:
                a, b, c, d = load(rows, b0 + j), load(rows, b1 + j), load(rows, b2 + j), load(rows, b3 + j)
                q0, q1, q2, q3 = fma(a, a, q0), fma(b, b, q1), fma(c, c, q2), fma(d, d, q3)
                j += lanes(rows)
            if stop == whole and whole < width:
                m = width - whole
                a, b = load_some(rows, b0 + j, m), load_some(rows, b1 + j, m)
                c, d = load_some(rows, b2 + j, m), load_some(rows, b3 + j, m)
                q0, q1, q2, q3 = fma(a, a, q0), fma(b, b, q1), fma(c, c, q2), fma(d, d, q3)
            add_totals(four, 0, q0, q1, q2, q3)
            start = stop
            if stop == whole:
                break
        out[k : k + 4] = four[: min(4, len(out) - k)]


@njit(**OPTIONS)
def class_factors(asked: Any, scores: Any, square: Any, labels: Any, shares: Any, c: Any, state: Any) -> int:
    """Compute the clipped c and the state (FAST or CAREFUL) of every row from both points' scores (rows x 2K).

    ``shares`` are the weights of the classes. Return the number of clipped rows.
    """
    ask, clipped = as_ask(asked), 0
    rows, k = c.shape
    shifted, wide = np.empty(2 * k * rows), np.empty(2 * k * rows)
    for i in range(rows):
        for start in (0, k):
            largest = np.float64(scores[i, start])
            for j in range(start + 1, start + k):
                largest = max(largest, np.float64(scores[i, j]))
            for j in range(start, start + k):
                shifted[2 * k * i + j] = scores[i, j] - largest
    for i in range(shifted.size):
        wide[i] = exponential(shifted[i])
    for i in range(rows):
        e, s = wide[2 * k * i : 2 * k * (i + 1)], shifted[2 * k * i : 2 * k * (i + 1)]
        finite, sum_0, sum_1 = True, 0.0, 0.0
        for j in range(k):
            sum_0, sum_1 = sum_0 + e[j], sum_1 + e[k + j]
            finite &= (abs(s[j]) < np.inf) & (abs(s[k + j]) < np.inf)
        fast = finite & (square[i] >= ask.least_square) & (square[i] <= ask.most_square)
        fast &= (labels[i] >= 0.0) & (labels[i] < k) & (labels[i] == math.floor(labels[i]))
        state[i] = CAREFUL
        if not fast:  # NaN fails every comparison
            c[i] = 0.0
            continue
        size, label = 0.0, int(labels[i])
        for j in range(k):
            hit = 1.0 if j == label else 0.0
            e[j] = shares[label] * (ask.weight_0 * (e[j] / sum_0 - hit) + ask.weight_1 * (e[k + j] / sum_1 - hit))
            size += e[j] * e[j]
        size = math.sqrt(size)
        norm = size * math.sqrt(square[i])
        over = norm > ask.target
        shrink = ask.target / norm if over else 1.0
        if (size == 0.0) | ((size * shrink >= 2.0**-60) & (norm <= 2.0**60)):
            state[i], clipped = FAST, clipped + over
        for j in range(k):
            c[i, j] = e[j] * shrink if state[i] == FAST else 0.0
    return clipped


@njit(**OPTIONS)
def settle(parts: Any, grid: float, total: Any) -> None:
    """Add the rounded parts to the first columns of ``total``."""
    steps = 1.0 / grid if grid > 0.0 else 0.0
    for part in range(parts.shape[0]):
        for i in range(parts.shape[1]):
            for j in range(parts.shape[2]):
                v = np.float64(parts[part, i, j])
                total[i, j] += np.rint(v * steps) * grid if grid > 0.0 else v
