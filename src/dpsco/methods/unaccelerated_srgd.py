"""Stochastic recursive gradients without acceleration (the paper's section "Unaccelerated Variant").

    Delta_t = 1/B sum over B fresh rows of clip(eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d), C_t)
    nabla_t = (sum_{i<=t} Delta_i + correlated noise) / eta_t,        eta_t = t + 1, eta_{-1} = 0
    x_{t+1} = Proj(x_t - nabla_t / beta)
    output x_T

``constants="tight"``: C_t is the plan's clip in every round, as in Algorithm 1. ``"paper"``: C_t = L + t M L / beta,
the size that a difference has if every move is at most L / beta (L the plan's clip), public and uneven.

Guarantee: every row enters one clipped difference, so the run is one Gaussian mechanism for any loss; with uneven
clips sigma pays for the round in which clip times column norm is largest.
Cost: two gradients a row (one in round 0); T steps; a few p-vectors and the memory of the mechanism.
beta = max(M, L sqrt(n) / (B D_0)) is the paper's 1/beta ~ B/sqrt(n) with its units put back and capped at 1/M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.errors import one_of
from dpsco.methods.accelerated_srgd import eta
from dpsco.methods.method import Algorithm, Schedule, bound, reach
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released
from dpsco.release.calibration import calibrate_uneven

__all__ = ["State", "UnacceleratedSRGD"]

CONSTANTS = ("tight", "paper")


@dataclass(frozen=True, eq=False)
class State:
    """The last two iterates, the released sum of mean differences, the recursive gradient."""

    step: int
    x: Array
    x_before: Array
    total: Array
    nabla: Array


@dataclass(frozen=True)
class UnacceleratedSRGD(Algorithm):
    """Gradient descent on recursive gradients under the plan's mechanism."""

    beta: float | None = None
    constants: str = "tight"

    name = "unaccelerated-srgd"
    knobs = ("beta",)
    gradients_per_example = 2
    reason = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("constants", self.constants, CONSTANTS)

    def _formulas(self, plan: Plan) -> dict[str, float]:
        paper = bound(plan) * math.sqrt(plan.n) / (plan.batch_size * reach(plan))
        return {"beta": max(plan.problem.smoothness, paper)}

    def _schedule(self, plan: Plan) -> Schedule:
        if self.constants == "tight":
            return Schedule(plan.calibration, plan.noise_mechanism)
        growth = plan.problem.smoothness / self._knob(plan, "beta")
        clips = [plan.clip * (1.0 + t * growth) for t in range(plan.rounds)]
        rows = plan.n if plan.budget.adjacency == "add-remove" else plan.batch_size
        p, noises = plan.problem.parameters, plan.noise_mechanism
        return Schedule(calibrate_uneven(plan.budget, noises, clips=clips, dimension=p, rows=rows), noises)

    def start(self, plan: Plan, x0: Array) -> State:
        zero = np.zeros_like(x0)
        return State(0, x0, x0, total=zero, nabla=zero)

    def ask(self, plan: Plan, state: State) -> Query:
        t = state.step
        if t == 0:
            return self._query(plan, t, (state.x,), (eta(t),))
        return self._query(plan, t, (state.x, state.x_before), (eta(t), -eta(t - 1)))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        total = state.total + self._mean(plan, state, released)
        nabla = total / eta(state.step)
        x = plan.problem.domain.project(state.x - nabla / self._knob(plan, "beta"))
        return State(state.step + 1, x, state.x, total, nabla)

    def output(self, state: State) -> Array:
        return state.x
