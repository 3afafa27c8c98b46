"""Algorithm 1 whose rounds also release the squares of contributions: what standard errors need beyond a survey.

Guarantee: that of Algorithm 1. The contribution of a row to its round is (c, its weighed squares), whose norm is at
most ``clip`` (clipping/squares.py); the mechanism adds its noise to twice as many numbers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.clipping.squares import THETA
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.accelerated_srgd import AcceleratedSRGD, AcceleratedSRGDState
from dpsco.methods.schedule import Schedule
from dpsco.problem import CustomLoss, Problem
from dpsco.query import Query
from dpsco.release.calibration import calibrate

__all__ = ["MeasuredSRGD"]


@dataclass(frozen=True, kw_only=True)
class MeasuredSRGD(AcceleratedSRGD):
    """Algorithm 1 behind a survey that is to give intervals.

    Parameters
    ----------
    squares : float
        theta: weight of the squares of a contribution.
    radius : float
        R: squares are those of contributions shortened to it.
    clip : float
        Bound on one row's weighted difference and its squares together.
    """

    squares: float = THETA
    radius: float

    name: ClassVar[str] = "measured-srgd"
    reason: ClassVar[str] = (
        "each row enters one clipped difference, with its squares, and one Gaussian mechanism covers the whole run."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radius", positive("radius", self.radius, "Contributions are shortened to it."))
        if not 0 < self.squares <= 1:
            raise InvalidArgument(f"Expected squares={self.squares} in (0, 1]: it weighs squares of contributions.")

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a fresh batch, with correlated noise on the sum and on the squares."""
        if isinstance(problem.loss, CustomLoss) or not budget.private:
            raise InvalidArgument("Squares of contributions are released for losses of linear models, with noise.")
        plain = super().schedule(problem, n, budget)
        rows, length = n if budget.adjacency == "add-remove" else plain.batch_size, 2 * problem.parameters
        noise = calibrate(budget, plain.mechanism, clip=self.clip, dimension=length, rows=rows)
        return dataclasses.replace(plain, calibration=noise, squares=True)

    def ask(self, schedule: Schedule, state: AcceleratedSRGDState) -> Query:
        """Line 4, and the squares."""
        return dataclasses.replace(super().ask(schedule, state), squares=self.squares, radius=self.radius)
