"""Losses of linear models: f(x, (a, y)) = phi(<a, x>, y), with the constants the theory asks for.

``lipschitz`` and ``smoothness`` hold for every row with ||a|| <= feature_norm and every x in the domain.
A gradient is ``slope * a`` (one score), or ``slope outer a`` (one score a class).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, positive, positive_integer
from dpsco.query import Array

__all__ = ["LOSSES", "CustomLoss", "Huber", "Logistic", "Loss", "SmoothedHinge", "Softmax", "Squared"]

Labels = NDArray[Any]


class Loss:
    """What the library needs to know of a loss."""

    kind: ClassVar[str]

    @property
    def outputs(self) -> int:
        """Scores per row: 1, or one per class."""
        return 1

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L: bound on ||grad f||, for x of norm up to ``radius``."""
        raise NotImplementedError

    def smoothness(self, feature_norm: float) -> float:
        """M: bound on the Hessian's norm."""
        raise NotImplementedError

    def value(self, scores: Array, labels: Labels) -> Array:
        """f for each row; scores of shape (rows,) or (rows, classes)."""
        raise NotImplementedError

    def slope(self, scores: Array, labels: Labels) -> Array:
        """d phi / d score for each row, same shape as ``scores``."""
        raise NotImplementedError

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        """Which labels the loss can take."""
        return np.isfinite(labels)

    labels_are: ClassVar[str] = "finite numbers"

    def predict(self, scores: Array) -> NDArray[Any]:
        """The label a score stands for."""
        return scores


class _Binary(Loss):
    labels_are = "0 or 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        return np.asarray((labels == 0) | (labels == 1))

    def predict(self, scores: Array) -> NDArray[Any]:
        return (scores > 0).astype(np.int64)


@dataclass(frozen=True)
class Logistic(_Binary):
    """log(1 + exp(-s m)), s = 2y - 1: L = feature_norm, M = feature_norm^2 / 4."""

    kind: ClassVar[str] = "logistic"

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        return feature_norm

    def smoothness(self, feature_norm: float) -> float:
        return feature_norm**2 / 4

    def value(self, scores: Array, labels: Labels) -> Array:
        return np.asarray(np.logaddexp(0.0, np.where(labels == 1, -scores, scores)))

    def slope(self, scores: Array, labels: Labels) -> Array:
        return _sigmoid(scores) - labels


@dataclass(frozen=True)
class Squared(Loss):
    """(m - y)^2 / 2 for |y| <= label_bound on a bounded domain: L = norm (norm R + label_bound), M = norm^2."""

    kind: ClassVar[str] = "squared"
    label_bound: float = 1.0

    def __post_init__(self) -> None:
        bound = positive("label_bound", self.label_bound, "It bounds |y| and so the gradient; it must be public.")
        object.__setattr__(self, "label_bound", bound)

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        if not math.isfinite(radius):
            raise InvalidArgument(
                "The squared loss has no Lipschitz constant on an unbounded domain. Use a bounded one such as "
                "L2Ball(radius=...), or Huber()."
            )
        return feature_norm * (feature_norm * radius + self.label_bound)

    def smoothness(self, feature_norm: float) -> float:
        return feature_norm**2

    def value(self, scores: Array, labels: Labels) -> Array:
        return np.asarray(0.5 * (scores - labels) ** 2)

    def slope(self, scores: Array, labels: Labels) -> Array:
        return scores - labels

    labels_are = "numbers within [-label_bound, label_bound]"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        return np.asarray(np.abs(labels) <= self.label_bound)


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic within ``width`` of the label, linear beyond: L = width * norm, M = norm^2."""

    kind: ClassVar[str] = "huber"
    width: float = 1.0

    def __post_init__(self) -> None:
        width = positive("width", self.width, "It is where the loss turns from quadratic to linear.")
        object.__setattr__(self, "width", width)

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        return self.width * feature_norm

    def smoothness(self, feature_norm: float) -> float:
        return feature_norm**2

    def value(self, scores: Array, labels: Labels) -> Array:
        distance = np.abs(scores - labels)
        inside = np.minimum(distance, self.width)
        return np.asarray(inside * (distance - inside / 2))

    def slope(self, scores: Array, labels: Labels) -> Array:
        return np.asarray(np.clip(scores - labels, -self.width, self.width))


@dataclass(frozen=True)
class SmoothedHinge(_Binary):
    """Hinge loss whose corner is a parabola of ``width``: L = norm, M = norm^2 / width."""

    kind: ClassVar[str] = "smoothed-hinge"
    width: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", positive("width", self.width, "It is the width of the rounded corner."))

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        return feature_norm

    def smoothness(self, feature_norm: float) -> float:
        return feature_norm**2 / self.width

    def value(self, scores: Array, labels: Labels) -> Array:
        short = np.maximum(1.0 - _signed(labels) * scores, 0.0)
        inside = np.minimum(short, self.width)
        return np.asarray(inside * (short - inside / 2) / self.width)

    def slope(self, scores: Array, labels: Labels) -> Array:
        sign = _signed(labels)
        return np.asarray(-sign * np.clip((1.0 - sign * scores) / self.width, 0.0, 1.0))


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy over ``classes`` labels 0 .. classes - 1: L = sqrt(2) norm, M = norm^2 / 2."""

    kind: ClassVar[str] = "softmax"
    classes: int = 2

    def __post_init__(self) -> None:
        classes = positive_integer("classes", self.classes, "It is the number of labels; it must be public.")
        if classes < 2:
            raise InvalidArgument(f"Expected classes={classes} >= 2.")
        object.__setattr__(self, "classes", classes)

    @property
    def outputs(self) -> int:
        return self.classes

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        return math.sqrt(2.0) * feature_norm

    def smoothness(self, feature_norm: float) -> float:
        return feature_norm**2 / 2

    def value(self, scores: Array, labels: Labels) -> Array:
        shifted = scores - scores.max(axis=1, keepdims=True)
        chosen = np.take_along_axis(shifted, labels.astype(np.int64)[:, None], axis=1)[:, 0]
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)

    def slope(self, scores: Array, labels: Labels) -> Array:
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        weights[np.arange(len(weights)), labels.astype(np.int64)] -= 1.0
        return np.asarray(weights)

    labels_are = "whole numbers from 0 to classes - 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            return np.asarray((labels >= 0) & (labels < self.classes) & (labels == np.floor(labels)))

    def predict(self, scores: Array) -> NDArray[Any]:
        return np.asarray(np.argmax(scores, axis=1))


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A loss the library does not know: its gradients come from an oracle you pass to ``train``.

    Privacy needs nothing of it (every difference is clipped). ``given_lipschitz`` and
    ``given_smoothness`` only guide the plan.
    """

    kind: ClassVar[str] = "custom"
    given_lipschitz: float = 1.0
    given_smoothness: float = 1.0

    def __post_init__(self) -> None:
        for name, use in (("given_lipschitz", "It guides the clip."), ("given_smoothness", "It guides the step.")):
            object.__setattr__(self, name, positive(name, getattr(self, name), use))

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        return self.given_lipschitz

    def smoothness(self, feature_norm: float) -> float:
        return self.given_smoothness

    def value(self, scores: Array, labels: Labels) -> Array:
        raise DataError("A CustomLoss has no value of its own: evaluate the model with your own function.")

    slope = value


LOSSES: dict[str, type[Loss]] = {
    kind.kind: kind for kind in (Logistic, Squared, Huber, SmoothedHinge, Softmax, CustomLoss)
}


def _sigmoid(scores: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * scores))


def _signed(labels: Labels) -> Array:
    return np.where(labels == 1, 1.0, -1.0)
