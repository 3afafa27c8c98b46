"""Losses of classifiers. Classes may have public weights; the formulas are those without them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, positive, positive_integer
from dpsco.problem.loss import Labels, Loss
from dpsco.query import Array

__all__ = ["Logistic", "MulticlassHinge", "SmoothedHinge", "Softmax"]


@dataclass(frozen=True, kw_only=True)
class _OfClasses(Loss):
    """A loss of labels 0 .. K - 1. Weights are at most 1, so the constants hold with and without them."""

    weights: tuple[float, ...] = field(default=(), repr=False)

    @property
    def class_count(self) -> int:
        """Number of labels."""
        return 2

    def __post_init__(self) -> None:
        weights = tuple(float(positive("weights", each, "They are public.")) for each in self.weights)
        if weights and (len(weights) != self.class_count or max(weights) > 1):
            raise InvalidArgument(
                f"Expected weights to be empty or {self.class_count} numbers in (0, 1], one per class."
            )
        object.__setattr__(self, "weights", weights)

    def class_weights(self, labels: Labels) -> Array | None:
        return np.array(self.weights)[labels.astype(np.int64)] if self.weights else None

    def unweighted(self) -> Self:
        return replace(self, weights=()) if self.weights else self

    def _weighted(self, values: Array, labels: Labels) -> Array:
        """Return values of rows (their first axis), each times the weight of its class."""
        weights = self.class_weights(labels)
        return values if weights is None else np.asarray(values * weights.reshape(-1, *[1] * (values.ndim - 1)))


class _Binary(_OfClasses):
    labels_are = "0 or 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        return np.asarray((labels == 0) | (labels == 1))

    def predict(self, scores: Array) -> NDArray[Any]:
        return (scores > 0).astype(np.int64)


@dataclass(frozen=True)
class Logistic(_Binary):
    """Logistic loss log(1 + exp(-s m)) with s = 2y - 1: L = feature_norm, M = feature_norm^2 / 4.

    Labels are 0 or 1.

    Parameters
    ----------
    weights : tuple of float
        Public weights of the two classes, at most 1: the loss of a row is multiplied by that of its class.
    """

    kind: ClassVar[str] = "logistic"

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = feature_norm."""
        return feature_norm

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2 / 4."""
        return feature_norm**2 / 4

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute log(1 + exp(-s m))."""
        return self._weighted(np.logaddexp(0.0, np.where(labels == 1, -scores, scores)), labels)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute sigmoid(m) - y."""
        return self._weighted(_sigmoid(scores) - labels, labels)

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute sigmoid(m) (1 - sigmoid(m))."""
        return self._weighted(np.asarray(0.25 * (1.0 - np.tanh(0.5 * scores) ** 2)), labels)


