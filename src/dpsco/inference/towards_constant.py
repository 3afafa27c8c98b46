"""A regression shrunk towards a constant prediction, where privacy noise explains much of it: post-processing.

Let E be the gain of the released model over the constant with the same mean prediction, in the coordinates of u, where
the Hessian is about the identity, and N the part of the predicted excess risk that privacy noise adds. Then

    E = |u - u_constant|^2 / 2,       E[E] ~ (true gain) + N,       share = max(0, 1 - 2 N / E),

and the model is u_constant + share (u - u_constant). A share of S / (S + N) would be best for a true gain S: no worse
than the constant, nor than the model itself. E is one draw, and N leaves out what the noise of the survey does to the
start of the rounds; 2 in place of 1 makes up for both. With nothing to learn nearly all of the noise goes, and with
much to learn the share is 1.
"""

from __future__ import annotations

import numpy as np

from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.inference.evidence import Evidence
from dpsco.parallel import one_blas_thread
from dpsco.query import Array

__all__ = ["towards_constant"]

_SAFETY = 2.0
_ENOUGH = 0.9
"""Larger shares leave the model as it was released: its intervals then describe it."""


def towards_constant(evidence: Evidence) -> tuple[float, Array] | None:
    """Return the share that is kept, and the parameters of the plan's problem; None if the model stays as it is.

    Parameters
    ----------
    evidence : Evidence
        What a surveyed run of a loss with one score released.

    Guarantee: a function of released values and public numbers.
    """
    second, problem = evidence.second, evidence.plan.problem
    prediction = second.plan.prediction
    if prediction is None or not evidence.complete or isinstance(second.map, LowRankMap):
        return None
    with one_blas_thread(), np.errstate(all="ignore"):
        x = second.map.parameters(evidence.final)
        apart = x.copy()
        if problem.intercept:
            apart[-1] = -float(second.geometry.mean[:-1] @ x[:-1]) * problem.feature_norm
        gain = 0.5 * float(np.sum(second.map.start(apart) ** 2))
        share = max(0.0, 1.0 - _SAFETY * prediction.noise / gain) if gain > 0 else 0.0
        return None if share > _ENOUGH else (share, np.asarray(x - (1.0 - share) * apart))
