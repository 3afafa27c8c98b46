"""A bound on ||P a|| by few products: some directions of P'P one by one, all others by the largest gain among them.

    ||P a||^2 = sum_j g_j^2 t_j^2  <=  sum_{j in S} g_j^2 t_j^2 + R^2 (||a||^2 - sum_{j in S} t_j^2),     t_j = <a, v_j>

with R the largest gain outside of S. A map that whitens has its small gains where rows are long, one plateau of gains
where noise hides the rows, and a few large gains where rows do not vary (columns of levels that add up to 1). S holds
directions of both ends: few of them then bound the norm well enough to see that most rows are not clipped.
For those that may be, and where few directions do not do, all p of them are taken; then the bound is the norm itself.
The one direction of least gain bounds the norm well enough for half of the rows or more, unless a gain is large.

Guarantee
    Products in arithmetic of unit roundoff u are off by at most d ||a|| each, d = (p + 16) u, so k of them by eta ||a||
    in norm, eta = sqrt(k) d. With G the largest gain of all, and c = ``slack(u)``:
    * sqrt(sum g^2 t^2) is off by at most d ||a|| sqrt(sum g^2), by the triangle inequality, so by (x + y)^2 <=
      (1 + c) x^2 + (1 + 1/c) y^2 the sum is at most (1 + c) times the computed one and (1 + 1/c) d^2 ||a||^2 sum g^2.
      The computed squares are off by their (k/8 + 16) u-th part at most, which is less than c for k below 2^16: gains
      are enlarged by 1 + c, their squares by (1 + c)^2.
    * The sum of t^2 is off by at most 3 eta ||a||^2, ||a||^2 by its eta-th part: R^2 times 6 eta ||a||^2 is added.
    * Numbers of float32 below 2^-126 lose digits: each by at most 2^-149, where ||a||^2 is at least 2^-110 (kernels
      take shorter rows one by one, in float64). (p + 16) 2^-38 (1 + G)^2 ||a||^2 is added for it.
    * 2^-45 p G^2 ||a||^2 is added, far above the errors of the decomposition.
    With ``doubt`` ||a||^2, the sum of these, the bound holds for computed products. ``first_doubt`` is that of the
    first direction, where R = G and the products are not multiplied by enlarged gains: (G^2 - g^2) t^2 is subtracted.
    The sum of a unit of m rows is made in float64 and multiplied by P. Each |c| ||a|| is at most clip / g_1. The sum is
    off by at most m^2 2^-53 of that, its product by 2 (p + 16) sqrt(d) m 2^-53 of G times that: each row of P, or each
    of its d factors, rounds by (p + 16) 2^-53 of its norm; d is p for a matrix. c s rounds by 2^-53 too, which turns
    the contribution and counts as one more row. ``rounding`` is the sum of these, in clips. The contract of oracles
    allows 2^-11.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsco.query import Array

__all__ = ["CONDITION", "WIDEST", "Leading", "doubt", "first_doubt", "leading_directions", "rounding", "slack"]

CONDITION = 2.0**11
WIDEST = 1024
"""Columns of a map without factors; a wider one multiplies every unit of rows by a matrix that is larger than these."""
LOOSE = 0.5
"""Mean share by which the bound may exceed the squared norm of a row that is alike in all whitened directions."""
_FILL = 16
_MOST = 0.7
"""Share of the directions above which all are taken."""


class Leading(NamedTuple):
    """Directions whose products bound ||P a||. Public."""

    directions: Array
    """Those of S, of shape (p, k)."""
    gains: Array
    rest: float
    """R; 0 if all directions are there."""
    norm: float
    """Largest gain of P."""
    least: float
    """Least gain of P."""
    everything: tuple[Array, Array] | None = None
    """All directions and gains; None if ``rest`` is exact."""

    @property
    def first(self) -> tuple[Array, float]:
        """The direction of least gain among these, and its gain; 0 and any gain if there is none."""
        if not len(self.gains):
            return np.zeros(len(self.directions)), 0.0
        least = int(np.argmin(self.gains))
        return self.directions[:, least], float(self.gains[least])

    @property
    def usable(self) -> bool:
        """Whether sums in the rows' own coordinates are exact enough."""
        return self.least > 0.0 and self.norm < math.inf and self.norm <= CONDITION * self.least


def leading_directions(squares: Array, vectors: Array) -> Leading:
    """Return the least number of directions that bound ||P a|| closely.

    Parameters
    ----------
    squares, vectors : arrays of shape (p,) and (p, p)
        Eigenvalues, ascending and not negative, and eigenvectors of P'P, as ``numpy.linalg.eigh`` finds them.
    """
    p = len(squares)
    largest = float(squares[-1]) * (1 + p * 2.0**-45)
    norm, least = math.sqrt(largest), math.sqrt(float(squares[0]))
    low, high = _ends(squares)
    if low + high > _MOST * p:
        return Leading(vectors, np.sqrt(squares), 0.0, norm, least)
    chosen = np.r_[:low, p - high : p]
    rest = math.sqrt(float(squares[p - high - 1]) * (1 + p * 2.0**-45))
    return Leading(vectors[:, chosen], np.sqrt(squares[chosen]), rest, norm, least, (vectors, np.sqrt(squares)))


def _ends(squares: Array) -> tuple[int, int]:
    """Return how many directions of least and of largest gain to take: as few as bound the norm closely.

    A row that is alike in all whitened directions has t_j^2 = 1 / g_j^2: the bound exceeds its squared norm by the sum
    of R^2 / g_j^2 - 1 over the other directions.
    """
    p, found = len(squares), (len(squares), 0)
    with np.errstate(all="ignore"):
        inverse = np.append(np.cumsum(1.0 / squares[::-1])[::-1], 0.0)  # sums from j on
        for high in range(p):
            top = p - high
            excess = squares[top - 1] * (inverse[:top] - inverse[top]) - np.arange(top, 0, -1)
            low = max(1, int(np.sum(~(excess <= LOOSE * p))))
            if low + high < sum(found):
                found = low, high
            if sum(found) <= max(_FILL, high):  # more on this side cannot make it fewer
                break
    size = -(-sum(found) // _FILL) * _FILL  # fill the vectors
    return size - found[1], found[1]


def slack(roundoff: float) -> float:
    """Return the share by which gains are enlarged: it makes the bound hold for rounded products of large gains."""
    return 2.0**14 * roundoff


def doubt(leading: Leading, roundoff: float, gains: Array, rest: float) -> float:
    """Return what is added to the squared bound by directions of these ``gains``, per ||a||^2."""
    p, c = len(leading.directions), slack(roundoff)
    each = (p + 16) * roundoff
    inside = (1 + 1 / c) * each**2 * float(np.sum(gains**2))
    outside = 6 * math.sqrt(max(len(gains), 1)) * each * rest**2
    single = (p + 16) * 2.0**-38 * (1 + leading.norm) ** 2 if roundoff > 2.0**-53 else 0.0
    return inside + outside + single + p * 2.0**-45 * leading.norm**2


def first_doubt(leading: Leading, roundoff: float) -> float:
    """Return what is added to the squared bound by the first direction, per ||a||^2."""
    p = len(leading.directions)
    return (6 * (p + 16) * roundoff + p * 2.0**-45) * leading.norm**2


def rounding(leading: Leading, rows: int, factors: int) -> float:
    """Return how far the mapped sum of a unit of ``rows`` rows is off at most, in clips, for a map of ``factors``."""
    p = len(leading.directions)
    steps = (rows + 1) ** 2 + 2 * (p + 16) * math.sqrt(factors + 1) * rows
    return steps * 2.0**-53 * leading.norm / leading.least
