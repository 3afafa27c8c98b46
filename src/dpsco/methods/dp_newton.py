"""Damped Newton steps on noisy Hessians and gradients: every step is a pass over all rows.

    S_t = sum over all rows of w a a' + noise,   g_t = sum of a phi'(<a, x_t>) + noise      one joint release per step
    H_t = M (S_t with its negative eigenvalues set to 0)                                    clipping/survey.py
    x_{t+1} = Proj(x_t - (H_t + damping I)^-1 g_t);   output x_T

phi is the loss in the score, M its largest second derivative, w = c + (1 - c) phi''(<a, x_t>) / M. c is 0.05 for the
logistic loss, so that scores far from 0 do not make steps explode, and 0.5 for losses whose second derivative has
corners: H_t is then at least half of a bound on every Hessian, and noise-free steps descend. Rows are scaled to norm 1
and have the constant 1/2 for an intercept, as a survey's; slopes are clamped at the Lipschitz constant of the loss in
the score, for the squared loss at its label bound. Newton methods with noise per step: Avella-Medina, Bradshaw and Loh
(2023); Ganesh, Haghifam, Steinke and Thakurta (2023). Joint release, damping and rounds are the library's own.

The damping
    Noise moves H_t by about r = M sigma sqrt(2 p), so the damping is at least r. A step keeps the share
    k = (damping + r/2) / (n h + damping) of a direction of curvature h, at least 0.2 of it because the loss is no
    quadratic, and adds noise sigma' / (n h + damping) to it:

        1/2 sum_j h_j (k_j^(2T) D^2/p + sigma'^2 / (n h_j + damping)^2 (1 - k_j^(2T)) / (1 - k_j^2)).

    Damping and T minimise it over a grid for curvatures h_j ~ 1/j of trace M/2 and an optimum at distance
    D = min(R / 2, 2.5 G / M), G the clamp. All numbers are public.

Guarantee: T adaptive Gaussian releases of the same bounded sums: sigma = sqrt(T) S C / mu makes the run exactly mu-GDP,
for any rows.
Cost: T passes, p^2 operations per row in each; p (p + 1) / 2 + p + 4 numbers per release.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.survey import joint_bounds, survey_size, unpack
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.method import Method, RoundMethod, no_positions, value_of
from dpsco.methods.schedule import Schedule
from dpsco.methods.surveyed import WIDEST, moment_clip, moment_of
from dpsco.parallel import one_blas_thread
from dpsco.problem import CustomLoss, Logistic, Problem, Squared
from dpsco.query import Array, Curvature, Portion, Query, Released
from dpsco.release.calibration import calibrate_round
from dpsco.release.mechanisms import Independent

__all__ = ["DPNewton", "DPNewtonState"]

_HEALTH = 0.01
_ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_BENT = 0.2
_DAMPINGS = 2.0 ** np.arange(0.0, 16.5, 0.5)


@dataclass(frozen=True, eq=False)
class DPNewtonState:
    """The iterate and the last released gradient, over n."""

    step: int
    x: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class DPNewton(RoundMethod):
    """Damped Newton steps, each on a noisy Hessian and gradient of all rows.

    Parameters
    ----------
    rounds : int
        Number of steps T; a step is a pass.
    clip : float
        Bound on one row's joint contribution, in units of the squared row norm. It follows from the weight: leave it
        out.
    damping : float, optional
        Added to the Hessian of the sum; by formula unless given.
    gradient : float
        Weight of the gradient relative to the Hessian, at most sqrt 2.
    """

    clip: float = 0.0
    damping: float | None = None
    gradient: float = 1.4

    name: ClassVar[str] = "dp-newton"
    single_epoch: ClassVar[bool] = False
    tunable: ClassVar[tuple[str, ...]] = ("damping",)
    reason: ClassVar[str] = (
        "every step adds Gaussian noise to a bounded sum over all rows, and T such releases compose exactly."
    )

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "gradient", positive("gradient", self.gradient, "It weighs the gradient relative to the Hessian."))
        put(self, "clip", moment_clip(self.clip, "full", self.gradient, _HEALTH))
        super().__post_init__()

    @classmethod
    def planned(cls, problem: Problem, n: int, budget: Budget, **given: Any) -> Method:
        """Return the method with rounds and damping by formula."""
        candidates = (given.pop("rounds"),) if "rounds" in given else _ROUNDS
        found = []
        for rounds in candidates:
            method = cls(rounds=rounds, **given)
            damping, excess = method._formula(problem, n, method.schedule(problem, n, budget).most_noise.sigma)
            found.append((excess, dataclasses.replace(method, damping=method.damping or damping)))
        return min(found, key=lambda pair: pair[0])[1]

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give all rows to every step; steps compose as Gaussian mechanisms."""
        no_positions(self.name, budget)
        if isinstance(problem.loss, CustomLoss) or problem.loss.outputs > 1:
            raise InvalidArgument(
                f"method={self.name!r} needs the second derivative in one score per row, which the {problem.loss.kind} "
                "loss does not have here. Use a method that releases gradients."
            )
        if problem.parameters > WIDEST:
            raise InvalidArgument(
                f"Expected at most {WIDEST:,} parameters for method={self.name!r}, got {problem.parameters:,}: their "
                "square is released. Use a method that releases gradients."
            )
        T, moment = self.rounds, self.moment(problem)
        length = survey_size(moment, problem.parameters)
        z = math.sqrt(T) / budget.mu_per_record if budget.private else 1.0
        clip = joint_bounds(moment)[0]
        noise = calibrate_round(budget, clip=clip, dimension=length, rows=n, multiplier=z, rounds=T)
        damping, _ = self._formula(problem, n, noise.sigma)
        return Schedule(
            problem=problem,
            n=n,
            budget=budget,
            settings=self._setting("damping", damping),
            calibration=noise,
            mechanism=Independent(T),
            portions=(Portion(0, n),) * T,
            sampling="all rows in every round",
            participations=T,
            survey_length=length,
        )

    def moment(self, problem: Problem) -> Curvature:
        """Return what a step asks of each row."""
        loss = problem.loss
        slope = loss.label_bound if isinstance(loss, Squared) else loss.lipschitz(1.0, 0.0)
        plain = dataclasses.asdict(moment_of(problem, "full"))
        least = 0.05 if isinstance(loss, Logistic) else 0.5
        return Curvature(**plain | {"slope": slope, "gradient": self.gradient, "health": _HEALTH, "least": least})

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return T: every step asks every row."""
        return schedule.rounds

    def start(self, schedule: Schedule, x0: Array) -> DPNewtonState:
        """Set x_0 to the start."""
        return DPNewtonState(0, x0, np.zeros_like(x0))

    def ask(self, schedule: Schedule, state: DPNewtonState) -> Query:
        """Ask for the Hessian and the gradient at x_t, in units of the scaled rows."""
        moment = self.moment(schedule.problem)
        point = state.x / _units(schedule.problem, moment)
        return dataclasses.replace(self._query(schedule, state.step, (point,), (moment.omega,)), moment=moment)

    def tell(self, schedule: Schedule, state: DPNewtonState, released: Released) -> DPNewtonState:
        """Take a damped Newton step."""
        value, problem, p = value_of(state, released), schedule.problem, schedule.problem.parameters
        moment, triangle = self.moment(problem), p * (p + 1) // 2
        g = value[triangle : triangle + p] / moment.omega
        with one_blas_thread():  # the same release gives the same model
            sizes, directions = np.linalg.eigh(unpack(value[:triangle], p))
        curvature = problem.loss.smoothness(1.0) * np.maximum(sizes, 0.0) + schedule.settings["damping"]
        units = _units(problem, moment)
        x = state.x - units * (directions @ ((directions.T @ g) / curvature))
        return DPNewtonState(state.step + 1, problem.domain.project(x), g / (units * schedule.n))

    def _formula(self, problem: Problem, n: int, sigma: float) -> tuple[float, float]:
        """(damping, predicted excess): the formula of this module, damping to four digits."""
        moment, p, M, T = self.moment(problem), problem.parameters, problem.loss.smoothness(1.0), self.rounds
        shares = 1.0 / np.arange(1.0, p + 1.0)
        h = 0.5 * M * shares / np.sum(shares)
        square = min(problem.radius * problem.feature_norm / 2, 2.5 * moment.slope / M) ** 2 / p
        r, noise = M * sigma * math.sqrt(2.0 * p), sigma / moment.omega
        dampings = r * _DAMPINGS if r else np.array([1e-9 * M * n])
        under = n * h + dampings[:, None]
        k = np.clip((dampings[:, None] + r / 2) / under, _BENT, 1.0 - 1e-9) ** 2
        excess = 0.5 * np.sum(h * (k**T * square + (noise / under) ** 2 * (1 - k**T) / (1 - k)), axis=1)
        best = int(np.argmin(excess))
        return float(f"{dampings[best]:.4g}"), float(excess[best])


def _units(problem: Problem, moment: Curvature) -> Array:
    """Return what one unit of each coordinate of the scaled rows is worth in parameters."""
    units = np.full(problem.parameters, 1.0 / moment.feature_norm)
    units[problem.dimension :] = moment.constant
    return units
