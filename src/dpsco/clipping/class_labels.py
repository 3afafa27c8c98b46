"""Labels that a model of several outputs accepts: one whole number per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, positive_integer

__all__ = ["ClassLabels"]


@dataclass(frozen=True)
class ClassLabels:
    """The labels that a loss accepts for a model of ``classes`` outputs: 0 to classes - 1."""

    classes: int
    kind = "model's"

    @property
    def labels_are(self) -> str:
        """Description of the labels, for messages."""
        return f"whole numbers from 0 to {self.classes - 1}, one per output of the model"

    def compare(self, declared: int) -> None:
        """Raise InvalidArgument unless the model has as many outputs as classes are declared."""
        if self.classes != positive_integer("classes", declared, "It is the number of classes of the labels."):
            raise InvalidArgument(
                f"Expected a model of classes={declared} outputs, got {self.classes}: rows of the other classes would "
                "count as zero. Change the last layer, or classes. Nothing was spent."
            )

    def valid(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the labels that the loss accepts."""
        return np.asarray((labels >= 0) & (labels < self.classes) & (labels == np.floor(labels)))
