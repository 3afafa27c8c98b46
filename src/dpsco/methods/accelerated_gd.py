"""Accelerated full-batch DP gradient descent: every round sees all rows.

    nabla_t = 1/n [sum over all rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    z, y, x as in Algorithm 1;  output y_T

Guarantee: T adaptive Gaussian releases of the same rows: sigma = sqrt(T) S C / mu makes the run exactly mu-GDP, for any
loss.
Cost: T gradients a row; T steps; rows in memory.
beta is that of acceleration with independent gradients, with n for B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.errors import InvalidArgument
from dpsco.methods.accelerated_sgd import AcceleratedSGD
from dpsco.methods.method import Schedule
from dpsco.planning.plan import Plan
from dpsco.query import Portion
from dpsco.release.calibration import calibrate_round
from dpsco.release.mechanisms import Independent

__all__ = ["AcceleratedGD"]


@dataclass(frozen=True)
class AcceleratedGD(AcceleratedSGD):
    """Nesterov acceleration on noisy gradients of all rows: the plan's rounds are its passes."""

    name = "accelerated-gd"
    single_epoch: ClassVar[bool] = False
    reason = "every round adds Gaussian noise to the clipped sum of all rows, and T such releases compose exactly."

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        if plan.budget.adjacency == "add-remove":
            raise InvalidArgument(
                f"algorithm={self.name!r} goes over rows by position, which adjacency='add-remove' does not allow. "
                "Plan with 'zero-out', which has the same noise."
            )

    def gradients_each(self, plan: Plan) -> int:
        return plan.rounds

    def _schedule(self, plan: Plan) -> Schedule:
        T, budget = plan.rounds, plan.budget
        z = math.sqrt(T) / budget.mu_per_record if budget.private else 1.0
        paid = calibrate_round(
            budget, clip=plan.clip, dimension=plan.problem.parameters, rows=plan.n, multiplier=z, rounds=T
        )
        return Schedule(paid, Independent(T), (Portion(0, plan.n),) * T, "all rows each", participations=T)
