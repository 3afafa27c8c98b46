"""Independent noise on the sums of fresh batches: the schedule that one-pass methods without recursion share."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.methods.method import RoundMethod
from dpsco.methods.schedule import Schedule, fresh_batch_size, fresh_schedule
from dpsco.problem import Problem
from dpsco.release.mechanisms import Independent

__all__ = ["FreshBatches"]


@dataclass(frozen=True, kw_only=True)
class FreshBatches(RoundMethod):
    """A method that sees each row in one batch, with independent noise, and has one tunable hyperparameter.

    Parameters
    ----------
    batch_size : int
        B; n // rounds if 0.
    """

    batch_size: int = 0

    reason: ClassVar[str] = (
        "each row is in one batch, and the clipped sum of a batch is released once with Gaussian noise."
    )

    @abc.abstractmethod
    def _formula(self, problem: Problem, size: float, sigma: float) -> float:
        """Return the tunable hyperparameter for batches of ``size`` rows with noise sigma."""

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Work out rows and noise of a run."""
        size, (name,) = fresh_batch_size(self.rounds, self.batch_size, n), self.tunable
        return fresh_schedule(
            problem,
            n,
            budget,
            Independent(self.rounds),
            batch_size=size,
            clip=self.clip,
            settings=lambda sigma: self._setting(name, self._formula(problem, size, sigma)),
        )
