"""Objective perturbation behind a survey: one release of the geometry, then one of a minimiser in it.

    stage 0   the first n_0 rows are asked once for their joint contribution, as in every survey (methods/surveyed.py)
    stage 1   the other n - n_0 rows become b = P a, shortened to length F, and their tilted sum of losses is minimised
              in the coordinates u, x = P'u (methods/objective_perturbation.py); many passes, one release

P, F, the ridge and its centre follow from the released survey (planning/objective_in_geometry.py). A ridge that is
alike for all directions of u weighs those of x by the size of the rows along them: columns may differ in scale, which
plain objective perturbation has to assume they do not.

Statement
    If stage 0 is (epsilon, delta)-DP for its rows, and stage 1 is (epsilon, delta)-DP for its rows whatever P, F, ridge
    and centre it was given, the run is (epsilon, delta)-DP.
Proof (parallel composition, adaptive)
    A row is in stage 0 or in stage 1, by its public position, never in both. Let two neighbours differ in one row.
    Row of stage 0: the survey is mu-GDP at the budget's mu, so (epsilon, delta)-DP. Stage 1 is a random function of the
    released survey and of rows that the neighbours share: post-processing.
    Row of stage 1: the released survey r has the same law on both neighbours. Given r, everything that stage 1 is
    planned with is fixed before its first row is read. b is a function of its row and of r (clipping/row_map.py),
    shortened to F whatever rounding made it, so the losses f(<b, u>) are convex, L-Lipschitz and M-smooth with the L
    and M of F, and accounting/objective.py gives P(S_r | D, r) <= exp(epsilon) P(S_r | D', r) + delta for every r and
    set S_r. The mean over r of both sides is the statement.
    The condition of P does not enter: no row is compared with another, and a long row is a shorter one.
Cost
    One pass for the survey; about ten over the other rows, p^2 operations per row in each.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.accounting.composition import Composition
from dpsco.errors import InvalidArgument
from dpsco.methods.objective_perturbation import PASSES, ObjectivePerturbation
from dpsco.methods.schedule import Schedule
from dpsco.methods.surveyed import INTERCEPT, WIDEST, Surveyed
from dpsco.problem import L2Ball, Problem

__all__ = ["SurveyedObjective", "plain_objective"]

RADIUS = 100.0
"""Of the ball of models on rows of norm 1."""


@dataclass(frozen=True, kw_only=True)
class SurveyedObjective(Surveyed):
    """A survey, then the certified minimiser of a randomly tilted sum of losses in the geometry that it shows.

    Parameters
    ----------
    rounds : int
        2: the survey and the release of the minimiser.
    rows : int
        n_0: rows that are surveyed. The objective does not see them.
    kind, gradient, health, clip
        As in ``Surveyed``.
    later : {"objective-perturbation"}
        What comes behind the survey.
    """

    rounds: int = 2
    later: str = ObjectivePerturbation.name

    name: ClassVar[str] = "surveyed-objective-perturbation"
    laters: ClassVar[tuple[str, ...]] = (ObjectivePerturbation.name,)
    needs: ClassVar[str] = ObjectivePerturbation.needs
    releases: ClassVar[str] = "phase outputs"
    single_epoch: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "each row enters the survey or the objective, never both. Gaussian noise covers the survey's sum. Gaussian "
        "noise in a convex objective hides what one row does to its minimiser, which is released within a certified "
        "distance."
    )
    assumptions: ClassVar[tuple[str, ...]] = ObjectivePerturbation.assumptions

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Return the schedule of the survey; refuse where an objective behind it might have no plan."""
        if problem.dimension + problem.intercept > WIDEST:
            raise InvalidArgument(
                f"Expected at most {WIDEST:,} columns for method={self.name!r}: it passes over dense rows many times. "
                "Plan rounds behind a survey, or survey='none'."
            )
        made = super().schedule(problem, n, budget)
        plain_objective(problem, n - self.rows, budget)
        text = (
            "each row is in one of two releases: the survey is exact Gaussian at the budget, the minimiser behind it "
            "objective perturbation at the budget"
        )
        return dataclasses.replace(made, accounting=Composition(text, gaussian=False))

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return the passes over the rows behind the survey."""
        return PASSES

    def steps_in_words(self, schedule: Schedule) -> str:
        """State what decides on coordinates and ridge."""
        return f"{super().steps_in_words(schedule)}: coordinates, longest row and ridge of the objective"


def plain_objective(problem: Problem, rows: int, budget: Budget) -> tuple[Problem, ObjectivePerturbation]:
    """Return problem and method of an objective on rows that no survey turned: of norm up to 1, the constant included.

    It is what a run does whose survey shows nothing usable. Public numbers alone decide, so that such a run is refused
    before its first row or never.
    """
    columns = problem.dimension + problem.intercept
    longest = math.hypot(1.0, INTERCEPT) if problem.intercept else 1.0
    mapped = Problem(problem.loss, L2Ball(RADIUS), columns, feature_norm=longest)
    method = ObjectivePerturbation.planned(mapped, rows, budget)
    method.schedule(mapped, rows, budget)
    return mapped, method  # type: ignore[return-value]
