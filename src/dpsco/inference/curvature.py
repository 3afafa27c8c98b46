"""The Hessian at the released model, from the survey's moment and mean.

For a loss phi of the score, H = E[phi'' a a']. The survey holds S = E[a a'] and E[a]. Where phi'' depends on the
score, rows are taken as Gaussian given their score m, of mean m0 and variance s^2: a = E[a] + k (m - m0) + rest,
k = C x / s^2, C = S - E[a] E[a]'. With w_i = E[phi''(m) (m - m0)^i],

    H = w_0 (S - s^2 k k') + w_1 (E[a] k' + k E[a]') + w_2 k k'.

    logistic         as above                                 softmax   E[diag q - q q'] times S
    squared          S                                        Huber     c S, c = P(|residual| < width)
    smoothed hinge   c S / width

c is not released. It is one of ``levels``, and the scatter of the rounds decides (scatter.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsco.planning.geometry import Geometry, floored
from dpsco.problem import Huber, Logistic, Loss, SmoothedHinge, Softmax
from dpsco.query import Array

__all__ = ["Curvature", "curvature", "moment_of_rows"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(41)
_MASS = _MASS / np.sum(_MASS)
_DRAWS = 4000
_BENT = 0.1


class Curvature(NamedTuple):
    """The Hessian is level * outputs (x) rows, for a level of ``levels``."""

    rows: Array
    """(p, p), in units of the survey's rows."""
    outputs: Array
    """(K, K)."""
    square: float
    """E[phi''^2]: how much rows disagree about the gradient away from the minimiser."""
    levels: Array
    bent: float
    """Relative error that the form leaves along one direction: 0 where it is exact."""
    score: float
    """A change of the score that changes phi''; infinite if none does."""
    slope: float
    """Bound on |phi'|."""


def moment_of_rows(shape: Geometry) -> Array:
    """Return the cleaned second moment (p, p) that a geometry stands for."""
    inside = (shape.directions * (floored(shape) - shape.rest)) @ shape.directions.T
    scaled = inside + shape.rest * np.eye(shape.p)
    return np.asarray(scaled / np.outer(shape.scale, shape.scale))


def curvature(loss: Loss, moment: Array, mean: Array, x: Array) -> Curvature:
    """Return the Hessian's form at the model ``x`` of shape (K, p).

    Parameters
    ----------
    loss : Loss
        Any loss of linear models.
    moment, mean : arrays
        S and E[a], in units of the survey's rows.
    x : array of shape (K, p)
        The model in the same units.
    """
    one, always = np.ones((1, 1)), np.ones(1)
    if isinstance(loss, Logistic):
        rows, square = _logistic(moment, mean, x[0])
        return Curvature(rows, one, square, always, _BENT, 1.0, 0.5)
    if isinstance(loss, Softmax):
        outputs = _softmax(moment - np.outer(mean, mean), mean, x)
        square = float(np.trace(outputs @ outputs)) / max(len(x) - 1, 1)
        return Curvature(moment, outputs, square, always, _BENT, 1.0, 0.5)
    if isinstance(loss, Huber):
        return Curvature(moment, one, 0.8, np.linspace(0.2, 1.0, 17), _BENT, loss.width, loss.width)
    if isinstance(loss, SmoothedHinge):
        levels = np.linspace(0.1, 1.0, 19)
        return Curvature(moment / loss.width, one, 0.5 / loss.width**2, levels, _BENT, loss.width, 1.0)
    return Curvature(moment, one, 1.0, always, 0.0, math.inf, math.inf)


def _logistic(moment: Array, mean: Array, x: Array) -> tuple[Array, float]:
    """H and E[phi''^2]."""
    spread = moment - np.outer(mean, mean)
    variance = max(float(x @ spread @ x), 1e-12)
    deviations = math.sqrt(variance) * _NODES
    half = np.tanh(0.5 * (float(mean @ x) + deviations))
    second = 0.25 * (1 - half**2)
    w0, w1, w2 = (float(_MASS @ (second * deviations**power)) for power in range(3))
    k = spread @ x / variance
    rows = (
        w0 * (moment - variance * np.outer(k, k)) + w1 * (np.outer(mean, k) + np.outer(k, mean)) + w2 * np.outer(k, k)
    )
    return rows, float(_MASS @ second**2)


def _softmax(spread: Array, mean: Array, x: Array) -> Array:
    """E[diag q - q q'] over Gaussian scores."""
    values, vectors = np.linalg.eigh(x @ spread @ x.T)
    draws = np.random.default_rng(0).standard_normal((_DRAWS, len(x)))  # public: a quadrature, not noise
    scores = x @ mean + draws @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    q = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    q /= np.sum(q, axis=1, keepdims=True)
    return np.asarray(np.diag(np.mean(q, axis=0)) - q.T @ q / _DRAWS)
