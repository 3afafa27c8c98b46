"""From scores to factors: the slope of each loss and the clip, for one tile of rows at a time.

    c = w_0 slope(<a, x_0>, y) + w_1 slope(<a, x_1>, y),   then   cut to [-target / ||a||, target / ||a||].

Guarantee: a factor marked ``FAST`` satisfies |c| ||a|| <= clip in exact arithmetic, if sums of squares have at most the
relative error that ``target`` allows for. Every other row takes the careful path of its kernel.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM
from dpsco.clipping.kernels.cache import can_cache, renew
from dpsco.clipping.kernels.simd import power_of_two

__all__ = [
    "CAREFUL",
    "FAST",
    "INNER",
    "KINDS",
    "LEAST_FACTOR",
    "OPTIONS",
    "SKIP",
    "TILE",
    "Ask",
    "Tile",
    "careful_factor",
    "factors",
    "new_tile",
    "slopes",
]

OPTIONS: dict[str, Any] = {"nogil": True, "cache": can_cache(), "error_model": "numpy"}

INNER: dict[str, Any] = {**OPTIONS, "_nrt": False}
"""For functions that allocate no arrays: numba then omits reference counting, which takes as long as some rows."""

LOGISTIC, SQUARED, HUBER, SMOOTHED_HINGE, CUSTOM = range(5)
KINDS = {"logistic": LOGISTIC, "squared": SQUARED, "huber": HUBER, "smoothed-hinge": SMOOTHED_HINGE, "custom": CUSTOM}
"""Kinds of loss as numbers, so that one compiled kernel serves all and stays in the cache."""

LEAST_FACTOR = 2.0**-900
"""Lower bound on factors of float64 rows on the fast path, far above subnormal numbers."""

TILE = 64
"""Largest number of rows whose scores become factors at once."""

SKIP, FAST, CAREFUL = range(3)
"""State of a row: nothing to add; add c a; process it alone, in float64."""


class Ask(NamedTuple):
    """A query in numbers. A query with one point has two equal points, the second with weight 0."""

    kind: int
    width: float
    """The parameter of the loss."""
    intercept: bool
    weight_0: float
    weight_1: float
    clip: float
    target: float
    """The clip, lowered by a margin for every rounding of the fast path."""
    grid: float
    least_square: float
    """Sums of squares from here ..."""
    most_square: float
    """... to here have neither under- nor overflowed, and have the error that ``target`` allows for."""
    least_factor: float
    """Smaller factors lose digits in the type of the rows."""
    single: bool
    """Whether scores are sums of float32."""
    share_0: float
    share_1: float
    """Public weights of the classes 0 and 1; 1 for every other loss."""


class Tile(NamedTuple):
    """Working memory for a tile of rows."""

    scores: Any
    """<a, x_0>, <a, x_1> and ||a||^2 per row: three times TILE numbers."""
    slopes_0: Any
    slopes_1: Any
    factors: Any
    """c per row, in the type of the rows."""
    state: Any


_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_LARGEST_FLOAT = 1.7976931348623157e308
_MOST_FACTOR = 2.0**100
_MOST_NORM = 2.0**60


@njit(**INNER)
def exponential(value: float) -> float:
    """Compute exp(value) to 2 ulp: 2^k times a Taylor polynomial on [-ln 2 / 2, ln 2 / 2]; finite for any value."""
    t = value if value < 700.0 else 700.0
    t = t if t > -700.0 else -700.0
    k = np.rint(t * _LOG2_E)
    r = (t - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    low = (1.0 + r) + r2 * (1 / 2 + r * (1 / 6))
    middle = (1 / 24 + r * (1 / 120)) + r2 * (1 / 720 + r * (1 / 5040))
    high = (1 / 40320 + r * (1 / 362880)) + r2 * (1 / 3628800 + r * (1 / 39916800) + r2 * (1 / 479001600))
    r4 = r2 * r2
    return (low + r4 * (middle + r4 * high)) * power_of_two(k)


@njit(**INNER)
def short_exponential(value: float) -> float:
    """Compute exp(value) to a relative error of 8e-9: enough for scores that are sums of float32."""
    t = value if value < 700.0 else 700.0
    t = t if t > -700.0 else -700.0
    k = np.rint(t * _LOG2_E)
    r = t - k * _LN2
    r2 = r * r
    low = (1.0 + r) + r2 * (1 / 2 + r * (1 / 6))
    high = (1 / 24 + r * (1 / 120)) + r2 * (1 / 720 + r * (1 / 5040))
    return (low + r2 * r2 * high) * power_of_two(k)


@njit(**INNER)
def slopes(ask: Any, scores: Any, at: int, labels: Any, first: int, count: int, out: Any) -> None:
    """Compute d loss / d score of ``count`` rows, with scores from ``at`` and labels from ``first``."""
    kind, width = ask.kind, ask.width
    if kind == LOGISTIC and ask.single:
        for i in range(count):
            out[i] = 1.0 / (1.0 + short_exponential(-scores[at + i])) - labels[first + i]
    elif kind == LOGISTIC:
        for i in range(count):
            out[i] = 1.0 / (1.0 + exponential(-scores[at + i])) - labels[first + i]
    elif kind == SQUARED:
        for i in range(count):
            out[i] = scores[at + i] - labels[first + i]
    elif kind == HUBER:
        for i in range(count):
            out[i] = min(max(scores[at + i] - labels[first + i], -width), width)
    else:
        for i in range(count):
            sign = 2.0 * labels[first + i] - 1.0
            out[i] = -sign * min(max((1.0 - sign * scores[at + i]) / width, 0.0), 1.0)


@njit(**INNER)
def allowed(ask: Any, label: float) -> bool:
    """Whether the loss accepts this label; branch-free, and False for NaN."""
    binary = (ask.kind == LOGISTIC) | (ask.kind == SMOOTHED_HINGE)
    largest = ask.width if ask.kind == SQUARED else _LARGEST_FLOAT
    return (abs(label) <= largest) & ((label * (label - 1.0) == 0.0) | (not binary))


@njit(**INNER)
def share(ask: Any, label: float) -> float:
    """Return the weight of the class of a row."""
    return ask.share_1 if label == 1.0 else ask.share_0


@njit(**INNER)
def as_ask(f: Any) -> Ask:
    """Build an ``Ask`` from an array of its fields: numba is slow to type a tuple on every call."""
    single = f[11] != 0.0
    return Ask(int(f[0]), f[1], f[2] != 0.0, f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10], single, f[12], f[13])


@njit(**OPTIONS)
def new_tile(like: Any) -> Tile:
    """Allocate working memory for rows whose factors have the type of ``like``."""
    return Tile(
        np.zeros(3 * TILE), np.zeros(TILE), np.zeros(TILE), np.zeros(TILE, like.dtype), np.zeros(TILE, np.uint8)
    )


@njit(**INNER)
def is_fast(ask: Any, score_0: float, score_1: float, square: float, label: float, norm: float, c: float) -> bool:
    """Whether every rounding is one that ``target`` allows for; NaN fails a comparison."""
    fast = (square >= ask.least_square) & (square <= ask.most_square) & allowed(ask, label)
    fast &= (abs(score_0) < np.inf) & (abs(score_1) < np.inf) & (norm <= _MOST_NORM)
    return fast & ((c == 0.0) | ((abs(c) >= ask.least_factor) & (abs(c) <= _MOST_FACTOR)))


@njit(**INNER)
def cut(ask: Any, slope_0: float, slope_1: float, label: float, square: float) -> tuple[float, float]:
    """Compute c of one row, and what |c| ||a|| was before the clip."""
    factor = (ask.weight_0 * slope_0 + ask.weight_1 * slope_1) * share(ask, label)
    length = math.sqrt(square)
    norm = abs(factor) * length
    most = ask.target / length
    factor = factor if factor < most else most
    return factor if factor > -most else -most, norm


@njit(**INNER)
def single_logistic(ask: Any, scores: Any, labels: Any, first: int, count: int, c: Any, norm: Any) -> None:
    """Compute c and its norm of ``count`` rows of float32 under the logistic loss.

    The same numbers as ``slopes`` and ``cut`` in turn, in one loop: narrow rows spend almost half of their time here.
    """
    for i in range(count):
        label = labels[first + i]
        slope_0 = 1.0 / (1.0 + short_exponential(-scores[i])) - label
        slope_1 = 1.0 / (1.0 + short_exponential(-scores[TILE + i])) - label
        c[i], norm[i] = cut(ask, slope_0, slope_1, label, scores[2 * TILE + i])


@njit(**INNER)
def factors(ask: Any, tile: Any, labels: Any, first: int, count: int) -> tuple[int, int]:
    """Compute c and state of ``count`` rows from the tile's scores; return the numbers of fast and of clipped rows."""
    scores, c, norm = tile.scores, tile.slopes_0, tile.slopes_1
    if ask.kind == LOGISTIC and ask.single:
        single_logistic(ask, scores, labels, first, count, c, norm)
    else:
        slopes(ask, scores, 0, labels, first, count, c)
        slopes(ask, scores, TILE, labels, first, count, norm)
        # Short loops over few arrays, which LLVM vectorises; the order of the tests does not matter.
        for i in range(count):
            c[i], norm[i] = cut(ask, c[i], norm[i], labels[first + i], scores[2 * TILE + i])
    used, clipped = 0, 0
    for i in range(count):
        square = scores[2 * TILE + i]
        fast = is_fast(ask, scores[i], scores[TILE + i], square, labels[first + i], norm[i], c[i])
        used += fast & (c[i] != 0.0)
        clipped += fast & (norm[i] > ask.target)
    for i in range(count):
        tile.factors[i], tile.state[i] = c[i], FAST
    if used < count:
        for i in range(count):
            square = scores[2 * TILE + i]
            fast = is_fast(ask, scores[i], scores[TILE + i], square, labels[first + i], norm[i], c[i])
            tile.state[i] = (FAST if c[i] != 0.0 else SKIP) if fast else CAREFUL
    return used, clipped


