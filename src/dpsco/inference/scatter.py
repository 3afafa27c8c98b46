"""How much gradients of rows disagree: what the survey says, corrected by the scatter of the released rounds.

The gradients' covariance is G = kappa times the Hessian's form. For a likelihood that holds, kappa = 1. Otherwise

    squared    kappa = E[residual^2] = E[y^2] + <g_0, x>,   g_0 the gradient at zero     (normal equations)
    Huber      kappa = E[psi(residual)^2], halfway between a Gaussian and a Laplace residual with the level
               P(|residual| < width), off by a fifth,
               and with Gaussian scores the label's E[psi(y)^2] that the survey released
    others     unknown

In direction j of curvature h_j the rounds' means satisfy d_t - h_j v_t = -h_j x* + error_t: the same number in each
round, plus an error of covariance

    K_j = noise + diag_t(kappa g_j + square m_t s_j) / B + bend + what the survey's noise mixes in from other directions

with m_t = the scores' mean square between v_t and y_T, and the bend of a loss that is not quadratic on the way.
Contrasts of the rounds do not depend on x*. They are Gaussian, and linear in h_j, whose prior is
N(level g_j, doubt_j + (bent level g_j)^2). So their likelihood (restricted maximum likelihood) weighs kappa and the
level, and corrects h_j, in closed form: about p (T - 1) numbers. The mean of their squares over what is expected is
``misfit``; far above 1, the model of the rounds is wrong.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsco.algorithm_1 import eta
from dpsco.inference.curvature import Curvature
from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.problem import Huber, Logistic, Loss, Softmax, Squared
from dpsco.query import Array

__all__ = ["Directions", "Prior", "Scatter", "prior_of", "scatter"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(61)
_MASS = _MASS / np.sum(_MASS)
_MOSTLY_INSIDE = 6.0
"""Prior of a Huber level, as a power: its width is chosen so that most residuals are within it."""
_LIKELIHOOD_DOUBT, _HUBER_DOUBT, _LABEL_DOUBT = 0.1, 0.2, 0.015


class Prior(NamedTuple):
    """Values of kappa (k,) and log weights of each level and kappa (levels, k) or (1, k), before the rounds."""

    values: Array
    log_weights: Array


class Directions(NamedTuple):
    """The run in the eigenbasis of the Hessian's form, d directions."""

    sizes: Array
    """(d,): g_j, the form along each direction; the curvature is level * g_j."""
    spread: Array
    """(d,): s_j, the rows' second moment along each direction."""
    doubt: Array
    """(d,): variance that the survey's noise adds to the curvature; half the product of the roots between two."""
    means: Array
    """(T, d)."""
    points: Array
    """(T, d)."""
    asked: Array
    """(T, d)."""
    final: Array
    """(d,)."""
    form: Curvature

    @property
    def moved(self) -> Array:
        """(T,): the scores' mean square between v_t and y_T."""
        return np.asarray((self.asked - self.final) ** 2 @ self.spread)

    @property
    def bend(self) -> Array:
        """(T, d): squared error of d_t where the loss is not quadratic between x_t, x_{t-1} and y_T."""
        away = self.points - self.final
        share = np.minimum(0.5 * np.sqrt(away**2 @ self.spread) / self.form.score, 1.0)
        h = float(np.mean(self.form.levels)) * self.sizes
        energy = h * away**2
        weight = np.array([eta(t) for t in range(len(away))]) * share
        error = weight[:, None] ** 2 * h * (energy + np.mean(energy, axis=1, keepdims=True)) / 2
        return np.asarray(error + np.concatenate([np.zeros_like(error[:1]), error[:-1]]))

    @property
    def disagreement(self) -> Array:
        """(T,): how much rows disagree about the gradient at v_t beyond their disagreement at y_T."""
        return np.minimum(self.form.square * self.moved, self.form.slope**2)


class Scatter(NamedTuple):
    """Weights of each level (rows) and kappa (columns), and how well the rounds fit."""

    levels: Array
    kappas: Array
    weights: Array
    curvatures: Array
    """(levels, d): curvature of each direction at each level, the rounds' own evidence included."""
    variances: Array
    """(levels, d): variance of it."""
    misfit: float
    numbers: int
    """Contrasts behind ``misfit``."""


