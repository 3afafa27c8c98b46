"""DP-SGD as it is usually run: Poisson-sampled batches over several epochs, and an accountant.

    each row enters round t with probability q = epochs / T, by itself
    g_t     = 1/(q n) [sum over what entered of clip(grad f(x_t, d), C) + N(0, (z C)^2 I)]
    x_{t+1} = Proj(x_t - step g_t)
    output as one-pass DP-SGD

Guarantee: T Poisson-sampled Gaussian rounds compose to (epsilon, delta) by dp_accounting's privacy-loss distributions,
for any loss. Samples are drawn from the run's key and stay as secret as the noise; the denominator q n is public. The
zero-out pair of neighbours has the privacy loss of add-remove. The promise holds at the budget's delta alone: the run
is not mu-GDP, so it cannot be charged to an account.
Cost: epochs gradients a row, on average; T steps; rows in memory.
Reference: Abadi et al. 2016; Zhu and Wang 2019 for Poisson samples. The step is that of one-pass DP-SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.errors import InvalidArgument, positive
from dpsco.methods.dp_sgd import DPSGD
from dpsco.methods.method import Schedule
from dpsco.methods.sampled import check_sampled, sampled_noise
from dpsco.planning.plan import Plan
from dpsco.query import Portion
from dpsco.release.mechanisms import Independent

__all__ = ["PoissonDPSGD"]


@dataclass(frozen=True)
class PoissonDPSGD(DPSGD):
    """Poisson-sampled DP-SGD: the plan's rounds over ``epochs`` expected passes."""

    epochs: float = 1.0

    name = "dp-sgd-poisson"
    single_epoch: ClassVar[bool] = False
    reason = "every round adds Gaussian noise to the clipped sum of a secret sample, and an accountant composes them."

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epochs", self.epochs, "It is the expected number of passes over the rows.")

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        check_sampled(self.name, plan)
        if self.epochs > plan.rounds:
            raise InvalidArgument(
                f"Expected epochs={self.epochs:g} <= rounds={plan.rounds}: a round is one pass at most. Add rounds."
            )

    def gradients_each(self, plan: Plan) -> int:
        return math.ceil(self.epochs)

    def _schedule(self, plan: Plan) -> Schedule:
        T, rate = plan.rounds, min(1.0, self.epochs / plan.rounds)
        paid, accounting = sampled_noise(plan, rows=plan.n, rate=rate, rounds=T, total=T)
        words = f"a Poisson sample of all rows at rate {rate:.4g} each" if rate < 1 else "all rows each"
        portions, together = (Portion(0, plan.n, rate),) * T, T if rate == 1.0 else 1
        return Schedule(paid, Independent(T), portions, words, accounting, participations=together)