@njit(**INNER)
def careful_factor(
    ask: Any, tile: Any, score_0: float, score_1: float, length: float, labels: Any, row: int, width: int
) -> tuple[float, int, int]:
    """Compute c of one row in float64, whether it was clipped, and whether it counts as a zero row (as in bound.py).

    It overwrites the slopes of the tile.
    """
    if not (length <= LARGEST_NORM) or not allowed(ask, labels[row]):
        return 0.0, 0, 1
    if length < SMALLEST_NORM:
        return 0.0, 0, 0
    one, slope = tile.slopes_0, tile.slopes_1
    one[0] = score_0
    slopes(ask, one, 0, labels, row, 1, slope)
    c = ask.weight_0 * slope[0]
    if ask.weight_1 != 0.0:
        one[0] = score_1
        slopes(ask, one, 0, labels, row, 1, slope)
        c += ask.weight_1 * slope[0]
    c *= share(ask, labels[row])
    norm = abs(c) * length
    if not (norm <= LARGEST_NORM) or math.isnan(score_0) or math.isnan(score_1):
        return 0.0, 0, 1
    target = ask.clip * (1.0 - (width + 32) * 2.0**-53)
    if norm > target:
        return c * (target / norm), 1, 0
    return c, 0, 0


renew(factors.stats.cache_path)  # every kernel imports this file, and nothing is loaded before the first call
