"""Stochastic recursive gradients without acceleration (the paper's section "Unaccelerated Variant").

    Delta_t = 1/B sum over B fresh rows of clip(eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d), C_t)
    nabla_t = (sum_{i<=t} Delta_i + correlated noise) / eta_t,        eta_t = t + 1, eta_{-1} = 0
    x_{t+1} = Proj(x_t - nabla_t / beta)
    output x_T

``constants="tight"``: C_t is the clip in every round, as in Algorithm 1. ``"paper"``: C_t = L + t M L / beta,
the size that a difference has if every move is at most L / beta (L the clip), public and uneven.

Guarantee: every row enters one clipped difference, so the run is one Gaussian mechanism for any loss; with uneven
clips sigma pays for the round in which clip times column norm is largest.
Cost: two gradients per row (one in round 0); T steps; a few p-vectors and the memory of the mechanism.
beta = max(M, L sqrt(n) / (B D_0)) is the paper's 1/beta ~ B/sqrt(n) with its units put back and capped at 1/M.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.algorithm_1 import eta
from dpsco.errors import one_of
from dpsco.methods.accelerated_srgd import recursive_query
from dpsco.methods.method import RoundMethod, gradient_bound, mean_of, reach
from dpsco.methods.schedule import Schedule, fresh_batch_size, fresh_schedule
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released
from dpsco.release.mechanisms import MECHANISMS, mechanism

__all__ = ["CONSTANTS", "UnacceleratedSRGD", "UnacceleratedSRGDState"]

CONSTANTS = ("tight", "paper")


@dataclass(frozen=True, eq=False)
class UnacceleratedSRGDState:
    """The last two iterates, the released sum of mean differences, the recursive gradient."""

    step: int
    x: Array
    x_before: Array
    total: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class UnacceleratedSRGD(RoundMethod):
    """Gradient descent on recursive gradients with correlated noise.

    Parameters
    ----------
    rounds, clip, mechanism, batch_size
        As in ``AcceleratedSRGD``.
    beta : float, optional
        1 / beta is the step size; by formula unless given.
    constants : {"tight", "paper"}
        One clip for all rounds, or the paper's, which grow from round to round.
    """

    beta: float | None = None
    constants: str = "tight"
    mechanism: str = "sqrt"
    batch_size: int = 0

    name: ClassVar[str] = "unaccelerated-srgd"
    tunable: ClassVar[tuple[str, ...]] = ("beta",)
    reason: ClassVar[str] = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("constants", self.constants, CONSTANTS)
        one_of("mechanism", self.mechanism, [*MECHANISMS, "auto"])

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a fresh batch, with correlated noise."""
        size = fresh_batch_size(self.rounds, self.batch_size, n)
        noise = mechanism(self.mechanism, horizon=self.rounds, dimension=problem.parameters)
        paper = gradient_bound(problem, self.clip) * math.sqrt(n) / (size * reach(problem))
        settings = self._setting("beta", max(problem.smoothness, paper))
        clip: float | Sequence[float] = self.clip
        if self.constants == "paper":
            growth = problem.smoothness / settings["beta"]
            clip = [self.clip * (1.0 + t * growth) for t in range(self.rounds)]
        return fresh_schedule(problem, n, budget, noise, batch_size=size, clip=clip, settings=lambda _: settings)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return 2: at x_t and x_{t-1}."""
        return 2

    def start(self, schedule: Schedule, x0: Array) -> UnacceleratedSRGDState:
        """Set x_0 to the start; nothing is summed yet."""
        zero = np.zeros_like(x0)
        return UnacceleratedSRGDState(0, x0, x0, total=zero, nabla=zero)

    def ask(self, schedule: Schedule, state: UnacceleratedSRGDState) -> Query:
        """Ask for the weighted difference at x_t and x_{t-1}."""
        return self._query(schedule, state.step, *recursive_query(state.step, state.x, state.x_before))

    def tell(self, schedule: Schedule, state: UnacceleratedSRGDState, released: Released) -> UnacceleratedSRGDState:
        """Take a projected step along the recursive gradient."""
        total = state.total + mean_of(schedule, state, released)
        nabla = total / eta(state.step)
        x = schedule.problem.domain.project(state.x - nabla / schedule.settings["beta"])
        return UnacceleratedSRGDState(state.step + 1, x, state.x, total, nabla)
