"""How much gradients of rows disagree, and how curved the loss is, before the rounds are looked at.

The gradients' covariance is G = kappa times the Hessian's form, or times a measured shape. For a likelihood that
holds, kappa = 1. Otherwise

    squared    kappa = E[residual^2] = E[y^2] + <g_0, x>,   g_0 the gradient at zero     (normal equations)
    Huber      kappa = E[psi(residual)^2], halfway between a Gaussian and a Laplace residual with the level
               P(|residual| < width), off by a fifth,
               and with Gaussian scores the label's E[psi(y)^2] that the survey released
    others     unknown

Where squares of contributions were released (measured.py), they give kappa with an error, and the above is used beside
them.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.problem import Huber, Logistic, Loss, Softmax, Squared
from dpsco.query import Array

__all__ = ["Prior", "prior_of"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(61)
_MASS = _MASS / np.sum(_MASS)
_MOSTLY_INSIDE = 6.0
"""Prior of a Huber level, as a power: its width is chosen so that most residuals are within it."""
_LIKELIHOOD_DOUBT, _HUBER_DOUBT, _LABEL_DOUBT = 0.1, 0.2, 0.015


class Prior(NamedTuple):
    """Values of kappa (k,) and log weights of each level and kappa (levels, k) or (1, k), before the rounds."""

    values: Array
    log_weights: Array


def prior_of(
    loss: Loss,
    survey: ReleasedSurvey,
    x: Array,
    slope: float,
    levels: Array,
    scores: tuple[float, float],
    measured: tuple[float, float, float] | None = None,
) -> Prior:
    """Weigh kappa and the level before the rounds.

    Parameters
    ----------
    loss, survey
        The loss and the released survey.
    x : array of shape (K, p)
        The released model, in units of the survey's rows.
    slope : float
        G, the bound on the slope at zero.
    levels : array
        Levels of the Hessian that are weighed.
    scores : pair of float
        Mean and standard deviation of the scores.
    measured : three floats, optional
        kappa, its relative error and what rounds away from the minimiser add to it, where squares of contributions were
        released.
    """
    steps = np.linspace(-3.0, 3.0, 25)
    known, away = None, 0.0
    if measured is not None:
        known, away = measured[0] * np.exp(measured[1] * steps), measured[2]
    if isinstance(loss, (Logistic, Softmax)):
        if known is None:
            return Prior(np.exp(_LIKELIHOOD_DOUBT * steps), -0.5 * steps[None] ** 2)
        return Prior(
            known,
            -0.5 * steps[None] ** 2 - 0.5 * (np.log(np.maximum(known - away, 1e-9)) / _LIKELIHOOD_DOUBT)[None] ** 2,
        )
    health = survey.health
    if isinstance(loss, Huber):
        values = loss.width**2 * np.geomspace(0.01, 1.0, 40) if known is None else known
        residual = np.array([_deviation_behind(level) for level in levels])
        rate = -np.log(1 - np.minimum(levels, 0.9995))  # of a Laplace residual with that level
        heavy = 2 / rate**2 * (1 - np.exp(-rate) * (1 + rate))
        expected = np.sqrt(_clipped_square(residual, 0.0) * heavy)[:, None] * loss.width**2
        logs = (
            -0.5 * (np.log(np.maximum(values - away, 0.1 * values) / expected) / _HUBER_DOUBT) ** 2
            + _MOSTLY_INSIDE * np.log(levels)[:, None]
        )
        logs = logs if known is None else logs - 0.5 * steps**2
        if health.squared_slope is not None:
            centre, spread = (number / loss.width for number in scores)
            labels = _clipped_square(np.hypot(residual, spread), centre)
            error = math.hypot(_LABEL_DOUBT, health.noise)
            logs = logs - 0.5 * ((labels - health.squared_slope) / error)[:, None] ** 2
        return Prior(values, logs)
    if isinstance(loss, Squared) and health.squared_slope is not None:
        square = health.squared_slope * slope**2
        guess = square + float(np.sum(survey.gradient.T * x))
        error = math.hypot(health.noise * slope**2, survey.gradient_noise * float(np.linalg.norm(x)))
        error = math.hypot(error, math.sqrt(2.0 / survey.rows) * max(square, 0.0))
        if known is not None:
            return Prior(known, (-0.5 * ((known - away - guess) / error) ** 2 - 0.5 * steps**2)[None])
        values = np.geomspace(max(guess - 4 * error, 0.02 * (abs(guess) + error)), max(guess, 0.0) + 4 * error, 60)
        return Prior(values, (-0.5 * ((values - guess) / error) ** 2 + np.log(values))[None])
    if known is not None:
        return Prior(known, -0.5 * steps[None] ** 2)
    return Prior(np.geomspace(0.01, 1.0, 40), np.zeros((1, 40)))


def _clipped_square(deviations: Array, centre: float) -> Array:
    """E[min(r^2, 1)] for r ~ N(centre, deviation^2), of each deviation."""
    draws = centre + np.multiply.outer(deviations, _NODES)
    return np.asarray(np.minimum(draws**2, 1.0) @ _MASS)


def _deviation_behind(level: float) -> float:
    """Return the deviation of a Gaussian residual that is within 1 with probability ``level``."""
    return 1.0 / NormalDist().inv_cdf(0.5 + 0.5 * min(level, 0.9995))
