"""Populations that a plan should do well in, as far as public numbers tell.

A population is a spectrum of its Hessian, the place of the optimum, and how much the gradients of rows disagree there.
Public numbers bound them:

    trace of the Hessian       <= curvature feature_norm^2   curvature: second derivative in the score
    distance to the optimum    <= radius
    covariance of the gradients = disagreement Hessian       (disagreement 1 for a well-specified likelihood)

Spectra: isotropic rows; features fading as i^-1/2 and as i^-1; and the spiked one of tables with an intercept or of
non-negative features, whose first direction holds half of the trace. The optimum lies in a random direction, as far
away as the domain and a sensible F(0) - F* allow: a plan for too weak a signal stops too early, which costs far more
than a few rounds too many. In high dimension, where that is next to nothing, it leans towards large curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.problem import CustomLoss, Huber, Logistic, MulticlassHinge, Problem, SmoothedHinge, Softmax, Squared
from dpsco.query import Array

__all__ = ["LossScale", "Populations", "loss_scale", "populations"]

_GROUPS = 20
_STRONG = 20.0
"""A model whose scores vary by this many units is as strong as any."""
_LEAST = 0.1
"""Share of the largest F(0) - F* that makes training worth while."""


@dataclass(frozen=True)
class LossScale:
    """The sizes of a loss about its start, in the units of its score."""

    curvature: float
    """Mean second derivative in the score."""
    disagreement: float
    """Covariance of the gradients over the Hessian, near the optimum."""
    score: float
    """A score that is large."""
    gap: float
    """F(0) - F* when there is much to learn."""
    slope: float
    """Largest derivative in the score that is worth keeping whole: the clip, per unit of feature norm."""


def loss_scale(problem: Problem) -> LossScale:
    """Return the scale of a problem's loss."""
    loss, norm = problem.loss, problem.row_norm
    if isinstance(loss, Logistic):
        return LossScale(curvature=0.25, disagreement=1.0, score=1.0, gap=0.5 * math.log(2.0), slope=1.0)
    if isinstance(loss, Softmax):
        gap = 0.5 * math.log(loss.classes)
        return LossScale(curvature=1.0 / loss.classes, disagreement=1.0, score=1.0, gap=gap, slope=math.sqrt(2.0))
    if isinstance(loss, MulticlassHinge):
        start = loss.width * math.log(1 + (loss.classes - 1) * math.exp(min(1 / loss.width, 700.0)))
        return LossScale(1.0 / (loss.classes * loss.width), loss.width, 1.0, gap=0.5 * start, slope=math.sqrt(2.0))
    if isinstance(loss, SmoothedHinge):
        return _hinge_scale(loss.width)
    if isinstance(loss, Huber):
        square = loss.width**2
        return LossScale(curvature=1.0, disagreement=0.5 * square, score=loss.width, gap=0.5 * square, slope=loss.width)
    if isinstance(loss, Squared):
        bound = loss.label_bound
        return LossScale(1.0, 0.1 * bound**2, score=bound / 3, gap=0.1 * bound**2, slope=bound)
    if isinstance(loss, CustomLoss):
        lipschitz, smoothness = loss.given_lipschitz, loss.given_smoothness
        energy = lipschitz**2 / smoothness
        return LossScale(smoothness / norm**2, energy, lipschitz * norm / smoothness, energy / 2, lipschitz / norm)
    return LossScale(problem.smoothness / norm**2, 1.0, score=1.0, gap=0.5, slope=problem.lipschitz / norm)


def _hinge_scale(width: float) -> LossScale:
    """Return the scale of the smoothed hinge, which bends within ``width`` below a margin of 1 alone.

    The curvature is that of the chord from 0 to the optimum, the gradient at 0 over the distance; the disagreement is
    that at the optimum. Both are for Gaussian scores and logistic labels, scores spread by 1.25: within 15 % for widths
    from 0.1 to 4.
    """
    if width < 1:
        return LossScale(0.4 + 0.3 * width, 1.9 - width, score=1.0, gap=0.5, slope=1.0)
    return LossScale(min(0.7, 0.97 / width), 0.9 / width, score=1.0, gap=0.5, slope=1.0)


@dataclass(frozen=True)
class Populations:
    """W populations of G groups of directions each: arrays of shape (W, G)."""

    curvature: Array
    """h: curvature of the directions of a group."""
    count: Array
    """How many directions the group has."""
    distance: Array
    """Squared distance to the optimum within the group."""
    disagreement: float

    @property
    def gap(self) -> Array:
        """F(0) - F* of each population."""
        return np.asarray(0.5 * np.sum(self.curvature * self.distance, axis=1))


def populations(problem: Problem) -> Populations:
    """Return the populations of a problem, from its public numbers alone."""
    scale = loss_scale(problem)
    copies = max(1, problem.loss.outputs - 1)  # a direction of the features for each class but one
    ranks, counts = _ranks(problem.parameters // problem.loss.outputs)
    farthest = max(
        1e-6, min(problem.radius, problem.diameter, _STRONG * scale.score * math.sqrt(copies) / problem.row_norm)
    )
    rows = []
    for shares in _spectra(ranks, counts):
        h = scale.curvature * problem.row_norm**2 * shares
        anywhere, leaning = (farthest**2 * part / np.sum(part) for part in (counts, counts * np.sqrt(shares)))
        weak, strong = (0.5 * float(np.sum(h * part)) for part in (anywhere, leaning))
        lean = min(1.0, max(0.0, _LEAST * scale.gap - weak) / strong)
        distance = (anywhere + lean * leaning) * min(1.0, scale.gap / (weak + lean * strong))
        rows.append((h, counts * copies, distance))
    curvature, count, distance = (np.array(part) for part in zip(*rows, strict=True))
    return Populations(curvature, count, distance, scale.disagreement)


def _ranks(p: int) -> tuple[Array, Array]:
    """Ranks 1 .. p in groups of about equal ratio: the middle rank and the size of each."""
    edges = np.unique(np.round(np.geomspace(1.0, p + 1.0, min(p, _GROUPS) + 1)))
    return np.sqrt(edges[:-1] * (edges[1:] - 1)), np.diff(edges)


def _spectra(ranks: Array, counts: Array) -> list[Array]:
    """Share of the trace in each direction of a group, for every spectrum."""
    fading = [ranks**-power for power in (0.0, 1.0, 2.0)]
    shares = [part / np.sum(counts * part) for part in fading]
    if len(ranks) == 1:
        return shares[:1]
    rest = np.where(np.arange(len(ranks)) == 0, 0.0, ranks**-1.0)
    spiked = 0.5 * rest / np.sum(counts * rest)
    spiked[0] = 0.5 / counts[0]
    return [*shares, spiked]