@dataclass(frozen=True)
class SmoothedHinge(_Binary):
    """Hinge loss with a parabola of ``width`` in place of its corner: L = norm, M = norm^2 / width.

    Labels are 0 or 1.

    Parameters
    ----------
    width : float
        Length of the margin interval [1 - width, 1] on which the loss is quadratic.
    weights : tuple of float
        As in ``Logistic``.
    """

    kind: ClassVar[str] = "smoothed-hinge"
    width: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive("width", self.width, "It is the width of the quadratic part."))

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = feature_norm."""
        return feature_norm

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2 / width."""
        return feature_norm**2 / self.width

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute u^2 / (2 width) if u <= width, else u - width / 2, with u = max(1 - s m, 0) and s = 2y - 1."""
        short = np.maximum(1.0 - _signed(labels) * scores, 0.0)
        inside = np.minimum(short, self.width)
        return self._weighted(np.asarray(inside * (short - inside / 2) / self.width), labels)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute -s min(u / width, 1)."""
        sign = _signed(labels)
        return self._weighted(np.asarray(-sign * np.clip((1.0 - sign * scores) / self.width, 0.0, 1.0)), labels)

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Return 1 / width if 0 < 1 - s m < width, else 0."""
        short = 1.0 - _signed(labels) * scores
        return self._weighted(np.asarray((short > 0.0) & (short < self.width)) / self.width, labels)


@dataclass(frozen=True)
class _ScorePerClass(_OfClasses):
    """A loss with one score per class: the labels 0 .. classes - 1."""

    classes: int = 2

    def __post_init__(self) -> None:
        classes = positive_integer("classes", self.classes, "It is the number of labels; it must be public.")
        if classes < 2:
            raise InvalidArgument(f"Expected classes={classes} >= 2.")
        object.__setattr__(self, "classes", classes)
        super().__post_init__()

    @property
    def class_count(self) -> int:
        """Number of classes."""
        return self.classes

    @property
    def outputs(self) -> int:
        """Number of classes."""
        return self.classes

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = sqrt(2) feature_norm."""
        return math.sqrt(2.0) * feature_norm

    labels_are = "whole numbers from 0 to classes - 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        """Accept whole numbers from 0 to classes - 1."""
        with np.errstate(invalid="ignore"):
            return np.asarray((labels >= 0) & (labels < self.classes) & (labels == np.floor(labels)))

    def predict(self, scores: Array) -> NDArray[Any]:
        """Return the class of the largest score."""
        return np.asarray(np.argmax(scores, axis=1))


@dataclass(frozen=True)
class Softmax(_ScorePerClass):
    """Cross-entropy over the labels 0 .. classes - 1: L = sqrt(2) norm, M = norm^2 / 2.

    Parameters
    ----------
    classes : int
        Public number of labels, at least 2.
    weights : tuple of float
        As in ``Logistic``.
    """

    kind: ClassVar[str] = "softmax"

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2 / 2."""
        return feature_norm**2 / 2

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute log(sum_k exp(m_k)) - m_y."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        chosen = np.take_along_axis(shifted, labels.astype(np.int64)[:, None], axis=1)[:, 0]
        return self._weighted(np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen), labels)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute softmax(m) - e_y."""
        weights = _softmax(scores)
        weights[np.arange(len(weights)), labels.astype(np.int64)] -= 1.0
        return self._weighted(weights, labels)

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute diag(q) - q q' with q = softmax(m)."""
        weights = _softmax(scores)
        return self._weighted(weights[:, :, None] * (np.eye(self.classes) - weights[:, None, :]), labels)


@dataclass(frozen=True)
class MulticlassHinge(_ScorePerClass):
    """Smoothed hinge loss of several classes: L = sqrt(2) norm, M = norm^2 / (2 width).

    The hinge of Crammer and Singer (2001) is max_k (m_k + [k != y]) - m_y: the score of the label is to exceed every
    other by 1. Here log-sum-exp of temperature ``width`` takes the place of the maximum, so the slope is that of
    softmax behind a margin.

    Parameters
    ----------
    classes : int
        Public number of labels, at least 2.
    width : float
        Temperature: 0 in the limit is the hinge itself.
    weights : tuple of float
        As in ``Logistic``.
    """

    kind: ClassVar[str] = "multiclass-hinge"
    width: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", positive("width", self.width, "It is the temperature of the maximum."))

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2 / (2 width)."""
        return feature_norm**2 / (2 * self.width)

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute width log(sum_k exp((m_k + [k != y]) / width)) - m_y."""
        raised = self._raised(scores, labels)
        most = raised.max(axis=1)
        total = np.exp((raised - most[:, None]) / self.width).sum(axis=1)
        chosen = np.take_along_axis(raised, labels.astype(np.int64)[:, None], axis=1)[:, 0]
        return self._weighted(np.asarray(most + self.width * np.log(total) - chosen), labels)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute softmax((m + [k != y]) / width) - e_y."""
        q = _softmax(self._raised(scores, labels) / self.width)
        q[np.arange(len(q)), labels.astype(np.int64)] -= 1.0
        return self._weighted(q, labels)

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute (diag(q) - q q') / width with q as in ``slope``."""
        q = _softmax(self._raised(scores, labels) / self.width)
        return self._weighted(q[:, :, None] * (np.eye(self.classes) - q[:, None, :]) / self.width, labels)

    def _raised(self, scores: Array, labels: Labels) -> Array:
        """Return the scores, those of other classes than the label's raised by the margin."""
        return np.asarray(scores + (np.arange(self.classes) != labels[:, None]))


def _sigmoid(scores: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * scores))


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def _signed(labels: Labels) -> Array:
    return np.where(labels == 1, 1.0, -1.0)
