"""DP online-to-batch (Zhang, Tran, Cutkosky 2022): an online learner on recursive gradients of its own averages.

    for t = 1 .. T, on B fresh rows, beta_t = t^k                                       x_1 = w_1 = the start
        d_t     = 1/B sum of clip(beta_t grad f(x_t, d) - beta_{t-1} grad f(x_{t-1}, d), C_t)
        g_t     = sum_{i<=t} d_i + correlated noise                                     estimates beta_t grad F(x_t)
        w_{t+1} = Proj(w_t - a_t g_t),    a_t = step / sqrt(2 sum_{s<=t} |g_s|^2)       AdaGrad-norm
        x_{t+1} = x_t + (beta_{t+1} / beta_{1:t+1}) (w_{t+1} - x_t)
    output x_T, the weighted average of w_1 .. w_T

The paper has B = 1 and T = n with the binary tree: plan with rounds=n, mechanism="tree".
``constants="tight"``: C_t = C (beta_t - beta_{t-1}), C the plan's clip. ``"paper"``: what a difference can measure,
C_t = (beta_t - beta_{t-1}) C + beta_{t-1} M diam beta_t / beta_{1:t}; for k = 1 the largest is used in every round.

Guarantee: every row enters one clipped difference (x_t is fixed before its rows are read), so the run is one Gaussian
mechanism for any loss; a_t is a function of released values.
Cost: two gradients a row (one in round 1); T steps; a few p-vectors and the memory of the mechanism.
Recursion and weights follow the authors' code; step = diameter is AdaGrad-norm's own, the clips are the library's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.errors import InvalidArgument, one_of, positive_integer
from dpsco.methods.method import Algorithm, Schedule, reach
from dpsco.methods.unaccelerated_srgd import CONSTANTS
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released
from dpsco.release.calibration import calibrate, calibrate_uneven

__all__ = ["OnlineToBatch", "State"]


@dataclass(frozen=True, eq=False)
class State:
    """The average and the one before it, the learner, the released sum and the squares of its norms."""

    step: int
    x: Array
    x_before: Array
    w: Array
    nabla: Array
    """g_{t-1}, a sum of released means."""
    squares: float
    weights: float
    """beta_{1:t}, for the average x that is asked about next."""


@dataclass(frozen=True)
class OnlineToBatch(Algorithm):
    """Anytime online-to-batch with AdaGrad-norm; weights t^``power``."""

    step: float | None = None
    power: int = 1
    constants: str = "tight"

    name = "online-to-batch"
    knobs = ("step",)
    gradients_per_example = 2
    reason = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("power", self.power, "The average of w_t has weights t^power.")
        one_of("constants", self.constants, CONSTANTS)

    def _formulas(self, plan: Plan) -> dict[str, float]:
        return {"step": 2.0 * reach(plan)}

    def _weight(self, t: int) -> float:
        """beta_t."""
        return float(t**self.power)

    def _schedule(self, plan: Plan) -> Schedule:
        clips = self._clips(plan)
        p, rows = plan.problem.parameters, plan.n if plan.budget.adjacency == "add-remove" else plan.batch_size
        noises = plan.noise_mechanism
        if self.power == 1:  # nearly even: one clip for all rounds
            return Schedule(calibrate(plan.budget, noises, clip=max(clips), dimension=p, rows=rows), noises)
        return Schedule(calibrate_uneven(plan.budget, noises, clips=clips, dimension=p, rows=rows), noises)

    def _clips(self, plan: Plan) -> list[float]:
        rises = [self._weight(t) - self._weight(t - 1) for t in range(1, plan.rounds + 1)]
        if self.constants == "tight":
            return [plan.clip * rise for rise in rises]
        if not math.isfinite(plan.problem.diameter):
            raise InvalidArgument("constants='paper' needs a bounded domain: its clip grows with the diameter.")
        moved = plan.problem.smoothness * plan.problem.diameter
        clips, total = [], 0.0
        for t, rise in enumerate(rises, start=1):
            total += self._weight(t)
            clips.append(rise * plan.clip + self._weight(t - 1) * moved * self._weight(t) / total)
        return clips

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0, x0, w=x0, nabla=np.zeros_like(x0), squares=0.0, weights=1.0)

    def ask(self, plan: Plan, state: State) -> Query:
        t = state.step + 1
        if t == 1:
            return self._query(plan, 0, (state.x,), (self._weight(1),))
        return self._query(plan, t - 1, (state.x, state.x_before), (self._weight(t), -self._weight(t - 1)))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        t = state.step + 1
        g = state.nabla + self._mean(plan, state, released)
        squares = state.squares + float(g @ g)
        a = self._knob(plan, "step") / math.sqrt(2.0 * squares) if squares > 0.0 else 0.0
        w = plan.problem.domain.project(state.w - a * g)
        weights = state.weights + self._weight(t + 1)
        x = state.x + (self._weight(t + 1) / weights) * (w - state.x)
        return State(t, x, state.x, w, g, squares, weights)

    def output(self, state: State) -> Array:
        """x_T; the state already holds x_{T+1}."""
        return state.x_before
