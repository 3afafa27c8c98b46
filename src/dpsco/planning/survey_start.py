"""Where the rounds start, and what remains to be learned: read off the released survey.

The survey holds the mean gradient at zero and the mean moment S, so with released values alone:

    base       the model that predicts the class shares pbar: only the intercept, score log-odds of pbar
    gradient   at the base: g_b = g + (pbar - 1/2) E[a]          (softmax: g + E[a] (pbar - 1/K)')
    Newton     g_b = -c S (x* - base) for Gaussian rows (Stein), c = E[second derivative at the optimum's scores]
    shrinkage  per direction i of the cleaned moment, with h = c xi_i, prior variance tau_i = tau xi_i^-alpha and
               v_i = variance of the i-th entry of g_b,

        x_i = - h tau_i / (h^2 tau_i + v_i) g_i,        left over  tau_i v_i / (h^2 tau_i + v_i)

v counts privacy noise, sampling, and the noise of S times the length sum_i tau_i of x. tau and alpha in {0, 1/2, 1}
maximise the likelihood of the released gradient. c depends on the spread of the scores, which depends on x: a short
fixed point. ``left`` uses the largest signal that the release does not contradict: plans for too weak a signal stop
too early. ``leaning`` says how well each alpha explains the release.

Guarantee: post-processing of the released survey. Cost: a few p-vectors; no eigendecomposition beyond the geometry's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from dpsco.lazy import cached_property
from dpsco.planning.axes_geometry import size_groups
from dpsco.planning.geometry import Geometry, floored
from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.query import Array

__all__ = ["LEANINGS", "Start", "Wiener", "mean_curvature", "start_from"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(31)
_MASS = _MASS / np.sum(_MASS)
LEANINGS = (0.0, 0.5, 1.0)
"""alpha: the optimum's variance per direction is proportional to xi^-alpha."""
_SPREADS = np.geomspace(0.02, 30.0, 24)
"""Variances of scores at which signal and curvature are tabulated."""
_STEPS, _CLOSE = 60, 1e-7
"""Newton's steps for a mean score, at most, and the last one: it leaves less than half of its square, as the second
derivative of a mean of sigmoids is never larger than the first."""
_PROBIT = math.pi / 8
"""A sigmoid is about a Gaussian's distribution function of variance 1 / _PROBIT: a guess of the mean score."""
_TAUS = np.geomspace(1e-4, 1e4, 80)
_DOUBT = 1.5
"""Log likelihood that the planned signal may lose against the most likely one."""
_MOST_SPREAD = 9.0
"""Variance of the scores beyond which a start is not believed."""
_LEAST_SHARE = 1e-3
_ALIKE = 1.1
"""Sizes of columns within this factor are taken together."""
_USUAL_SHARE = 0.2
"""Deviation of a class share from equal ones, before the survey."""
_FEW = 2000
_TOGETHER = 1 << 16
"""Numbers of one array of chances: softmax has many draws."""


