"""A bound on ||P a|| by few products: the directions of P'P with the least gains one by one, all others by the largest.

    ||P a||^2 = sum_j g_j^2 t_j^2  <=  sum_{j <= k} g_j^2 t_j^2 + G^2 (||a||^2 - sum_{j <= k} t_j^2),     t_j = <a, v_j>

with g_1 <= g_2 <= .. and G the largest. A map that whitens has its small gains where rows are long, and one plateau of
gains where noise hides the rows: few directions then bound the norm well enough to see that most rows are not clipped.
For those that may be, and where few directions do not do, all p of them are taken; then the bound is the norm itself.
The one direction of least gain bounds the norm well enough for half of the rows or more (``first``).

Guarantee
    Products in arithmetic of unit roundoff u are off by at most (p + 16) u ||a|| each, so t by eta ||a|| in norm, eta =
    sqrt(k) (p + 16) u, and sums of their squares by 3 eta ||a||^2. ``doubt`` is 6 eta + 2^-45 p times the squared norm
    of P: the second term is far above the errors of the decomposition. With doubt ||a||^2 added the bound holds for
    computed products.
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

__all__ = ["CONDITION", "WIDEST", "Leading", "doubt", "leading_directions", "rounding"]

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
    """v_1 .. v_k, of shape (p, k)."""
    gains: Array
    rest: float
    """G; 0 if all directions are there."""
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
    with np.errstate(all="ignore"):
        excess = np.cumsum((largest / squares - 1.0)[::-1])[::-1]  # of directions j, j + 1, ..
    k = int(np.sum(~(excess <= LOOSE * p)))
    k = -(-max(k, 1) // _FILL) * _FILL  # fill the vectors
    norm, least = math.sqrt(largest), math.sqrt(float(squares[0]))
    if k > _MOST * p:
        return Leading(vectors, np.sqrt(squares), 0.0, norm, least)
    return Leading(vectors[:, :k], np.sqrt(squares[:k]), norm, norm, least, (vectors, np.sqrt(squares)))


def doubt(leading: Leading, roundoff: float, k: int) -> float:
    """Return what is added to the squared bound by ``k`` directions, per ||a||^2."""
    p = len(leading.directions)
    eta = math.sqrt(max(k, 1)) * (p + 16) * roundoff
    return (6 * eta + p * 2.0**-45) * max(leading.norm, leading.rest) ** 2


def rounding(leading: Leading, rows: int, factors: int) -> float:
    """Return how far the mapped sum of a unit of ``rows`` rows is off at most, in clips, for a map of ``factors``."""
    p = len(leading.directions)
    steps = (rows + 1) ** 2 + 2 * (p + 16) * math.sqrt(factors + 1) * rows
    return steps * 2.0**-53 * leading.norm / leading.least
