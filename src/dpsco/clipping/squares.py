"""Squares of contributions, released beside their sum: how much gradients of rows disagree, coordinate by coordinate.

A row whose clipped contribution to a round is c gives, for public theta and R, and C = ``query.gradient_clip``,

    v(d) = ( c,   theta C (b o b) / R^2 ),        b = c min(1, R / ||c||),      (b o b)_j = b_j^2

The mean of c_j^2 is the variance of coordinate j of the gradients near the minimiser: the middle of the sandwich that
standard errors need (inference/measured.py). R, a few times the usual ||c||, is far below C for some losses, and keeps
the noise in the squares small beside them.

Statement
    ||v(d)|| <= C sqrt(1 + theta^2) = ``query.clip``
Proof
    ||c|| <= C and ||b|| <= R. ||b o b||^2 = sum_j b_j^4 <= (sum_j b_j^2)^2 <= R^4, so the second part is at most theta
    C long. The squares add up. Two rows of replace-one are at most two clips apart, as for every contribution.
    So the noise is that of a round with this clip and twice as many numbers, and nothing else of its proof changes.
Floating point
    b / R has an exact norm of at most 1 - 32 2^-53 (clipping/bound.py). The square and the product below are off by at
    most 4 2^-53 of the result, so the second part is within theta C too.
Cost
    p numbers more per round, and a few p operations more per row. theta = 0.2 raises the noise by 2 %.
"""

from __future__ import annotations

import numpy as np

from dpsco.clipping.bound import clip_scale, row_norms
from dpsco.query import Array, Query

__all__ = ["THETA", "squares_of"]

THETA = 0.2
"""Weight of the squares where a run asks for them."""


def squares_of(contributions: Array, query: Query) -> Array:
    """Return theta C (b o b) / R^2 for each row of clipped ``contributions``: SENSITIVE."""
    shares = contributions / query.radius
    scale, _ = clip_scale(row_norms(shares), 1.0, contributions.shape[1])
    shares *= scale[:, None]
    return np.asarray(query.squares * query.gradient_clip * (shares * shares))