@dataclass(frozen=True, eq=False)
class Start:
    """The start and what is known of the way to the optimum, in the geometry's directions."""

    x: Array
    """(p,) or (p, K): where the rounds start."""
    curvature: float
    """c: mean second derivative in the score expected near the optimum."""
    base_curvature: float
    """The same at the base."""
    steepest: float
    """Largest mean second derivative that any group of rows can have: 1/4 for logistic."""
    gap: float
    """Loss of the base: no more can be gained per score."""
    moved: Array
    """(k,): mean over the outputs of the squared shift from the base, per direction."""
    left: Array
    """(k,): variance of the optimum about the start, per direction and output."""
    gradient_variance: Array
    """(k,): variance of a released gradient entry, without sampling."""
    gradient_square: Array | None = None
    """(k,): mean over the outputs of the squared released gradient at the base, per direction; None without one."""
    shares: Array = field(default_factory=lambda: np.zeros(0))
    """(K,): class shares, (1,) for two classes; empty for other losses."""
    leaning: Array = field(default_factory=lambda: np.full(len(LEANINGS), 1 / len(LEANINGS)))
    """Weights of ``LEANINGS``."""

    def curvature_at(self, signal: float) -> float:
        """Return the mean second derivative where Gaussian scores hold ``signal`` of the loss of the base."""
        if not len(self.shares):
            return self.curvature
        return float(np.interp(signal, *self._tabulated))

    def chances_at(self, signal: float) -> tuple[Array, Array] | None:
        """Return chances of the classes (rows, K) and weights of the rows at that signal; None for other losses."""
        if not len(self.shares):
            return None
        chances, weights = _chances(self.shares, np.asarray(np.interp(signal, self._tabulated[0], _SPREADS)))
        few = max(_FEW // chances.shape[1], 31)  # all the nodes of one score; of more, as many draws as are cheap
        return chances[:few], weights[:few] / np.sum(weights[:few])

    @cached_property
    def _tabulated(self) -> tuple[Array, Array]:
        few = range(0, len(_SPREADS), max(1, _TOGETHER // (_FEW * len(self.shares))))
        pieces = [_SPREADS[k : k + few.step] for k in few]
        signal, curvature = zip(*(_spread_scores(*_chances(self.shares, piece)) for piece in pieces), strict=True)
        return np.concatenate(signal), np.concatenate(curvature)


def start_from(
    released: ReleasedSurvey,
    shape: Geometry,
    *,
    loss: str,
    curvature: float = 1.0,
    gap: float = 0.5,
    doubted: bool = False,
) -> Start:
    """Return the start of a surveyed run.

    Parameters
    ----------
    released, shape
        The survey and its geometry.
    curvature, gap, loss
        "logistic", "softmax", or "other": then ``curvature`` (second derivative in the score) and ``gap`` (a sensible
        F(0) - F*) are used and the base is zero.
    doubted
        Whether class shares are drawn towards equal ones by as much as noise hides them: an objective is held at its
        start by a ridge, and a start far out is worse than none.
    """
    c, gradient = released.constant, released.gradient
    outputs = gradient.shape[1]
    noise = released.gradient_noise**2
    shift = np.zeros(outputs)
    base = np.zeros(outputs)
    steepest, at_base, most = curvature, curvature, 2 * gap
    shares = np.zeros(0)
    if loss in ("logistic", "softmax"):
        flat = 0.5 if loss == "logistic" else 1 / outputs
        shares = flat - gradient[-1] / c if c > 0 else np.full(outputs, flat)
        if doubted and c > 0:
            shares = flat + (shares - flat) / (1 + noise / (_USUAL_SHARE * c) ** 2)
        shares = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
        if loss == "softmax":
            shares = shares / np.sum(shares)
            base = np.log(shares) - np.mean(np.log(shares))
            at_base = float(1 - np.sum(shares**2)) / (outputs - 1)
            most = -float(np.sum(shares * np.log(shares))) / (outputs - 1)
            steepest = 1 / outputs
        else:
            base = np.log(shares / (1 - shares))
            at_base = float(shares[0] * (1 - shares[0]))
            most = -float(np.sum(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)))
            steepest = 0.25
        shift = shares - flat
    gradient = gradient + np.outer(shape.mean, shift)
    if c > 0 and loss in ("logistic", "softmax"):
        gradient[-1] = 0.0  # the base makes it so
        noise += float(np.mean(shift**2)) * released.moment_noise**2 / (2 * c * c)
    scaled = (shape.scale * gradient.T).T
    if shape.axes:
        known = {"base_curvature": at_base, "steepest": steepest, "gap": most, "shares": shares}
        return _start_of_axes(shape, released, scaled, noise, base, known)
    along = shape.directions.T @ scaled
    variance = np.full(len(shape.sizes), noise) * (float(np.mean(shape.scale**2)) if np.ptp(shape.scale) else 1.0)
    sizes = floored(shape)
    factor = at_base
    step, left, leaning = np.zeros_like(along), np.zeros(len(sizes)), np.ones(len(LEANINGS))
    shrink = Wiener(along, sizes, variance, shape.noise, released.rows) if len(sizes) else None
    for k in range(5):
        if shrink is None:
            break
        if k < 4:
            shrunk = shrink.step(factor)
        else:
            shrunk, left, leaning = shrink.known(factor)
        step = -shrunk[:, None] * along
        scores = (step.T * sizes) @ step
        scores *= min(1.0, _MOST_SPREAD / max(float(np.trace(scores)) / outputs, 1e-300))
        if loss in ("logistic", "softmax"):
            factor = 0.5 * (factor + mean_curvature(shares, base, scores))
    x = (shape.scale * (shape.directions @ step).T).T
    if c > 0:
        x[-1] += base / c
    moved, square = np.mean(step**2, axis=1), np.mean(along**2, axis=1)
    return Start(
        x[:, 0] if outputs == 1 else x, factor, at_base, steepest, most, moved, left, variance, square, shares, leaning
    )


def _start_of_axes(
    shape: Geometry, released: ReleasedSurvey, gradient: Array, noise: float, base: Array, known: dict[str, Any]
) -> Start:
    """Return a start at the base, for a survey that shows sizes of columns and no correlations.

    A Newton step on each column by itself would be too long where columns are correlated, and the survey does not tell.
    Coefficients are taken to be alike (alpha = 0): columns that the survey sees say nothing of the many that it does
    not, and these would have coefficients without bound otherwise. Columns of like sizes are taken together.
    """
    sizes, c = floored(shape), released.constant
    group, count = size_groups(sizes, _ALIKE)
    square = np.stack([np.bincount(group, one * one) / count for one in gradient.T], axis=1)
    mean = np.bincount(group, sizes) / count
    factor = known["base_curvature"]
    wiener = Wiener(np.sqrt(square), mean, np.full(len(count), noise), 0.0, released.rows, count.astype(float))
    x = np.zeros_like(gradient)
    if c > 0:
        x[-1] = base / c
    return Start(
        x=x[:, 0] if x.shape[1] == 1 else x,
        curvature=factor,
        moved=np.zeros(shape.p),
        left=wiener.expected(factor)[group],
        gradient_variance=np.full(shape.p, noise),
        gradient_square=np.mean(gradient**2, axis=1),
        leaning=np.array([float(alpha == 0.0) for alpha in LEANINGS]),
        **known,
    )


class Wiener:
    """The shrunk Newton step of one gradient, for any curvature factor: the formula of the module docstring.

    Parameters
    ----------
    along : array of shape (k, outputs)
        The gradient in the geometry's directions.
    sizes, variance : arrays of shape (k,)
        Of these directions.
    moment_noise, rows
        Of the survey.
    copies
        Directions that each entry stands for, where a spectrum was thinned; one number, or one per entry.
    """

    def __init__(
        self, along: Array, sizes: Array, variance: Array, moment_noise: float, rows: int, copies: float | Array = 1.0
    ) -> None:
        self._free = max(along.shape[1] - 1, 1)
        self._energy = np.maximum(np.sum(along**2, axis=1) / self._free, 1e-100)
        self._sizes, self._variance, self._noise, self._rows, self._copies = sizes, variance, moment_noise, rows, copies
        self._priors = sizes ** -np.array(LEANINGS)[:, None]  # (leanings, k)
        self._mean_energy, self._prior_sums = np.mean(self._energy), np.sum(self._priors, axis=1)
        self._shares = None if np.ndim(copies) == 0 else np.asarray(copies)
        if self._shares is not None:
            self._mean_energy = np.average(self._energy, weights=self._shares)
            self._prior_sums, self._copies = self._priors @ self._shares, 1.0

    def step(self, curvature: float) -> Array:
        """Return the shrunk step over minus the gradient, (k,)."""
        return self._fitted(curvature)[0]

    def known(self, curvature: float) -> tuple[Array, Array, Array]:
        """Return the step, the variance it may leave (k,), and weights of ``LEANINGS`` in proportion to likelihood."""
        step, h, taus, variance, fits = self._fitted(curvature)
        best = float(np.max(fits))
        reach = np.where(fits >= best - _DOUBT, taus * (self._priors @ self._sizes)[:, None], -math.inf)
        at = _largest(reach)
        far, doubt = taus[at] * self._priors[at[0]], variance(at)
        return step, far * doubt / (h**2 * far + doubt), _weights(fits)

    def expected(self, curvature: float) -> Array:
        """Return the most likely variance of the optimum (k,), without a step, if coefficients are alike."""
        _, _, taus, _, fits = self._fitted(curvature)
        alike = LEANINGS.index(0.0)
        return np.asarray(taus[alike, int(np.argmax(fits[alike]))] * self._priors[alike])

    def _fitted(self, curvature: float) -> tuple[Array, Array, Array, Callable[[tuple[int, int]], Array], Array]:
        """Return the step, h, and for each leaning and tau: tau, v (k,) by its place, and the log likelihood."""
        h = curvature * self._sizes
        square = h**2
        fixed = self._variance + h / self._rows
        own = square * self._priors
        mean = np.mean(own, axis=1) if self._shares is None else np.average(own, axis=1, weights=self._shares)
        taus = _TAUS * (self._mean_energy / mean)[:, None]
        lost = 0.5 * (curvature * self._noise) ** 2 * self._copies * self._prior_sums
        # h^2 tau + v, of shape (k, leanings, taus): sums over k are fast
        q = np.multiply((own + lost[:, None]).T[:, :, None], taus)
        q += fixed[:, None, None]
        terms = np.log(q)
        terms += np.divide(self._energy[:, None, None], q, out=q)
        summed = np.sum(terms, axis=0) if self._shares is None else np.tensordot(self._shares, terms, axes=1)
        fits = -0.5 * self._free * self._copies * summed
        fits[np.isnan(fits)] = -math.inf

        def variance(at: tuple[int, int]) -> Array:
            return np.asarray(fixed + lost[at[0]] * taus[at])

        at = _largest(fits)
        likely = taus[at] * self._priors[at[0]]
        return h * likely / (square * likely + variance(at)), h, taus, variance, fits


def _weights(fits: Array) -> Array:
    """Return the likelihood of each leaning at its best tau, as shares."""
    weights = np.exp(np.max(fits, axis=1) - float(np.max(fits)))
    return np.asarray(weights / np.sum(weights))


def _largest(values: Array) -> tuple[int, int]:
    row, column = np.unravel_index(int(np.argmax(values)), values.shape)
    return int(row), int(column)


def mean_curvature(shares: Array, base: Array, scores: Array) -> float:
    """E[sigma'] for scores of covariance ``scores`` whose mean keeps the class shares.

    For softmax, E[1 - sum q^2] / (K - 1).

    >>> round(mean_curvature(np.array([0.5]), np.array([0.0]), np.array([[0.0]])), 3)
    0.25
    """
    if len(shares) == 1:
        q = _kept_share(float(shares[0]), np.sqrt(scores[0, 0]))
        return float(_MASS @ (q * (1 - q)))
    values, vectors = np.linalg.eigh(scores)
    q = _softmax(base + _draws(len(shares)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T)
    return float(np.mean(1 - np.sum(q * q, axis=1))) / (len(shares) - 1)


def _kept_share(share: float, spreads: Array) -> Array:
    """Chances of label 1 at the nodes (.., nodes), for scores of each deviation whose mean keeps the share."""
    around = spreads[..., None] * _NODES
    if around.ndim == 1:
        return np.clip(_sigmoid(_mean_score(share, float(spreads), around) + around), 1e-12, 1 - 1e-12)
    low, high = np.full(spreads.shape, -40.0), np.full(spreads.shape, 40.0)
    middle = math.log(share / (1 - share)) * np.sqrt(1 + _PROBIT * spreads**2)
    for _ in range(_STEPS):  # Newton's steps, inside an interval that holds the mean
        q = _sigmoid(middle[..., None] + around)
        off, slope = q @ _MASS - share, (q * (1 - q)) @ _MASS
        low, high = np.where(off < 0, middle, low), np.where(off < 0, high, middle)
        aim = middle - off / np.maximum(slope, 1e-300)
        aim = np.where((low <= aim) & (aim <= high), aim, 0.5 * (low + high))
        middle, moved = aim, np.abs(aim - middle)
        if np.all(moved <= _CLOSE):
            break
    return np.clip(_sigmoid(middle[..., None] + around), 1e-12, 1 - 1e-12)


def _mean_score(share: float, spread: float, around: Array) -> float:
    """Return the mean of ``_kept_share`` for one deviation: the same steps to the bit, in plain floats."""
    low, high = -40.0, 40.0
    middle = math.log(share / (1 - share)) * math.sqrt(1 + _PROBIT * spread**2)
    for _ in range(_STEPS):
        q = _sigmoid(middle + around)
        off, slope = float(q @ _MASS) - share, float((q * (1 - q)) @ _MASS)
        low, high = (middle, high) if off < 0 else (low, middle)
        aim = middle - off / max(slope, 1e-300)
        aim = aim if low <= aim <= high else 0.5 * (low + high)
        middle, moved = aim, abs(aim - middle)
        if moved <= _CLOSE:
            break
    return middle


@lru_cache(maxsize=4)
def _draws(classes: int) -> Array:
    return np.random.default_rng(0).standard_normal((2000, classes))  # public: a quadrature, not noise


def _softmax(logits: Array) -> Array:
    q = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return np.asarray(np.maximum(q / np.sum(q, axis=-1, keepdims=True), 1e-300))


def _chances(shares: Array, spreads: Array) -> tuple[Array, Array]:
    """Chances of the classes (.., rows, K) where scores have these variances per output, and weights of the rows."""
    if len(shares) == 1:
        q = _kept_share(float(shares[0]), np.sqrt(spreads))
        return np.stack([q, 1 - q], axis=-1), _MASS
    q = _softmax(np.log(shares) + np.sqrt(spreads)[..., None, None] * _draws(len(shares)))
    return q, np.full(q.shape[-2], 1 / q.shape[-2])


def _spread_scores(chances: Array, weights: Array) -> tuple[Array, Array]:
    """Signal and curvature of rows with these chances, as ``Start`` counts them."""
    others = chances.shape[-1] - 1
    signal = np.sum(chances * np.log(chances), axis=-1) @ weights + _entropy(weights @ chances)
    curvature = (1 - np.sum(chances**2, axis=-1)) @ weights
    return signal / others, curvature / (2 if others == 1 else others)


def _entropy(shares: Array) -> Array:
    return -np.sum(shares * np.log(shares), axis=-1)


def _sigmoid(scores: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)))
