"""How much gradients of rows disagree: what the survey says, corrected by the scatter of the released rounds.

The gradients' covariance is G = kappa times the Hessian's form, or a measured shape (measured.py). Before the rounds,
prior.py weighs kappa and the level of the Hessian.

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

from typing import NamedTuple

import numpy as np

from dpsco.algorithm_1 import eta
from dpsco.inference.curvature import Curvature
from dpsco.inference.prior import Prior
from dpsco.query import Array

__all__ = ["Directions", "Scatter", "scatter"]


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
    scattering: Array
    """(d,): G along each direction, over kappa; ``sizes`` where its shape is not measured."""

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
        rows = (kappa * run.scattering[:, None] + run.spread[:, None] * run.disagreement) / batch_size
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
