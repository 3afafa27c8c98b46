"""What methods of output perturbation share: disjoint phases, each half as long as the one before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.methods.convex import ConvexMethod
from dpsco.methods.method import reach, value_of
from dpsco.methods.schedule import Schedule, fresh_portions
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released
from dpsco.release.calibration import Uneven, calibrate_output
from dpsco.release.mechanisms import Independent

__all__ = ["PhasedMethod", "PhasedState", "phase_rows", "phased_schedule", "rounding", "step_formula", "summation"]

_MOST_PHASES = 10
"""Steps and noise fall by 4 per phase: after ten they are 10^-6 of the first, which float64 still resolves."""

_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class PhasedState:
    """The output of the last phase."""

    step: int
    x: Array
    nabla: None = None


@dataclass(frozen=True, kw_only=True)
class PhasedMethod(ConvexMethod):
    """A method that releases the output of each phase, and nothing in between.

    Parameters
    ----------
    step_size : float, optional
        eta, of which phase i takes eta / 4^i; by formula unless given.
    """

    step_size: float | None = None

    tunable: ClassVar[tuple[str, ...]] = ("step_size",)
    releases: ClassVar[str] = "phase outputs"

    def start(self, schedule: Schedule, x0: Array) -> PhasedState:
        """Set w_0 to the start."""
        return PhasedState(0, x0)

    def ask(self, schedule: Schedule, state: PhasedState) -> Query:
        """Run the next phase from w."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: PhasedState, released: Released) -> PhasedState:
        """Project the phase's released output."""
        return PhasedState(state.step + 1, schedule.problem.domain.project(value_of(state, released)))


def phase_rows(n: int, phases: int | None = None) -> list[int]:
    """n_i = floor(n / 2^i), i = 1 .. k; k = ceil(log2 n) unless given, ten at most."""
    k = max(1, math.ceil(math.log2(n))) if phases is None else phases
    return [max(1, n >> i) for i in range(1, min(k, _MOST_PHASES) + 1) if n >> i or i == 1]


def step_formula(problem: Problem, n: int, budget: Budget, L: float, rows: list[int]) -> float:
    """Return eta for eta_i = eta / 4^i.

    It minimises the bound

        4 D_0^2 / (eta n) + sum_i eta_i L^2 / 2 + sum_{i>=2} p s_{i-1}^2 / (2 eta_i n_i) + L sqrt(p) s_k

    with s_i = S L eta_i / mu: what optimisation, sampling and the noise of the phases cost.
    """
    p, k = problem.parameters, len(rows)
    c = 0.0 if not budget.private else budget.clips_apart * L / budget.mu_per_record
    slope = sum(L * L / (2 * 4.0**i) for i in range(1, k + 1))
    slope += sum(p * (c * 4.0 ** -(i - 1)) ** 2 / (2 * 4.0**-i * rows[i - 1]) for i in range(2, k + 1))
    slope += L * math.sqrt(p) * c * 4.0**-k
    return math.sqrt(4 * reach(problem) ** 2 / n / slope)


def phased_schedule(
    problem: Problem,
    n: int,
    budget: Budget,
    settings: Mapping[str, float],
    rows: list[int],
    moved: Iterable[tuple[float, float]],
    passes: str,
) -> Schedule:
    """Return the schedule of disjoint phases with noise on the output of each.

    Parameters
    ----------
    problem, n, budget
        As in ``Method.schedule``.
    settings : mapping
        Every tunable hyperparameter by name.
    rows : list of int
        Rows of each phase.
    moved : iterable of (float, float)
        Of each phase: how far one clipped row moves its output, and how far the computed output may be off.
    passes : str
        How often a phase sees its rows, for the report.

    Returns
    -------
    Schedule
    """
    noise = [
        calibrate_output(
            budget,
            sensitivity=sensitivity,
            error=error,
            dimension=problem.parameters,
            largest=problem.radius,
            rounds=len(rows),
        )
        for sensitivity, error in moved
    ]
    return Schedule(
        problem=problem,
        n=n,
        budget=budget,
        settings=settings,
        calibration=Uneven(tuple(noise)),
        mechanism=Independent(len(rows)),
        portions=fresh_portions(rows),
        sampling=f"phases of {rows[0]:,} down to {rows[-1]:,} {passes}",
    )


def rounding(problem: Problem, steps: float, move: float) -> float:
    """How far ``steps`` computed moves of length up to ``move``, each with its projection, stray from exact ones."""
    return 8 * steps * (problem.parameters + 16) * _ROUNDOFF * (problem.radius + move)


def summation(rows: int, L: float) -> float:
    """How far a computed mean of ``rows`` vectors of length up to L strays from the exact one, in any order."""
    return 2 * rows * _ROUNDOFF * L
