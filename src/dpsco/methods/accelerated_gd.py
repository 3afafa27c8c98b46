"""Accelerated full-batch DP gradient descent: every round sees all rows.

    nabla_t = 1/n [sum over all rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    z, y, x as in Algorithm 1;  output y_T

Guarantee: T adaptive Gaussian releases of the same rows: sigma = sqrt(T) S C / mu makes the run exactly mu-GDP, for any
loss.
Cost: T gradients per row; T steps; rows in memory.
beta is that of acceleration with independent gradients, with n for B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.methods.accelerated_sgd import AcceleratedSteps
from dpsco.methods.method import no_positions
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Portion
from dpsco.release.calibration import calibrate_round
from dpsco.release.mechanisms import Independent

__all__ = ["AcceleratedGD"]


@dataclass(frozen=True, kw_only=True)
class AcceleratedGD(AcceleratedSteps):
    """Nesterov acceleration on noisy gradients of all rows: a round is a pass.

    Parameters
    ----------
    rounds, clip, z_step
        As in ``AcceleratedSRGD``.
    beta : float, optional
        Scaling of the steps; by formula unless given.
    """

    name: ClassVar[str] = "accelerated-gd"
    single_epoch: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "every round adds Gaussian noise to the clipped sum of all rows, and T such releases compose exactly."
    )

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give all rows to every round; rounds compose as Gaussian mechanisms."""
        no_positions(self.name, budget)
        T = self.rounds
        z = math.sqrt(T) / budget.mu_per_record if budget.private else 1.0
        noise = calibrate_round(budget, clip=self.clip, dimension=problem.parameters, rows=n, multiplier=z, rounds=T)
        return Schedule(
            problem=problem,
            n=n,
            budget=budget,
            settings=self._setting("beta", self._formula(problem, n, noise.sigma)),
            calibration=noise,
            mechanism=Independent(T),
            portions=(Portion(0, n),) * T,
            sampling="all rows in every round",
            participations=T,
        )

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return T: every round asks every row."""
        return schedule.rounds
