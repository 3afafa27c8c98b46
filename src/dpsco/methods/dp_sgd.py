"""DP-SGD in one pass: projected gradient steps on fresh batches, independent noise.

    g_t     = 1/B [sum over B fresh rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    x_{t+1} = Proj(x_t - step g_t)
    output the average of the last half of the iterates ("tail"), of all of them ("average"), or x_T ("last")

Guarantee: a row is in one batch, so one release depends on it directly and later ones through what was released:
nothing composes, and sigma = S C / mu makes the run mu-GDP for any loss.
Cost: one gradient a row; T steps.
Reference: Abadi et al. 2016, Bassily et al. 2014. step = min(1/M, D_0 / (V sqrt T)), V^2 = L^2/B + p (sigma/B)^2, is
the standard one for smooth losses; averaging the last half is the default because it was best when tuned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.errors import one_of
from dpsco.methods.method import Algorithm, Schedule, bound, independent, reach
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released

__all__ = ["DPSGD", "State"]

ITERATES = ("average", "last", "tail")


@dataclass(frozen=True, eq=False)
class State:
    """The iterate, the mean of those that count for the output, the last noisy gradient."""

    step: int
    x: Array
    mean: Array
    nabla: Array


@dataclass(frozen=True)
class DPSGD(Algorithm):
    """One-pass DP-SGD; ``iterate`` says what it returns."""

    step: float | None = None
    iterate: str = "tail"

    name = "dp-sgd"
    knobs = ("step",)
    reason = "each row is in one batch, and the clipped sum of a batch is released once with Gaussian noise."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("iterate", self.iterate, ITERATES)

    def _formulas(self, plan: Plan) -> dict[str, float]:
        schedule, p = self.schedule(plan), plan.problem.parameters
        size = schedule.size(plan, 0)
        variance = bound(plan) ** 2 / size + p * (schedule.worst().sigma / size) ** 2
        return {"step": min(1.0 / plan.problem.smoothness, reach(plan) / math.sqrt(variance * schedule.rounds))}

    def _schedule(self, plan: Plan) -> Schedule:
        return independent(plan)

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0, mean=x0, nabla=np.zeros_like(x0))

    def ask(self, plan: Plan, state: State) -> Query:
        return self._query(plan, state.step, (state.x,))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        g = self._mean(plan, state, released)
        x = plan.problem.domain.project(state.x - self._knob(plan, "step") * g)
        mean = averaged(self.iterate, state.mean, x, state.step, self.schedule(plan).rounds)
        return State(state.step + 1, x, mean, nabla=g)

    def output(self, state: State) -> Array:
        return state.mean


def averaged(iterate: str, mean: Array, x: Array, step: int, rounds: int) -> Array:
    """The mean with ``x``, the iterate after round ``step``, in it, from the first round on that counts."""
    first = {"last": rounds, "average": 0, "tail": rounds // 2}[iterate]
    return x if step <= first else mean + (x - mean) / (step - first + 1)
