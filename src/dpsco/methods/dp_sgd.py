"""DP-SGD in one pass: projected gradient steps on fresh batches, independent noise.

    g_t     = 1/B [sum over B fresh rows of clip(grad f(x_t, d), C) + N(0, sigma^2 I)]
    x_{t+1} = Proj(x_t - step_size g_t)
    output the average of the last half of the iterates ("tail"), of all of them ("average"), or x_T ("last")

Guarantee: a row is in one batch, so one release depends on it directly and later ones through what was released:
nothing composes, and sigma = S C / mu makes the run mu-GDP for any loss.
Cost: one gradient per row; T steps.
Reference: Abadi et al. 2016, Bassily et al. 2014. step_size = min(1/M, D_0 / (V sqrt T)) with
V^2 = L^2/B + p (sigma/B)^2 is the standard one for smooth losses. Averaging the last half is the default because it
was best when tuned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.errors import one_of
from dpsco.methods.fresh_batches import FreshBatches
from dpsco.methods.method import RoundMethod, gradient_bound, mean_of, reach
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released

__all__ = ["DPSGD", "ITERATES", "DPSGDState", "GradientSteps", "averaged"]

ITERATES = ("average", "last", "tail")


@dataclass(frozen=True, eq=False)
class DPSGDState:
    """The iterate, the mean of those that count for the output, the last noisy gradient."""

    step: int
    x: Array
    mean: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class GradientSteps(RoundMethod):
    """Projected gradient steps on independent noisy gradients, whatever rows they are of."""

    step_size: float | None = None
    iterate: str = "tail"

    tunable: ClassVar[tuple[str, ...]] = ("step_size",)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("iterate", self.iterate, ITERATES)

    def _formula(self, problem: Problem, size: float, sigma: float) -> float:
        variance = gradient_bound(problem, self.clip) ** 2 / size + problem.parameters * (sigma / size) ** 2
        return min(1.0 / problem.smoothness, reach(problem) / math.sqrt(variance * self.rounds))

    def start(self, schedule: Schedule, x0: Array) -> DPSGDState:
        """Set x_0 to the start."""
        return DPSGDState(0, x0, mean=x0, nabla=np.zeros_like(x0))

    def ask(self, schedule: Schedule, state: DPSGDState) -> Query:
        """Ask for the gradient at x_t."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: DPSGDState, released: Released) -> DPSGDState:
        """Take the projected step."""
        g = mean_of(schedule, state, released)
        x = schedule.problem.domain.project(state.x - schedule.settings["step_size"] * g)
        mean = averaged(self.iterate, state.mean, x, state.step, self.rounds)
        return DPSGDState(state.step + 1, x, mean, nabla=g)

    def output(self, state: DPSGDState) -> Array:
        """Return the mean of the iterates that count."""
        return state.mean


@dataclass(frozen=True, kw_only=True)
class DPSGD(GradientSteps, FreshBatches):
    """DP-SGD in one pass.

    Parameters
    ----------
    rounds, clip, batch_size
        As in ``AcceleratedSRGD``.
    step_size : float, optional
        By formula unless given.
    iterate : {"tail", "average", "last"}
        What it returns.
    """

    name: ClassVar[str] = "dp-sgd"


def averaged(iterate: str, mean: Array, x: Array, step: int, rounds: int) -> Array:
    """Return the mean with ``x``, the iterate after round ``step``, in it, from the first round on that counts."""
    first = {"last": rounds, "average": 0, "tail": rounds // 2}[iterate]
    return x if step <= first else mean + (x - mean) / (step - first + 1)
