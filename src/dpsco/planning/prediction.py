"""The predicted excess risk of a plan, in its parts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dpsco.errors import InvalidArgument

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    """Expected excess risk of the final iterate.

    Parameters
    ----------
    optimisation : float
        What is left of the distance to the optimum.
    noise : float
        What privacy noise adds.
    sampling : float
        What the randomness of the rows adds.
    """

    optimisation: float
    noise: float
    sampling: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise InvalidArgument(f"Expected {field.name} to be a number >= 0: it is a part of a predicted excess.")

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.optimisation + self.noise + self.sampling
