"""Means, ratios and exponents with 95 % confidence intervals.

    mean       x̄ ± t s / sqrt(k)
    ratio      exp of the mean of log(a_i / b_i); runs i share their data, so the ratio is paired
    exponent   slope of log y on log n by least squares, ± t times its standard error

Guarantee
---------
Intervals have the stated level for normal errors (of the values, of the logarithms). One run, or two sizes, have no
interval: its ends are infinite. Counts that follow n^a exactly have an interval of width 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LEVEL", "Estimate", "exponent", "mean", "ratio"]

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float

    def to_list(self) -> list[float | None]:
        """Return [value, low, high] rounded to five digits, with None for an infinite end, as JSON requires."""
        return [float(f"{x:.5g}") if math.isfinite(x) else None for x in (self.value, self.low, self.high)]


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of independent runs.

    >>> mean([1.0, 2.0, 3.0]).value
    2.0
    """
    x = np.asarray(values, dtype=np.float64)
    centre = float(np.mean(x))
    if len(x) < 2 or not np.all(np.isfinite(x)):
        return Estimate(centre, -math.inf, math.inf)
    half = _t(len(x) - 1) * float(np.std(x, ddof=1)) / math.sqrt(len(x))
    return Estimate(centre, centre - half, centre + half)


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Return the geometric mean of ``above[i] / below[i]``."""
    logs = mean([math.log(a / b) for a, b in zip(above, below, strict=True)])
    return Estimate(*(_exp(x) for x in (logs.value, logs.low, logs.high)))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> Estimate:
    """Return the a of y = c n^a.

    >>> round(exponent([1, 4, 16, 64], [1, 2, 4, 8]).value, 6)
    0.5
    """
    x, y = np.log(np.asarray(sizes, dtype=np.float64)), np.log(np.asarray(values, dtype=np.float64))
    centred = x - np.mean(x)
    spread = float(centred @ centred)
    slope = float(centred @ y) / spread
    if len(x) < 3:
        return Estimate(slope, -math.inf, math.inf)
    rest = y - np.mean(y) - slope * centred
    half = _t(len(x) - 2) * math.sqrt(float(rest @ rest) / (len(x) - 2) / spread)
    return Estimate(slope, slope - half, slope + half)


def _t(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)
