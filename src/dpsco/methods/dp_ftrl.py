"""DP-FTRL: follow the regularised leader on noisy prefix sums of gradients.

    g_t     = 1/B sum over B fresh rows of clip(grad f(x_t, d), C)  +  noise that is correlated over the rounds
    m_t     = momentum * m_{t-1} + g_t                   (m_t = g_t without momentum)
    s_t     = s_{t-1} + w_t m_t                          w_t = 1, or 2 (T - t) / (T + 1): steps that fall linearly
    x_{t+1} = Proj(x_0 - step_size s_t)
    output the average of the last half of the iterates ("tail"), of all of them ("average"), or x_T ("last")

The noise is that of ``mechanism``: the binary tree is Kairouz et al. 2021, "dense" and "sqrt" are the matrix
factorisations of Denisov et al. 2022 and Fichtenberger et al. 2023. "workload" is made for the last iterate of
Algorithm 1 and suits x_T of this method: with momentum 0.9, steps that fall and T = 244 the noise on x_T is 0.78 of
that of "sqrt" and within 5 % of the least possible. ``restarts`` starts the mechanism anew: the last noise of a segment
stays in the sum and later segments add their own to it.

Guarantee: a row is in one clipped increment, so the run is one Gaussian mechanism for any loss. A restart changes the
strategy to a block diagonal one, whose largest column norm is that of its segments.
Cost: one gradient per row; T steps; the memory of the mechanism.
step_size = min(1/M, D_0 / (V sqrt T)), V^2 = L^2/B + p e^2/T, e the noise on a prefix sum of mean gradients: DP-SGD's
formula with this noise, times 1 - momentum. It is the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, one_of
from dpsco.methods.dp_sgd import ITERATES, averaged
from dpsco.methods.method import RoundMethod, gradient_bound, mean_of, reach
from dpsco.methods.schedule import Schedule, fresh_batch_size, fresh_schedule
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released
from dpsco.release.mechanisms import MECHANISMS, Mechanism, mechanism
from dpsco.release.mechanisms.restarted import Restarted

__all__ = ["DECAYS", "DPFTRL", "DPFTRLState"]

DECAYS = ("linear", "none")


@dataclass(frozen=True, eq=False)
class DPFTRLState:
    """The iterate, where it started, the velocity m, the weighted sum s of velocities, the mean for the output."""

    step: int
    x: Array
    x0: Array
    velocity: Array
    moved: Array
    mean: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class DPFTRL(RoundMethod):
    """DP-FTRL in one pass.

    Parameters
    ----------
    rounds, clip, mechanism, batch_size
        As in ``AcceleratedSRGD``.
    step_size : float, optional
        By formula unless given.
    momentum : float
        In [0, 1).
    decay : {"none", "linear"}
        Whether the steps fall linearly, from twice ``step_size`` to almost 0.
    restarts : int
        How often the mechanism starts anew.
    iterate : {"tail", "average", "last"}
        What it returns.
    """

    step_size: float | None = None
    momentum: float = 0.0
    decay: str = "none"
    restarts: int = 0
    iterate: str = "tail"
    mechanism: str = "sqrt"
    batch_size: int = 0

    name: ClassVar[str] = "dp-ftrl"
    tunable: ClassVar[tuple[str, ...]] = ("step_size",)
    reason: ClassVar[str] = "each row enters one clipped increment, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("iterate", self.iterate, ITERATES)
        one_of("mechanism", self.mechanism, [*MECHANISMS, "auto"])
        one_of("decay", self.decay, DECAYS)
        if not 0.0 <= self.momentum < 1.0:
            raise InvalidArgument(f"Expected momentum={self.momentum!r} in [0, 1).")
        if isinstance(self.restarts, bool) or not isinstance(self.restarts, int) or self.restarts < 0:
            raise InvalidArgument(f"Expected restarts={self.restarts!r} to be a whole number >= 0.")

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a fresh batch, with correlated noise that may restart."""
        size, T, p = fresh_batch_size(self.rounds, self.batch_size, n), self.rounds, problem.parameters

        def segment(horizon: int) -> Mechanism:
            return mechanism(self.mechanism, horizon=horizon, dimension=p)

        noise = Restarted(T, self.restarts, segment) if self.restarts else segment(T)

        def settings(sigma: float) -> dict[str, float]:
            e = noise.mean_error * sigma / (noise.sensitivity * size)
            variance = gradient_bound(problem, self.clip) ** 2 / size + p * e**2 / T
            formula = min(1.0 / problem.smoothness, reach(problem) / math.sqrt(variance * T))
            return self._setting("step_size", formula * (1.0 - self.momentum))

        return fresh_schedule(problem, n, budget, noise, batch_size=size, clip=self.clip, settings=settings)

    def steps_in_words(self, schedule: Schedule) -> str:
        """State the step size, the momentum and the decay."""
        momentum = f", momentum = {self.momentum:g}" if self.momentum else ""
        falling = " on average, falling linearly" if self.decay == "linear" else ""
        return f"step_size = {schedule.settings['step_size']:.6g}{falling}{momentum}"

    def step_weights(self) -> Array:
        """Return w_t, of mean 1."""
        T = self.rounds
        return np.ones(T) if self.decay == "none" else np.asarray(2.0 * (T - np.arange(T)) / (T + 1.0), np.float64)

    def output_weights(self) -> Array:
        """Return the weights of g_0 .. g_{T-1} in (x_0 - output) / step_size, where no projection acts."""
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        velocities = np.where(lag >= 0, self.momentum ** np.maximum(lag, 0), 0.0)
        moved = np.cumsum(self.step_weights()[:, None] * velocities, axis=0)
        mean = moved[0]
        for step, row in enumerate(moved):
            mean = averaged(self.iterate, mean, row, step, self.rounds)
        return mean

    def start(self, schedule: Schedule, x0: Array) -> DPFTRLState:
        """Set x_0 to the start; nothing is summed yet."""
        zero = np.zeros_like(x0)
        return DPFTRLState(0, x0, x0, velocity=zero, moved=zero, mean=x0, nabla=zero)

    def ask(self, schedule: Schedule, state: DPFTRLState) -> Query:
        """Ask for the gradient at x_t."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: DPFTRLState, released: Released) -> DPFTRLState:
        """Add the velocity to the sum and move from x_0 along it."""
        g = mean_of(schedule, state, released)
        velocity = self.momentum * state.velocity + g
        moved = state.moved + self.step_weights()[state.step] * velocity
        x = schedule.problem.domain.project(state.x0 - schedule.settings["step_size"] * moved)
        mean = averaged(self.iterate, state.mean, x, state.step, self.rounds)
        return DPFTRLState(state.step + 1, x, state.x0, velocity, moved, mean, g)

    def output(self, state: DPFTRLState) -> Array:
        """Return the mean of the iterates that count."""
        return state.mean
