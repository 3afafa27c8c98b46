"""The covariance of contributions, from their squares that the rounds released.

In coordinate j of u, the released mean of squares of round t (clipping/squares.py) is

    y_tj = variance of a contribution + (its mean)^2 + noise_tj

The mean is released too, and its square is subtracted. The final iterate weighs all rounds about alike, so the mean of
y_tj over the rounds is the scatter that sampling adds: that of gradients at the minimiser, and what rows disagree about
away from it. The noise is that of the sums, times R^2 / (theta C). With A the Hessian's form, the covariance is

    G = kappa D^1/2 A D^1/2,       kappa D_jj = G_jj / A_jj,

where the ratios are drawn together by as much as noise explains their spread (positive.py). Coordinates of u belong
to columns: the metric is a symmetric root, so a column whose noise differs stands out in its own coordinate. For
softmax the squares are summed over the classes.

Guarantee: post-processing of released values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsco.inference.curvature import Curvature
from dpsco.inference.evidence import Evidence
from dpsco.inference.positive import logs_of_positive
from dpsco.inference.scatter import Directions
from dpsco.query import Array

__all__ = ["Measured", "measure"]

_LEAST, _MOST = 0.2, 5.0
"""Ratios of D: no column's noise is believed to differ by more."""
_DOUBTED = 0.5
"""Relative error of kappa from which the squares are left aside."""
_LEAST_ERROR = 0.03
"""Relative error of kappa, at least: squares of long contributions are shortened."""


class Measured(NamedTuple):
    """G_jj / A_jj is kappa times ``ratios``."""

    kappa: float
    error: float
    """Relative standard deviation of kappa."""
    away: float
    """Part of kappa that comes from rounds away from the minimiser, as expected."""
    ratios: Array
    """(p,): D."""
    doubt: Array
    """(p,): variance that is left in the logarithm of a ratio."""


def measure(evidence: Evidence, run: Directions, form: Curvature, turned: Array, spread: Array) -> Measured | None:
    """Return the measured scatter of contributions; None if no squares were released, or noise hides them.

    Parameters
    ----------
    evidence, run, form
        The run, in its own coordinates and in those of the Hessian's form.
    turned, spread : arrays of shape (p, p)
        The form A and the rows' second moment, in the coordinates of u.
    """
    if evidence.squares is None:
        return None
    rounds, outputs = len(evidence.squares), len(form.outputs)
    means = np.sum(evidence.means**2, axis=1) - outputs * np.diag(evidence.noise)[:, None]
    seen = np.mean(np.sum(evidence.squares, axis=1) - means, axis=0)
    sizes = float(np.trace(form.outputs)) * np.diag(turned)
    found = seen / sizes
    noise = outputs * float(np.sum(evidence.squares_noise)) / rounds**2
    variances = (noise + 4 * np.maximum(seen, 0.0) ** 2 / (rounds * evidence.batch_size)) / sizes**2
    kappa = float(np.sum(found / variances) / np.sum(1 / variances))
    error = 1 / math.sqrt(float(np.sum(1 / variances)))
    if not kappa > 0 or not error < _DOUBTED * kappa:
        return None
    logs, doubt = logs_of_positive(found, np.sqrt(variances))
    ratios = np.exp(logs + 0.5 * doubt) / kappa
    extra = max(outputs - 1, 1) * float(np.mean(run.disagreement)) * float(np.trace(spread)) / float(np.sum(sizes))
    return Measured(
        kappa, max(error / kappa, _LEAST_ERROR), min(extra, 0.5 * kappa), np.clip(ratios, _LEAST, _MOST), doubt
    )
