"""Losses of linear models: f(x, (a, y)) = phi(<a, x>, y), with their Lipschitz and smoothness constants.

The constants hold for every row with ||a|| <= feature_norm and every x in the domain.
A row's gradient is ``slope * a`` for one score per row, and ``outer(slope, a)`` for one score per class.
In the formulas m = <a, x> is the score and y the label.
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
    """A loss of a linear model. Subclasses supply the constants, the value and the slope."""

    kind: ClassVar[str]

    @property
    def outputs(self) -> int:
        """Number of scores per row: 1, or one per class."""
        return 1

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """Bound L on ||grad f|| for rows up to ``feature_norm`` and x of norm up to ``radius``."""
        raise NotImplementedError

    def smoothness(self, feature_norm: float) -> float:
        """Bound M on the norm of the Hessian for rows up to ``feature_norm``."""
        raise NotImplementedError

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute f per row.

        Parameters
        ----------
        scores : array of shape (rows,) or (rows, classes)
            The numbers <a, x>.
        labels : array of shape (rows,)
            Valid labels.

        Returns
        -------
        array of shape (rows,)
        """
        raise NotImplementedError

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute d phi / d score per row, in the shape of ``scores``."""
        raise NotImplementedError

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute d^2 phi / d score^2 per row: shape (rows,), or (rows, classes, classes)."""
        raise NotImplementedError

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        """Return a mask of the labels that the loss accepts."""
        return np.isfinite(labels)

    labels_are: ClassVar[str] = "finite numbers"

    def predict(self, scores: Array) -> NDArray[Any]:
        """Convert scores to predicted labels."""
        return scores


class _Binary(Loss):
    labels_are = "0 or 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        return np.asarray((labels == 0) | (labels == 1))

    def predict(self, scores: Array) -> NDArray[Any]:
        return (scores > 0).astype(np.int64)


@dataclass(frozen=True)
class Logistic(_Binary):
    """Logistic loss log(1 + exp(-s m)) with s = 2y - 1: L = feature_norm, M = feature_norm^2 / 4.

    Labels are 0 or 1.
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
        return np.asarray(np.logaddexp(0.0, np.where(labels == 1, -scores, scores)))

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute sigmoid(m) - y."""
        return _sigmoid(scores) - labels

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute sigmoid(m) (1 - sigmoid(m))."""
        return np.asarray(0.25 * (1.0 - np.tanh(0.5 * scores) ** 2))


@dataclass(frozen=True)
class Squared(Loss):
    """Squared loss (m - y)^2 / 2: M = norm^2, and L = norm (norm R + label_bound) on a domain of radius R.

    Parameters
    ----------
    label_bound : float
        Public bound on |y|. Labels beyond it are not accepted.
    """

    kind: ClassVar[str] = "squared"
    label_bound: float = 1.0

    def __post_init__(self) -> None:
        bound = positive("label_bound", self.label_bound, "It bounds |y| and thus the gradient; it must be public.")
        object.__setattr__(self, "label_bound", bound)

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = norm (norm R + label_bound). Raise InvalidArgument if the domain is unbounded."""
        if not math.isfinite(radius):
            raise InvalidArgument(
                "The squared loss has no Lipschitz constant on an unbounded domain. Use a bounded one such as "
                "L2Ball(radius=...), or Huber()."
            )
        return feature_norm * (feature_norm * radius + self.label_bound)

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2."""
        return feature_norm**2

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute (m - y)^2 / 2."""
        return np.asarray(0.5 * (scores - labels) ** 2)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute m - y."""
        return scores - labels

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Return 1."""
        return np.ones_like(scores)

    labels_are = "numbers within [-label_bound, label_bound]"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        """Accept |y| <= label_bound."""
        return np.asarray(np.abs(labels) <= self.label_bound)


