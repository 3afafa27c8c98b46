"""Snowball-SGD (Feldman, Koren, Talwar 2020): one noisy pass with growing batches, private by iteration.

    for t = 1 .. T:  x <- Proj(x - step [mean gradient of B_t fresh rows + N(0, s^2 I)]);   output x_T, nothing before
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
rounding). Two runs are 4 p e / cell apart by that, which is taken from what is kept back too.
Cost: one gradient a row; T steps, nearly n of them if p is small.
The batch rule is the paper's; the constant step D_0 / (L sqrt(2 T)), at most 2/M, is the library's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsco.errors import InvalidArgument, positive_integer
from dpsco.methods.method import Convex, Schedule, fresh, reach
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released, to_grid
from dpsco.release.calibration import Calibration, Uneven, check_support
from dpsco.release.mechanisms import Independent

__all__ = ["SnowballSGD", "State", "batch_sizes"]

_KEPT_BACK = 2.0**-10
_GRID = 2.0**-38
_COARSE = 2.0**-4
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class State:
    """The iterate. NOT to be shown before the last round."""

    step: int
    x: Array


def batch_sizes(a: float, rounds: int) -> list[int]:
    """B_1 .. B_T."""
    left = np.arange(rounds, 0, -1, dtype=np.float64)  # T - t + 1
    return np.maximum(1, np.ceil(a / np.sqrt(left))).astype(np.int64).tolist()


@dataclass(frozen=True)
class SnowballSGD(Convex):
    """Noisy projected SGD whose batches grow; releases the last iterate."""

    step: float | None = None
    rounds: int | None = None

    name = "snowball-sgd"
    knobs = ("step",)
    releases = "last iterate"
    reason = "steps on convex, smooth losses do not push two runs apart, and every step adds Gaussian noise."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            positive_integer("rounds", self.rounds, "It is the number of steps T; None lets the batches decide.")

    def _formulas(self, plan: Plan) -> dict[str, float]:
        T = len(self._sizes(plan))
        step = reach(plan) / (self._lipschitz(plan) * math.sqrt(2.0 * T))
        return {"step": min(step, self._largest_step(plan))}

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        super().check(plan, own_oracle=own_oracle)
        self._non_expansive(plan, self._knob(plan, "step"), self._largest_step(plan))

    def _mu(self, plan: Plan) -> float:
        return plan.budget.mu_per_record * (1.0 - _KEPT_BACK)

    def _sizes(self, plan: Plan) -> list[int]:
        n = plan.n
        if self.rounds is None:
            a = plan.budget.clips_apart * math.sqrt(plan.problem.parameters) / self._mu(plan)
            if a > n:
                raise InvalidArgument(
                    f"n={n} rows are too few for algorithm={self.name!r}: its last batch alone needs {a:.3g}. Use more "
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

    def _schedule(self, plan: Plan) -> Schedule:
        sizes = self._sizes(plan)
        T, S, L = len(sizes), plan.budget.clips_apart, self._lipschitz(plan)
        left = np.arange(T, 0, -1, dtype=np.float64)
        worst = float(np.max(1.0 / (np.array(sizes) * np.sqrt(left))))
        s = S * L * worst / self._mu(plan) * (1.0 + 1e-12)
        paid = {B: self._paid(plan, B, B * s) for B in set(sizes)}
        if plan.budget.private:
            self._check_rounding(plan, s, paid, T)
        words = f"from {min(sizes):,} to {max(sizes):,} fresh ones a round, one pass"
        return Schedule(Uneven(tuple(paid[B] for B in sizes)), Independent(T), fresh(sizes), words)

    def _paid(self, plan: Plan, size: int, sigma: float) -> Calibration:
        """Noise on the sum of one batch; the grid is fine, since a step's rounding adds up over the steps."""
        L, S = self._lipschitz(plan), plan.budget.clips_apart
        grid = 0.0 if sigma == 0.0 else 2.0 ** math.floor(math.log2(_GRID * sigma))
        slack = self._on_sum(plan, size, grid)
        return Calibration(clip=L, sigma=sigma, grid=grid, difference=S * L + slack, slack=slack, rowwise=False)

    def _on_sum(self, plan: Plan, size: int, grid: float) -> float:
        """What rounding adds to the distance of two sums of ``size`` rows: the grid of every block, and float64."""
        p = plan.problem.parameters
        blocks = math.sqrt(p) * grid * -(-size // 256)
        return blocks + 8 * (p + 300) * _ROUNDOFF * size * self._lipschitz(plan)

    def _check_rounding(self, plan: Plan, s: float, paid: dict[int, Calibration], T: int) -> None:
        """Refuse where rounding could cost more than was kept back for it."""
        L, p, R, step = self._lipschitz(plan), plan.problem.parameters, plan.problem.radius, self._knob(plan, "step")
        on_sum = max(part.slack / part.sigma for part in paid.values())
        on_move = 16 * (p + 8) * _ROUNDOFF * (R / step + L) / s
        strays = max(part.grid / part.sigma for part in paid.values()) + _ROUNDOFF * ((R / step + 3 * L) / s + 40)
        in_cells = 4 * p * strays / (_COARSE / 2)  # a cell is at least half of what was asked for
        check_support(plan.budget, T * T * p)
        if math.sqrt(T) * (on_sum + on_move) + in_cells > _KEPT_BACK * plan.budget.mu_per_record:
            raise InvalidArgument(
                f"Rounding over {T} steps could cost more privacy than algorithm={self.name!r} keeps back for it. Use "
                "a larger step, a larger epsilon or fewer rows."
            )

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0)

    def ask(self, plan: Plan, state: State) -> Query:
        return self._query(plan, state.step, (state.x,))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        schedule, step, t = self.schedule(plan), self._knob(plan, "step"), state.step
        moved = state.x - step * self._mean(plan, state, released)
        if t == schedule.rounds - 1 and plan.budget.private:
            s = schedule.calibration.at(t).sigma / schedule.size(plan, t)
            moved = to_grid(moved, 2.0 ** math.floor(math.log2(_COARSE * step * s)))
        return State(t + 1, plan.problem.domain.project(moved))

    def output(self, state: State) -> Array:
        return state.x


def _largest(limit: int, fits: Callable[[int], bool], low: int = 1) -> int:
    """The largest whole number from ``low`` to ``limit`` that fits, where everything below it does too."""
    while low < limit:
        middle = (low + limit + 1) // 2
        low, limit = (middle, limit) if fits(middle) else (low, middle - 1)
    return low
