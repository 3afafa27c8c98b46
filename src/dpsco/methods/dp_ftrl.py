"""DP-FTRL: follow the regularised leader on noisy prefix sums of gradients.

    G_t     = sum_{i<=t} 1/B sum over B fresh rows of clip(grad f(x_i, d), C)  +  correlated noise
    m_t     = momentum * m_{t-1} + G_t                   (m_t = G_t without momentum)
    x_{t+1} = Proj(x_0 - step m_t)
    output the average of the last half of the iterates ("tail"), of all of them ("average"), or x_T ("last")

The noise is the plan's mechanism: the binary tree is Kairouz et al. 2021, "dense" and "sqrt" are the matrix
factorisations of Denisov et al. 2022 and Fichtenberger et al. 2023. ``restarts`` starts the mechanism anew: the last
noise of a segment stays in the sum and later segments add their own to it.

Guarantee: a row is in one clipped increment, so the run is one Gaussian mechanism for any loss. A restart changes the
strategy to a block diagonal one, whose largest column norm is that of its segments.
Cost: one gradient a row; T steps; the memory of the mechanism.
step = min(1/M, D_0 / (V sqrt T)), V^2 = L^2/B + p e^2/T, e the noise on a prefix sum of mean gradients: DP-SGD's
formula with this noise, times 1 - momentum. It is the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.errors import InvalidArgument, one_of
from dpsco.methods.dp_sgd import ITERATES, averaged
from dpsco.methods.method import Algorithm, Schedule, bound, reach
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released
from dpsco.release.calibration import calibrate
from dpsco.release.mechanisms import mechanism
from dpsco.release.mechanisms.restarted import Restarted

__all__ = ["DPFTRL", "State"]


@dataclass(frozen=True, eq=False)
class State:
    """The iterate, where it started, the released prefix sum, the momentum, the mean for the output."""

    step: int
    x: Array
    x0: Array
    total: Array
    moving: Array
    mean: Array
    nabla: Array


@dataclass(frozen=True)
class DPFTRL(Algorithm):
    """One-pass DP-FTRL under the plan's mechanism."""

    step: float | None = None
    momentum: float = 0.0
    restarts: int = 0
    iterate: str = "tail"

    name = "dp-ftrl"
    knobs = ("step",)
    reason = "each row enters one clipped increment, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("iterate", self.iterate, ITERATES)
        if not 0.0 <= self.momentum < 1.0:
            raise InvalidArgument(f"Expected momentum={self.momentum!r} in [0, 1).")
        if isinstance(self.restarts, bool) or not isinstance(self.restarts, int) or self.restarts < 0:
            raise InvalidArgument(f"Expected restarts={self.restarts!r} to be a whole number >= 0.")

    def _formulas(self, plan: Plan) -> dict[str, float]:
        schedule, p, T = self.schedule(plan), plan.problem.parameters, plan.rounds
        noises = schedule.mechanism
        e = noises.mean_error * schedule.worst().sigma / (noises.sensitivity * plan.batch_size)
        variance = bound(plan) ** 2 / plan.batch_size + p * e**2 / T
        step = min(1.0 / plan.problem.smoothness, reach(plan) / math.sqrt(variance * T))
        return {"step": step * (1.0 - self.momentum)}

    def _schedule(self, plan: Plan) -> Schedule:
        if not self.restarts:
            return Schedule(plan.calibration, plan.noise_mechanism)
        p = plan.problem.parameters
        segments = Restarted(
            plan.rounds, self.restarts, lambda horizon: mechanism(plan.mechanism, horizon=horizon, dimension=p)
        )
        rows = plan.n if plan.budget.adjacency == "add-remove" else plan.batch_size
        return Schedule(calibrate(plan.budget, segments, clip=plan.clip, dimension=p, rows=rows), segments)

    def start(self, plan: Plan, x0: Array) -> State:
        zero = np.zeros_like(x0)
        return State(0, x0, x0, total=zero, moving=zero, mean=x0, nabla=zero)

    def ask(self, plan: Plan, state: State) -> Query:
        return self._query(plan, state.step, (state.x,))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        g = self._mean(plan, state, released)
        total = state.total + g
        moving = self.momentum * state.moving + total
        x = plan.problem.domain.project(state.x0 - self._knob(plan, "step") * moving)
        mean = averaged(self.iterate, state.mean, x, state.step, plan.rounds)
        return State(state.step + 1, x, state.x0, total, moving, mean, g)

    def output(self, state: State) -> Array:
        return state.mean