def prior_of(
    loss: Loss, survey: ReleasedSurvey, x: Array, slope: float, levels: Array, scores: tuple[float, float]
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
    """
    if isinstance(loss, (Logistic, Softmax)):
        steps = np.linspace(-3.0, 3.0, 25)
        return Prior(np.exp(_LIKELIHOOD_DOUBT * steps), -0.5 * steps[None] ** 2)
    health = survey.health
    if isinstance(loss, Huber):
        values = loss.width**2 * np.geomspace(0.01, 1.0, 40)
        residual = np.array([_deviation_behind(level) for level in levels])
        rate = -np.log(1 - np.minimum(levels, 0.9995))  # of a Laplace residual with that level
        heavy = 2 / rate**2 * (1 - np.exp(-rate) * (1 + rate))
        expected = np.sqrt(_clipped_square(residual, 0.0) * heavy)[:, None] * loss.width**2
        logs = -0.5 * (np.log(values / expected) / _HUBER_DOUBT) ** 2 + _MOSTLY_INSIDE * np.log(levels)[:, None]
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
        values = np.geomspace(max(guess - 4 * error, 0.02 * (abs(guess) + error)), max(guess, 0.0) + 4 * error, 60)
        return Prior(values, (-0.5 * ((values - guess) / error) ** 2 + np.log(values))[None])
    return Prior(np.geomspace(0.01, 1.0, 40), np.zeros((1, 40)))


def scatter(run: Directions, noise: Array, batch_size: int, prior: Prior) -> Scatter:
    """Weigh levels, kappas and the curvature of each direction by the likelihood of the rounds' contrasts.

    Cost: O(kappas d T^3 + levels kappas d).
    """
    rounds, count = run.means.shape
    contrasts = np.linalg.qr(np.column_stack([np.ones(rounds), np.eye(rounds)[:, 1:]]))[0][:, 1:].T
    apart = (run.asked - run.final).T
    means, asked = (contrasts @ run.means).T, (contrasts @ run.asked).T
    form, levels = run.form, run.form.levels
    lengths = np.sqrt(run.doubt)
    own = lengths[:, None] * apart
    others = own.T @ own - own[:, :, None] * own[:, None, :]
    known = noise + 0.5 * lengths[:, None, None] * others
    known = known + run.bend.T[:, :, None] * np.eye(rounds)
    ahead = np.outer(levels, run.sizes)
    doubts = run.doubt + (form.bent * ahead) ** 2
    shape = (len(levels), len(prior.values))
    logs, fits = np.empty(shape), np.empty(shape)
    curvatures, variances = np.empty((*shape, count)), np.empty((*shape, count))
    for k, kappa in enumerate(prior.values):
        rows = (kappa * run.sizes[:, None] + run.spread[:, None] * run.disagreement) / batch_size
        root = np.linalg.cholesky(contrasts @ (known + rows[:, :, None] * np.eye(rounds)) @ contrasts.T)
        white = np.linalg.solve(root, np.stack([means, asked], axis=-1))
        # The contrasts are Gaussian and linear in the curvature h: squares a - 2 h b + h^2 c.
        a, b, c = (np.sum(white[:, :, i] * white[:, :, j], axis=1) for i, j in ((0, 0), (0, 1), (1, 1)))
        spread = 1 + doubts * c
        curvatures[:, k] = (ahead + doubts * b) / spread
        variances[:, k] = doubts / spread
        squares = a - 2 * ahead * b + ahead**2 * c - (b - ahead * c) ** 2 * doubts / spread
        fits[:, k] = np.sum(squares, axis=1)
        volume = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)))
        logs[:, k] = -0.5 * fits[:, k] - volume - 0.5 * np.sum(np.log(spread), axis=1) + prior.log_weights[:, k]
    weights = np.exp(logs - np.max(logs))
    weights /= np.sum(weights)
    within = weights / np.maximum(np.sum(weights, axis=1, keepdims=True), 1e-300)
    return Scatter(
        levels,
        prior.values,
        weights,
        np.einsum("lk,lkd->ld", within, curvatures),
        np.einsum("lk,lkd->ld", within, variances),
        float(np.sum(weights * fits)) / means.size,
        means.size,
    )


def _clipped_square(deviations: Array, centre: float) -> Array:
    """E[min(r^2, 1)] for r ~ N(centre, deviation^2), of each deviation."""
    draws = centre + np.multiply.outer(deviations, _NODES)
    return np.asarray(np.minimum(draws**2, 1.0) @ _MASS)


def _deviation_behind(level: float) -> float:
    """Return the deviation of a Gaussian residual that is within 1 with probability ``level``."""
    return 1.0 / NormalDist().inv_cdf(0.5 + 0.5 * min(level, 0.9995))
