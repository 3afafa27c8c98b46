"""DP-SGD as it is usually run: Poisson-sampled batches over several epochs, and an accountant.

    each row enters round t with probability q = epochs / T, by itself
    g_t     = 1/(q n) [sum over what entered of clip(grad f(x_t, d), C) + N(0, (z C)^2 I)]
    x_{t+1} = Proj(x_t - step_size g_t)
    output as one-pass DP-SGD

Guarantee: T Poisson-sampled Gaussian rounds compose to (epsilon, delta) by dp_accounting's privacy-loss distributions,
for any loss. Samples are drawn from the run's key and stay as secret as the noise; the denominator q n is public. The
zero-out pair of neighbours has the privacy loss of add-remove. The guarantee holds at the budget's delta alone: the run
is not mu-GDP, so it cannot be charged to an account.
Cost: epochs gradients per row, on average; T steps; rows in memory.
Reference: Abadi et al. 2016; Zhu and Wang 2019 for Poisson samples. The step size is that of one-pass DP-SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.dp_sgd import GradientSteps
from dpsco.methods.sampled import check_sampled, sampled_noise
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Portion
from dpsco.release.mechanisms import Independent

__all__ = ["PoissonDPSGD"]


@dataclass(frozen=True, kw_only=True)
class PoissonDPSGD(GradientSteps):
    """DP-SGD on Poisson samples of all rows.

    Parameters
    ----------
    rounds, clip, step_size, iterate
        As in ``DPSGD``.
    epochs : float
        Expected number of passes over the rows.
    """

    epochs: float = 1.0

    name: ClassVar[str] = "dp-sgd-poisson"
    single_epoch: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "every round adds Gaussian noise to the clipped sum of a secret sample, and an accountant composes them."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        epochs = positive("epochs", self.epochs, "It is the expected number of passes over the rows.")
        object.__setattr__(self, "epochs", epochs)
        if epochs > self.rounds:
            raise InvalidArgument(
                f"Expected epochs={epochs:g} <= rounds={self.rounds}: a round is one pass at most. Add rounds."
            )

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a Poisson sample of all rows, with noise from an accountant."""
        check_sampled(self.name, budget)
        T, p, rate = self.rounds, problem.parameters, min(1.0, self.epochs / self.rounds)
        mechanism = Independent(T)  # refuses rounds that no accountant would come to the end of
        noise, accounting = sampled_noise(budget, clip=self.clip, dimension=p, rows=n, rate=rate, rounds=T, total=T)
        return Schedule(
            problem=problem,
            n=n,
            budget=budget,
            settings=self._setting("step_size", self._formula(problem, n * rate, noise.sigma)),
            calibration=noise,
            mechanism=mechanism,
            portions=(Portion(0, n, rate),) * T,
            sampling=f"a Poisson sample of all rows at rate {rate:.4g} each" if rate < 1 else "all rows in every round",
            accounting=accounting,
            participations=T if rate == 1.0 else 1,
        )

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return the number of epochs, rounded up."""
        return math.ceil(self.epochs)
