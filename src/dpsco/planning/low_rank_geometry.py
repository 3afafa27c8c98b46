"""The geometry that a low-rank survey shows: leading directions of S from Y = S Omega + N, all others alike.

    Y = U diag(sigma) W'        N has singular values up to about e = s (sqrt p + sqrt l)
    span                        u_i with sigma_i > e, at most half the columns of Omega
    sizes, directions           of U'S U, which solves (U'S U) (U'Omega) = U'Y by least squares over the l columns
    rest                        what is left of the mean ||a||^2, spread over the other directions; none of them is
                                larger than e, or it would have been seen

Guarantee: post-processing of the released survey. Cost: one singular value decomposition of p times l numbers.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.clipping.sketch import sketch_matrix
from dpsco.planning.geometry import Geometry
from dpsco.planning.released_survey import ReleasedSurvey

__all__ = ["low_rank_geometry"]

_LEAST_SEEN = 0.2
"""Directions of the span that the sketch shortens to less than this share of the longest are not solved for."""
_LEAST_REST = 0.02
"""Share of the mean ||a||^2 that the other directions hold at least."""


def low_rank_geometry(released: ReleasedSurvey) -> Geometry:
    """Return the geometry of a survey of kind "low-rank"."""
    y, s, c = released.moment, released.moment_noise, released.constant
    p, rank = y.shape
    u, sigma, _ = np.linalg.svd(y, full_matrices=False)
    edge = s * (math.sqrt(p) + math.sqrt(rank))
    u = u[:, : min(int(np.sum(sigma > edge)), rank // 2)]
    seen = u.T @ sketch_matrix(p)
    inside = u.T @ y @ np.linalg.pinv(seen, rcond=_LEAST_SEEN)
    sizes, turn = np.linalg.eigh((inside + inside.T) / 2)
    energy = max(released.energy, 0.05)
    floor = max(edge, energy / p)
    kept = (sizes > floor) & (sizes < energy)
    u, sizes = (u @ turn)[:, kept], sizes[kept]
    total = float(np.sum(sizes))
    if total > (1 - _LEAST_REST) * energy:
        sizes = sizes * (1 - _LEAST_REST) * energy / total
    others = p - len(sizes)
    rest = (energy - float(np.sum(sizes))) / max(others, 1)
    mean = np.zeros(p)
    if c > 0:
        mean = u @ (sizes * u[-1]) / c
        mean[-1] = c
    hidden = max(floor, rest)
    return Geometry(np.ones(p), u, sizes, rest if others else 0.0, sizes, s, edge, mean, hidden=hidden)
