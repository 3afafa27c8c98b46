"""Acceleration with independent gradients: Algorithm 1 without the recursive sum (the paper's section "independent").

    nabla_t = 1/B [sum over B fresh rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    z_{t+1} = Proj(z_t - (eta_t / beta) nabla_t)        halved: eta_t/(2 beta)
    y_{t+1} = Proj(x_t - (1 / beta) nabla_t)
    x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}
    output y_T

Guarantee: as one-pass DP-SGD: a row is in one batch, sigma = S C / mu, any loss.
Cost: one gradient per row; T steps.
beta = max(M, c T^(3/2) V / D_0), V^2 = L^2/B + p (sigma/B)^2, balances acceleration against the noise it piles up
(Lan 2012); c = 1/4 is the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.algorithm_1 import Z_STEPS, update
from dpsco.errors import one_of
from dpsco.methods.fresh_batches import FreshBatches
from dpsco.methods.method import RoundMethod, gradient_bound, mean_of, reach
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released

__all__ = ["AcceleratedSGD", "AcceleratedSGDState", "AcceleratedSteps"]

BALANCE = 0.25
"""c of the formula for beta."""


@dataclass(frozen=True, eq=False)
class AcceleratedSGDState:
    """The three iterates and the last noisy gradient."""

    step: int
    x: Array
    y: Array
    z: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class AcceleratedSteps(RoundMethod):
    """Nesterov acceleration on independent noisy gradients, whatever rows they are of."""

    beta: float | None = None
    z_step: str = "halved"

    tunable: ClassVar[tuple[str, ...]] = ("beta",)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("z_step", self.z_step, Z_STEPS)

    @classmethod
    def _usual_rounds(cls, n: int) -> int:
        return max(1, round(n**0.25))

    def _formula(self, problem: Problem, size: float, sigma: float) -> float:
        variance = gradient_bound(problem, self.clip) ** 2 / size + problem.parameters * (sigma / size) ** 2
        return max(problem.smoothness, BALANCE * self.rounds**1.5 * math.sqrt(variance) / reach(problem))

    def start(self, schedule: Schedule, x0: Array) -> AcceleratedSGDState:
        """Set x_0 = y_0 = z_0 to the start."""
        return AcceleratedSGDState(0, x0, x0, x0, np.zeros_like(x0))

    def ask(self, schedule: Schedule, state: AcceleratedSGDState) -> Query:
        """Ask for the gradient at x_t."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: AcceleratedSGDState, released: Released) -> AcceleratedSGDState:
        """Take the two steps and mix them."""
        t, project, beta = state.step, schedule.problem.domain.project, schedule.settings["beta"]
        nabla = mean_of(schedule, state, released)
        x, y, z = update(t, state.x, state.z, nabla, beta=beta, z_step=self.z_step, project=project)
        return AcceleratedSGDState(t + 1, x, y, z, nabla)

    def output(self, state: AcceleratedSGDState) -> Array:
        """Return y_T."""
        return state.y


@dataclass(frozen=True, kw_only=True)
class AcceleratedSGD(AcceleratedSteps, FreshBatches):
    """Nesterov acceleration on noisy gradients of fresh batches.

    Parameters
    ----------
    rounds, clip, z_step, batch_size
        As in ``AcceleratedSRGD``.
    beta : float, optional
        Scaling of the steps; by formula unless given.
    """

    name: ClassVar[str] = "accelerated-sgd"
