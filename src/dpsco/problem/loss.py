"""What a loss of linear models is: f(x, (a, y)) = phi(<a, x>, y), with its Lipschitz and smoothness constants.

The constants hold for every row with ||a|| <= feature_norm and every x in the domain.
A row's gradient is ``slope * a`` for one score per row, and ``outer(slope, a)`` for one score per class.
In the formulas m = <a, x> is the score and y the label.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array

__all__ = ["Labels", "Loss"]

Labels = NDArray[Any]


class Loss:
    """A loss of a linear model. Subclasses supply the constants, the value and the slope."""

    kind: ClassVar[str]

    @property
    def outputs(self) -> int:
        """Number of scores per row: 1, or one per class."""
        return 1

    @property
    def class_count(self) -> int:
        """Number of classes that labels name; 0 for a regression."""
        return 0

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

    def class_weights(self, labels: Labels) -> Array | None:
        """Return the public weight of each row's class; None if all classes count alike."""
        return None

    def unweighted(self) -> Loss:
        """Return the loss in which all classes count alike."""
        return self
