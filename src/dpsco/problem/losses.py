"""The losses by name, and those of regressions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, positive
from dpsco.problem.class_losses import Logistic, MulticlassHinge, SmoothedHinge, Softmax
from dpsco.problem.loss import Labels, Loss
from dpsco.query import Array

__all__ = [
    "LOSSES",
    "CustomLoss",
    "Huber",
    "Labels",
    "Logistic",
    "Loss",
    "MulticlassHinge",
    "SmoothedHinge",
    "Softmax",
    "Squared",
]


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
    kind.kind: kind for kind in (Logistic, Squared, Huber, SmoothedHinge, Softmax, MulticlassHinge, CustomLoss)
}
