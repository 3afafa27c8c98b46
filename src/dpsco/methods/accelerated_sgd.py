"""Acceleration with independent gradients: Algorithm 1 without the recursive sum (the paper's section "independent").

    nabla_t = 1/B [sum over B fresh rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    z_{t+1} = Proj(z_t - (eta_t / beta) nabla_t)        halved: eta_t/(2 beta)
    y_{t+1} = Proj(x_t - (1 / beta) nabla_t)
    x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}
    output y_T

Guarantee: as one-pass DP-SGD: a row is in one batch, sigma = S C / mu, any loss.
Cost: one gradient a row; T steps.
beta = max(M, c T^(3/2) V / D_0), V^2 = L^2/B + p (sigma/B)^2, balances acceleration against the noise it piles up
(Lan 2012); c = 1/4 is the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.methods.accelerated_srgd import eta, tau
from dpsco.methods.method import Algorithm, Schedule, bound, independent, reach
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released

__all__ = ["AcceleratedSGD", "State"]

BALANCE = 0.25
"""c of the formula for beta."""


@dataclass(frozen=True, eq=False)
class State:
    """The three iterates and the last noisy gradient."""

    step: int
    x: Array
    y: Array
    z: Array
    nabla: Array


@dataclass(frozen=True)
class AcceleratedSGD(Algorithm):
    """Nesterov acceleration on independent noisy gradients; the z-step is the plan's."""

    beta: float | None = None

    name = "accelerated-sgd"
    knobs = ("beta",)
    reason = "each row is in one batch, and the clipped sum of a batch is released once with Gaussian noise."

    def _formulas(self, plan: Plan) -> dict[str, float]:
        schedule, p, T = self.schedule(plan), plan.problem.parameters, self.schedule(plan).rounds
        size = schedule.size(plan, 0)
        variance = bound(plan) ** 2 / size + p * (schedule.worst().sigma / size) ** 2
        return {"beta": max(plan.problem.smoothness, BALANCE * T**1.5 * math.sqrt(variance) / reach(plan))}

    def _schedule(self, plan: Plan) -> Schedule:
        return independent(plan)

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0, x0, x0, np.zeros_like(x0))

    def ask(self, plan: Plan, state: State) -> Query:
        return self._query(plan, state.step, (state.x,))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        t, project, beta = state.step, plan.problem.domain.project, self._knob(plan, "beta")
        nabla = self._mean(plan, state, released)
        halves = 1 if plan.z_step == "listed" else 2
        z = project(state.z - (eta(t) / (halves * beta)) * nabla)
        y = project(state.x - nabla / beta)
        x = (1 - tau(t + 1)) * y + tau(t + 1) * z
        return State(t + 1, x, y, z, nabla)

    def output(self, state: State) -> Array:
        return state.y
