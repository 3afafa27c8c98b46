"""DP online-to-batch (Zhang, Tran, Cutkosky 2022): an online learner on recursive gradients of its own averages.

    for t = 1 .. T, on B fresh rows, beta_t = t^k                                       x_1 = w_1 = the start
        d_t     = 1/B sum of clip(beta_t grad f(x_t, d) - beta_{t-1} grad f(x_{t-1}, d), C_t)
        g_t     = sum_{i<=t} d_i + correlated noise                                     estimates beta_t grad F(x_t)
        w_{t+1} = Proj(w_t - a_t g_t),    a_t = step_size / sqrt(2 sum_{s<=t} |g_s|^2)       AdaGrad-norm
        x_{t+1} = x_t + (beta_{t+1} / beta_{1:t+1}) (w_{t+1} - x_t)
    output x_T, the weighted average of w_1 .. w_T

The paper has B = 1 and T = n with the binary tree: use rounds=n, mechanism="tree".
``constants="tight"``: C_t = C (beta_t - beta_{t-1}), C the clip. ``"paper"``: what a difference can measure,
C_t = (beta_t - beta_{t-1}) C + beta_{t-1} M diam beta_t / beta_{1:t}; for k = 1 the largest is used in every round.

Guarantee: every row enters one clipped difference (x_t is fixed before its rows are read), so the run is one Gaussian
mechanism for any loss; a_t is a function of released values.
Cost: two gradients per row (one in round 1); T steps; a few p-vectors and the memory of the mechanism.
Recursion and weights follow the authors' code; step_size = diameter is AdaGrad-norm's own, the clips are the library's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, one_of, positive_integer
from dpsco.methods.method import RoundMethod, mean_of, reach
from dpsco.methods.schedule import Schedule, fresh_batch_size, fresh_schedule
from dpsco.methods.unaccelerated_srgd import CONSTANTS
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released
from dpsco.release.mechanisms import MECHANISMS, mechanism

__all__ = ["OnlineToBatch", "OnlineToBatchState"]


@dataclass(frozen=True, eq=False)
class OnlineToBatchState:
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


@dataclass(frozen=True, kw_only=True)
class OnlineToBatch(RoundMethod):
    """Anytime online-to-batch with AdaGrad-norm.

    Parameters
    ----------
    rounds, clip, mechanism, batch_size
        As in ``AcceleratedSRGD``.
    step_size : float, optional
        The diameter of the domain unless given.
    power : int
        The average of w_t has weights t^power.
    constants : {"tight", "paper"}
        Clips as proved here, or as the paper has them.
    """

    step_size: float | None = None
    power: int = 1
    constants: str = "tight"
    mechanism: str = "sqrt"
    batch_size: int = 0

    name: ClassVar[str] = "online-to-batch"
    tunable: ClassVar[tuple[str, ...]] = ("step_size",)
    reason: ClassVar[str] = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("power", self.power, "The average of w_t has weights t^power.")
        one_of("constants", self.constants, CONSTANTS)
        one_of("mechanism", self.mechanism, [*MECHANISMS, "auto"])

    def _weight(self, t: int) -> float:
        """beta_t."""
        return float(t**self.power)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a fresh batch, with correlated noise."""
        size = fresh_batch_size(self.rounds, self.batch_size, n)
        noise = mechanism(self.mechanism, horizon=self.rounds, dimension=problem.parameters)
        clips = self._clips(problem)
        clip: float | Sequence[float] = max(clips) if self.power == 1 else clips  # nearly even: one for all rounds
        settings = self._setting("step_size", 2.0 * reach(problem))
        return fresh_schedule(problem, n, budget, noise, batch_size=size, clip=clip, settings=lambda _: settings)

    def _clips(self, problem: Problem) -> list[float]:
        rises = [self._weight(t) - self._weight(t - 1) for t in range(1, self.rounds + 1)]
        if self.constants == "tight":
            return [self.clip * rise for rise in rises]
        if not math.isfinite(problem.diameter):
            raise InvalidArgument("constants='paper' needs a bounded domain: its clip grows with the diameter.")
        moved = problem.smoothness * problem.diameter
        clips, total = [], 0.0
        for t, rise in enumerate(rises, start=1):
            total += self._weight(t)
            clips.append(rise * self.clip + self._weight(t - 1) * moved * self._weight(t) / total)
        return clips

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return 2: at x_t and x_{t-1}."""
        return 2

    def start(self, schedule: Schedule, x0: Array) -> OnlineToBatchState:
        """Set x_1 = w_1 to the start."""
        return OnlineToBatchState(0, x0, x0, w=x0, nabla=np.zeros_like(x0), squares=0.0, weights=1.0)

    def ask(self, schedule: Schedule, state: OnlineToBatchState) -> Query:
        """Ask for the difference of weighted gradients."""
        t = state.step + 1
        if t == 1:
            return self._query(schedule, 0, (state.x,), (self._weight(1),))
        return self._query(schedule, t - 1, (state.x, state.x_before), (self._weight(t), -self._weight(t - 1)))

    def tell(self, schedule: Schedule, state: OnlineToBatchState, released: Released) -> OnlineToBatchState:
        """Move w along the released sum and average it into x."""
        t = state.step + 1
        g = state.nabla + mean_of(schedule, state, released)
        squares = state.squares + float(g @ g)
        a = schedule.settings["step_size"] / math.sqrt(2.0 * squares) if squares > 0.0 else 0.0
        w = schedule.problem.domain.project(state.w - a * g)
        weights = state.weights + self._weight(t + 1)
        x = state.x + (self._weight(t + 1) / weights) * (w - state.x)
        return OnlineToBatchState(t, x, state.x, w, g, squares, weights)

    def output(self, state: OnlineToBatchState) -> Array:
        """x_T; the state already holds x_{T+1}."""
        return state.x_before