@dataclass(frozen=True)
class Huber(Loss):
    """Huber loss, quadratic within ``width`` of the label and linear beyond: L = width * norm, M = norm^2.

    Parameters
    ----------
    width : float
        Distance |m - y| at which the loss becomes linear.
    """

    kind: ClassVar[str] = "huber"
    width: float = 1.0

    def __post_init__(self) -> None:
        width = positive("width", self.width, "The loss turns from quadratic to linear there.")
        object.__setattr__(self, "width", width)

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = width * feature_norm."""
        return self.width * feature_norm

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2."""
        return feature_norm**2

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute (m - y)^2 / 2 if |m - y| <= width, else width (|m - y| - width / 2)."""
        distance = np.abs(scores - labels)
        inside = np.minimum(distance, self.width)
        return np.asarray(inside * (distance - inside / 2))

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute m - y, clipped to [-width, width]."""
        return np.asarray(np.clip(scores - labels, -self.width, self.width))

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Return 1 if |m - y| < width, else 0."""
        return np.asarray(np.abs(scores - labels) < self.width, dtype=np.float64)


@dataclass(frozen=True)
class SmoothedHinge(_Binary):
    """Hinge loss with a parabola of ``width`` in place of its corner: L = norm, M = norm^2 / width.

    Labels are 0 or 1.

    Parameters
    ----------
    width : float
        Length of the margin interval [1 - width, 1] on which the loss is quadratic.
    """

    kind: ClassVar[str] = "smoothed-hinge"
    width: float = 1.0

    def __post_init__(self) -> None:
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
        return np.asarray(inside * (short - inside / 2) / self.width)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute -s min(u / width, 1)."""
        sign = _signed(labels)
        return np.asarray(-sign * np.clip((1.0 - sign * scores) / self.width, 0.0, 1.0))

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Return 1 / width if 0 < 1 - s m < width, else 0."""
        short = 1.0 - _signed(labels) * scores
        return np.asarray((short > 0.0) & (short < self.width)) / self.width


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross-entropy over the labels 0 .. classes - 1: L = sqrt(2) norm, M = norm^2 / 2.

    Parameters
    ----------
    classes : int
        Public number of labels, at least 2.
    """

    kind: ClassVar[str] = "softmax"
    classes: int = 2

    def __post_init__(self) -> None:
        classes = positive_integer("classes", self.classes, "It is the number of labels; it must be public.")
        if classes < 2:
            raise InvalidArgument(f"Expected classes={classes} >= 2.")
        object.__setattr__(self, "classes", classes)

    @property
    def outputs(self) -> int:
        """Number of classes."""
        return self.classes

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L = sqrt(2) feature_norm."""
        return math.sqrt(2.0) * feature_norm

    def smoothness(self, feature_norm: float) -> float:
        """M = feature_norm^2 / 2."""
        return feature_norm**2 / 2

    def value(self, scores: Array, labels: Labels) -> Array:
        """Compute log(sum_k exp(m_k)) - m_y."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        chosen = np.take_along_axis(shifted, labels.astype(np.int64)[:, None], axis=1)[:, 0]
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)

    def slope(self, scores: Array, labels: Labels) -> Array:
        """Compute softmax(m) - e_y."""
        weights = _softmax(scores)
        weights[np.arange(len(weights)), labels.astype(np.int64)] -= 1.0
        return weights

    def curvature(self, scores: Array, labels: Labels) -> Array:
        """Compute diag(q) - q q' with q = softmax(m)."""
        weights = _softmax(scores)
        return np.asarray(weights[:, :, None] * (np.eye(self.classes) - weights[:, None, :]))

    labels_are = "whole numbers from 0 to classes - 1"

    def valid(self, labels: Labels) -> NDArray[np.bool_]:
        """Accept whole numbers from 0 to classes - 1."""
        with np.errstate(invalid="ignore"):
            return np.asarray((labels >= 0) & (labels < self.classes) & (labels == np.floor(labels)))

    def predict(self, scores: Array) -> NDArray[Any]:
        """Return the class of the largest score."""
        return np.asarray(np.argmax(scores, axis=1))


@dataclass(frozen=True)
class CustomLoss(Loss):
    """A loss unknown to the library. Its gradients come from an oracle that you pass to ``train``.

    Parameters
    ----------
    given_lipschitz, given_smoothness : float
        Estimates of L and M for the plan.

    Guarantee
    ---------
    Privacy does not depend on either number, because every contribution is clipped.
    """

    kind: ClassVar[str] = "custom"
    given_lipschitz: float = 1.0
    given_smoothness: float = 1.0

    def __post_init__(self) -> None:
        for name, use in (("given_lipschitz", "It guides the clip."), ("given_smoothness", "It guides the step.")):
            object.__setattr__(self, name, positive(name, getattr(self, name), use))

    def lipschitz(self, feature_norm: float, radius: float) -> float:
        """L as given."""
        return self.given_lipschitz

    def smoothness(self, feature_norm: float) -> float:
        """M as given."""
        return self.given_smoothness

    def value(self, scores: Array, labels: Labels) -> Array:
        """Raise DataError: the library does not know the loss."""
        raise DataError("The library cannot evaluate a CustomLoss: evaluate the model with your own function.")

    slope = curvature = value


LOSSES: dict[str, type[Loss]] = {
    kind.kind: kind for kind in (Logistic, Squared, Huber, SmoothedHinge, Softmax, CustomLoss)
}


def _sigmoid(scores: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * scores))


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def _signed(labels: Labels) -> Array:
    return np.where(labels == 1, 1.0, -1.0)
