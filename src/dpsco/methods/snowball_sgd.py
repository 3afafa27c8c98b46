"""Snowball-SGD (Feldman, Koren, Talwar 2020): one noisy pass with growing batches, private by iteration.

    for t = 1 .. T:  x <- Proj(x - step_size [mean gradient of B_t fresh rows + N(0, s^2 I)])
    output x_T, nothing before
    B_t = ceil(a / sqrt(T - t + 1)),   s = max over t of S L / (mu B_t sqrt(T - t + 1))

``rounds=None``: a = S sqrt(p) / mu, so that s = L / sqrt(p) at most, and T is the largest number whose batches fit into
n rows. ``rounds=T`` fixes T instead, and a is the largest for which the batches fit.

Guarantee, for convex, L-Lipschitz, M-smooth losses and step <= 2/M: a row of batch t moves the iterate by at most
S L step / B_t; every later map, projection included, is non-expansive, and every step from t on adds noise of
deviation step s. Two runs that are z apart before a step can be made to look z - a_k apart after it at the price of
G(a_k / (step s)), a Gaussian trade-off (the shifted interpolation of Bok, Su, Altschuler 2024); spreading the shift
evenly over the remaining steps composes to

    mu_t = S L / (B_t s sqrt(T - t + 1)),        and the last iterate is max_t mu_t-GDP,

exactly so for linear losses. Averages and earlier iterates are not covered: there is no trace, no checkpoint.
Computed maps are non-expansive but for rounding, at most e_k in step k: it adds sqrt(T) max e_k / (B_k s) to mu, for
which 2^-10 of the budget is kept back. The noise of the last step lies on a fine grid, so the lowest bits of the model
would be those of the iterate before it: the last move is rounded to cells of about step s / 16, where it changes the
probability of a cell by a factor within exp(+-2 e / cell) in each coordinate (e the fine grid and the last move's own
rounding). So a run has the law of an exact one up to a factor within exp(+-2 p e / cell), which costs 5.2 p e / cell of
mu (step 5 of float_noise.py). It is taken from what is kept back too.
Cost: one gradient per row; T steps, nearly n of them if p is small.
The batch rule is the paper's; the constant step size D_0 / (L sqrt(2 T)), at most 2/M, is the library's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.methods.convex import ConvexMethod
from dpsco.methods.method import mean_of, reach
from dpsco.methods.schedule import Schedule, fresh_portions
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released, to_grid
from dpsco.release.calibration import Calibration, Uneven, check_support
from dpsco.release.float_noise import GDP_COST
from dpsco.release.mechanisms import Independent

__all__ = ["SnowballSGD", "SnowballSGDState", "batch_sizes"]

_KEPT_BACK = 2.0**-10
_GRID = 2.0**-38
_COARSE = 2.0**-4
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class SnowballSGDState:
    """The iterate. NOT to be shown before the last round."""

    step: int
    x: Array


def batch_sizes(a: float, rounds: int) -> list[int]:
    """B_1 .. B_T."""
    left = np.arange(rounds, 0, -1, dtype=np.float64)  # T - t + 1
    return np.maximum(1, np.ceil(a / np.sqrt(left))).astype(np.int64).tolist()


@dataclass(frozen=True, kw_only=True)
class SnowballSGD(ConvexMethod):
    """Noisy projected SGD whose batches grow; releases the last iterate.

    Parameters
    ----------
    clip : float
        Bound on one row's gradient.
    step_size : float, optional
        By formula unless given.
    rounds : int, optional
        Number of steps T; the batches decide unless given.
    """

    step_size: float | None = None
    rounds: int | None = None

    name: ClassVar[str] = "snowball-sgd"
    tunable: ClassVar[tuple[str, ...]] = ("step_size",)
    releases: ClassVar[str] = "last iterate"
    reason: ClassVar[str] = (
        "steps on convex, smooth losses do not push two runs apart, and every step adds Gaussian noise."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            why = "It is the number of steps T; None lets the batches decide."
            object.__setattr__(self, "rounds", positive_integer("rounds", self.rounds, why))

    def _sizes(self, problem: Problem, n: int, budget: Budget) -> list[int]:
        if self.rounds is None:
            a = budget.clips_apart * math.sqrt(problem.parameters) / _mu(budget)
            if a > n:
                raise InvalidArgument(
                    f"n={n} rows are too few for method={self.name!r}: its last batch alone needs {a:.3g}. Use more "
                    "rows, a larger epsilon, or rounds=T with more noise."
                )
            T = _largest(n, lambda rounds: sum(batch_sizes(a, rounds)) <= n)
            return batch_sizes(a, T)
        T = self.rounds
        if n < T:
            raise InvalidArgument(f"Expected rounds={T} <= n={n}: every step needs a fresh row.")
        grain = 1 << 20
        best = _largest(n * grain, lambda a: sum(batch_sizes(a / grain * math.sqrt(T), T)) <= n, low=0)
        return batch_sizes(best / grain * math.sqrt(T), T)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give the rounds batches that grow, with one noise on every step."""
        self._check_convex(problem, budget)
        sizes = self._sizes(problem, n, budget)
        T, S, L, largest = len(sizes), budget.clips_apart, self._lipschitz(problem), self._largest_step(problem)
        settings = self._setting("step_size", min(reach(problem) / (L * math.sqrt(2.0 * T)), largest))
        self._check_non_expansive(settings["step_size"], largest)
        left = np.arange(T, 0, -1, dtype=np.float64)
        worst = float(np.max(1.0 / (np.array(sizes) * np.sqrt(left))))
        s = S * L * worst / _mu(budget) * (1.0 + 1e-12)
        noise = {B: self._batch_noise(problem, budget, B, B * s) for B in set(sizes)}
        if budget.private:
            self._check_rounding(problem, budget, settings["step_size"], s, noise, T)
        return Schedule(
            problem=problem,
            n=n,
            budget=budget,
            settings=settings,
            calibration=Uneven(tuple(noise[B] for B in sizes)),
            mechanism=Independent(T),
            portions=fresh_portions(sizes),
            sampling=f"from {min(sizes):,} to {max(sizes):,} fresh rows per round, one pass",
        )

    def _batch_noise(self, problem: Problem, budget: Budget, size: int, sigma: float) -> Calibration:
        """Noise on the sum of one batch; the grid is fine, since a step's rounding adds up over the steps."""
        L, S = self._lipschitz(problem), budget.clips_apart
        grid = 0.0 if sigma == 0.0 else 2.0 ** math.floor(math.log2(_GRID * sigma))
        slack = self._on_sum(problem, size, grid)
        return Calibration(clip=L, sigma=sigma, grid=grid, difference=S * L + slack, slack=slack, rowwise=False)

    def _on_sum(self, problem: Problem, size: int, grid: float) -> float:
        """Return what rounding adds to the distance of two sums of ``size`` rows: grids of blocks, and float64."""
        p = problem.parameters
        blocks = math.sqrt(p) * grid * -(-size // 256)
        return blocks + 8 * (p + 300) * _ROUNDOFF * size * self._lipschitz(problem)

    def _check_rounding(
        self, problem: Problem, budget: Budget, step: float, s: float, noise: dict[int, Calibration], T: int
    ) -> None:
        """Refuse where rounding could cost more than was kept back for it."""
        L, p, R = self._lipschitz(problem), problem.parameters, problem.radius
        on_sum = max(part.slack / part.sigma for part in noise.values())
        on_move = 16 * (p + 8) * _ROUNDOFF * (R / step + L) / s
        strays = max(part.grid / part.sigma for part in noise.values()) + _ROUNDOFF * ((R / step + 3 * L) / s + 40)
        in_cells = GDP_COST * 2 * p * strays / (_COARSE / 2)  # a cell is at least half of what was asked for
        check_support(budget, T * p)
        if math.sqrt(T) * (on_sum + on_move) + in_cells > _KEPT_BACK * budget.mu_per_record:
            raise InvalidArgument(
                f"Rounding over {T} steps could cost more privacy than method={self.name!r} keeps back for it. Use "
                "a larger step_size, a larger epsilon or fewer rows."
            )

    def start(self, schedule: Schedule, x0: Array) -> SnowballSGDState:
        """Set x_0 to the start."""
        return SnowballSGDState(0, x0)

    def ask(self, schedule: Schedule, state: SnowballSGDState) -> Query:
        """Ask for the gradient at x_t."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: SnowballSGDState, released: Released) -> SnowballSGDState:
        """Take the projected step; round the last one."""
        step, t = schedule.settings["step_size"], state.step
        moved = state.x - step * mean_of(schedule, state, released)
        if t == schedule.rounds - 1 and schedule.budget.private:
            s = schedule.calibration.at(t).sigma / schedule.size(t)
            moved = to_grid(moved, 2.0 ** math.floor(math.log2(_COARSE * step * s)))
        return SnowballSGDState(t + 1, schedule.problem.domain.project(moved))


def _mu(budget: Budget) -> float:
    """Return mu without what is kept back for rounding."""
    return budget.mu_per_record * (1.0 - _KEPT_BACK)


def _largest(limit: int, fits: Callable[[int], bool], low: int = 1) -> int:
    """Return the largest whole number from ``low`` to ``limit`` that fits, where everything below it does too."""
    while low < limit:
        middle = (low + limit + 1) // 2
        low, limit = (middle, limit) if fits(middle) else (low, middle - 1)
    return low
