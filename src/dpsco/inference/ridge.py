"""A ridge penalty on a released model: post-processing, so it costs no privacy and no noise.

With the Hessian H at the released model x (curvature.py), the penalised risk is F(z) + (penalty / 2) ||z||^2, and

    F(z) ~ F(x) + (z - x)' H (z - x) / 2,       z = (H + penalty D)^-1 H x,

D = 1 for coefficients and 0 for intercepts. Directions that the rows hardly show are shrunk most: there the noise is.
"""

from __future__ import annotations

import numpy as np

from dpsco.inference.curvature import curvature, moment_of_rows
from dpsco.inference.evidence import Evidence
from dpsco.parallel import one_blas_thread
from dpsco.query import Array

__all__ = ["ridge"]

_FLAT = 1e-9


def ridge(evidence: Evidence, penalty: float) -> Array:
    """Return the parameters of the plan's problem that minimise the penalised risk, to second order.

    Parameters
    ----------
    evidence : Evidence
        What a surveyed run released.
    penalty : float
        Weight of half the squared norm of the coefficients, in the units of the mean loss.

    Guarantee: a function of released values and public numbers.
    """
    second, problem = evidence.second, evidence.plan.problem
    shape = second.geometry
    matrix = np.column_stack([second.map.turned(column) for column in np.eye(shape.p)])  # a map need not hold it
    own = matrix * second.map.own_scale
    u = evidence.final.reshape(problem.loss.outputs, -1)
    with one_blas_thread(), np.errstate(all="ignore"):
        form = curvature(problem.loss, moment_of_rows(shape), shape.mean, u @ matrix)
        hessian = float(np.mean(form.levels)) * matrix @ form.rows @ matrix.T
        kept = np.ones(own.shape[1])
        kept[problem.dimension :] = 0.0
        shrink = penalty * (own * kept) @ own.T
        weights, classes = np.linalg.eigh(form.outputs)
        rows = []
        for weight, row in zip(np.maximum(weights, _FLAT * weights[-1]), classes.T @ u, strict=True):
            rows.append(np.linalg.solve(weight * hessian + shrink, weight * hessian @ row))
        return second.map.parameters((classes @ np.stack(rows)).ravel())
