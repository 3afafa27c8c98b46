"""The survey: one second-order round that learns the geometry of the rows, before rounds of Algorithm 1 in it.

A surveyed run has two stages.

    stage 0   the first n_0 rows are asked once for their joint contribution (clipping/survey.py): second moment,
              gradient at zero, health. One Gaussian release at the full mu.
    stage 1   a method planned from the released survey alone (planning/second_stage.py), on the other n - n_0 rows,
              at the full mu.

Statement
    If stage 0 is mu-GDP for its rows, and stage 1 is mu-GDP for its rows whatever plan it was given, the run is mu-GDP.
Proof (parallel composition, adaptive)
    A row is in stage 0 or in stage 1, by its public position or by a hash of its own id, never in both. Let two
    neighbours differ in one row.
    Row of stage 0: the survey's releases on the neighbours are mu-GDP close. Stage 1 is a random function of the
    released survey and of rows that the neighbours share: post-processing, so the whole is mu-GDP close.
    Row of stage 1: the released survey r has the same law on both neighbours. For every r, the plan of stage 1 is fixed
    before its first row is read, and its releases are mu-GDP close. A mixture over r of pairs that are mu-GDP close,
    with r itself released, is mu-GDP close: a test with type I error alpha(r) has type II error at least
    G_mu(alpha(r)), and G_mu is convex, so the mean of it is at least G_mu(mean of alpha(r)).
    So T, B, clip, beta, mechanism and metric of stage 1 may depend on r. The budget may not: both stages take mu from
    the plan.
Cost
    One pass, one round more than stage 1.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.survey import MOMENTS, joint_bounds, survey_size
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.methods.method import Method, RoundMethod, value_of
from dpsco.methods.schedule import Schedule
from dpsco.problem import Box, CustomLoss, Everything, Huber, L2Ball, Logistic, Problem, Softmax, Squared
from dpsco.query import Array, Moment, Query, Released
from dpsco.release.calibration import calibrate_survey, check_support
from dpsco.release.mechanisms import Independent

__all__ = [
    "INTERCEPT",
    "LATER",
    "MomentMethod",
    "Surveyed",
    "SurveyedState",
    "moment_clip",
    "moment_of",
    "moment_schedule",
    "refusal",
]

INTERCEPT = 0.5
"""The constant column, in units of the feature norm: the squared row norm is 1.25 instead of 2."""

_MOST_DRAWS = 4
"""Normals per later round and parameter at most: squares double the sums, and some mechanisms the rows of noise."""

LATER = ("accelerated-srgd", "unaccelerated-srgd", "dp-sgd", "dp-ftrl")
"""Methods that rounds in a geometry can have: fresh rows, clipped sums, correlated or independent Gaussian noise."""

WIDEST = 2048
"""Most columns, the intercept's included, that a full survey takes: it releases their square."""

WIDEST_SKETCH = 1 << 16
"""Most columns that a low-rank survey takes."""

WIDEST_DIAGONAL = 1 << 24
"""Most columns that a diagonal survey takes: it releases three numbers per column, and plans with as many."""


@dataclass(frozen=True, eq=False)
class SurveyedState:
    """Before and after the survey: private by post-processing, and publishable."""

    step: int
    x: Array
    released: Array | None = None
    nabla: None = None


@dataclass(frozen=True, kw_only=True)
class MomentMethod(Method):
    """A method whose only question of its own is one joint contribution per row (clipping/survey.py)."""

    @abc.abstractmethod
    def moment(self, problem: Problem) -> Moment:
        """Return what the round asks of each row."""

    def start(self, schedule: Schedule, x0: Array) -> SurveyedState:
        """Set x_0 to the start."""
        return SurveyedState(0, x0)

    def ask(self, schedule: Schedule, state: SurveyedState) -> Query:
        """Return the joint contribution of each row, the gradient at zero weighed by omega = kappa rho / G."""
        moment = self.moment(schedule.problem)
        query = self._query(schedule, state.step, (np.zeros(schedule.problem.parameters),), (moment.omega,))
        return dataclasses.replace(query, moment=moment)


@dataclass(frozen=True, kw_only=True)
class Surveyed(MomentMethod, RoundMethod):
    """A survey, then rounds of Algorithm 1 in the geometry that it shows.

    Parameters
    ----------
    rounds : int
        The most adaptive rounds, the survey's included. The released survey decides how many are used.
    rows : int
        n_0: rows that are surveyed. No later round sees them.
    kind : {"full", "diagonal", "low-rank"}
        What is released of the second moment.
    later : {"accelerated-srgd", "unaccelerated-srgd", "dp-sgd", "dp-ftrl", "measured-srgd"}
        Method of the later rounds. The released survey decides on its hyperparameters. "measured-srgd" is
        "accelerated-srgd" that also releases squares of contributions, for intervals.
    gradient, health : float
        Weights of the gradient at zero and of each health indicator, relative to the second moment.
    clip : float
        Bound on one row's joint contribution in units of the squared row norm. It follows from the weights: leave it
        out.
    """

    clip: float = 0.0
    rows: int
    kind: str = "full"
    later: str = "accelerated-srgd"
    gradient: float = 0.5
    health: float = 0.1

    name: ClassVar[str] = "surveyed"
    laters: ClassVar[tuple[str, ...]] = (*LATER, MeasuredSRGD.name)
    """What ``later`` can be."""
    reason: ClassVar[str] = (
        "each row enters the survey or one clipped difference, never both; one Gaussian mechanism covers either."
    )

    def __post_init__(self) -> None:
        put = object.__setattr__
        one_of("kind", self.kind, MOMENTS)
        one_of("later", self.later, self.laters)
        put(self, "rows", positive_integer("rows", self.rows, "It is the number of surveyed rows."))
        for name in ("gradient", "health"):
            put(self, name, positive(name, getattr(self, name), "It weighs a part of the survey."))
        put(self, "clip", moment_clip(self.clip, self.kind, self.gradient, self.health))
        super().__post_init__()
        if self.rounds < 2:
            raise InvalidArgument(f"Expected rounds={self.rounds} >= 2: the survey is one of them.")

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Return the schedule of the survey. That of the later rounds follows from what it releases."""
        refused = refusal(problem, self.kind)
        if refused:
            raise InvalidArgument(f"No survey is possible here: {refused}. Plan with survey='none'.")
        if self.rows + self.rounds > n:
            raise InvalidArgument(f"Expected rows={self.rows} well below n={n}: the later rounds need rows too.")
        made = moment_schedule(problem, n, budget, self.moment(problem), rows=self.rows)
        if budget.private:  # as many draws as the later rounds may need: they are refused now, or never
            check_support(budget, _MOST_DRAWS * self.rounds * problem.parameters)
        return made

    def moment(self, problem: Problem) -> Moment:
        """Return what the survey asks."""
        return dataclasses.replace(moment_of(problem, self.kind), gradient=self.gradient, health=self.health)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return 2, as later rounds ask."""
        return 2

    def steps_in_words(self, schedule: Schedule) -> str:
        """State what decides on the steps."""
        by_id = schedule.budget.adjacency == "add-remove"
        return f"decided by the released survey of {self.surveyed_rows(by_id=by_id)}"

    def surveyed_rows(self, *, by_id: bool) -> str:
        """State which rows are surveyed, by their place or by their ids."""
        return f"about {self.rows:,} rows, which their ids decide" if by_id else f"the first {self.rows:,} rows"

    def tell(self, schedule: Schedule, state: SurveyedState, released: Released) -> SurveyedState:
        """Keep what the survey released."""
        return SurveyedState(state.step + 1, state.x, value_of(state, released))


def refusal(problem: Problem, kind: str) -> str:
    """Why no survey of a kind can be made, in words; empty if one can."""
    if isinstance(problem.loss, CustomLoss):
        return "a custom loss has no feature matrix that the library knows"
    centred = isinstance(problem.domain, L2Ball) and problem.domain.center is None
    boxed = isinstance(problem.domain, Box) and kind == "diagonal"  # scaled columns keep a box a box
    if not centred and not boxed and not isinstance(problem.domain, Everything):
        return "the domain has no cheap projection in the new coordinates (a ball about 0 has one, a box if diagonal)"
    widest = {"low-rank": WIDEST_SKETCH, "diagonal": WIDEST_DIAGONAL}.get(kind, WIDEST)
    if problem.dimension + problem.intercept > widest:
        others = f"survey='low-rank' takes up to {WIDEST_SKETCH:,}, survey='diagonal' up to {WIDEST_DIAGONAL:,}"
        return f"rows have more than {widest:,} columns ({others})"
    return ""


def moment_clip(clip: float, kind: str, gradient: float, health: float) -> float:
    """Return the bound on one row's joint contribution, in units of the squared row norm; ``clip`` is 0 or that."""
    bound = joint_bounds(Moment(kind, 1.0, 0.0, 1, 0, 1.0, gradient, health))[0]
    if clip not in (0.0, bound):
        raise InvalidArgument(f"Expected clip={clip} to be left out: it follows from the weights.")
    return bound


def moment_schedule(problem: Problem, n: int, budget: Budget, moment: Moment, *, rows: int) -> Schedule:
    """Return the schedule of one round that releases the joint contributions of ``rows`` rows."""
    clip, apart = joint_bounds(moment)
    length = survey_size(moment, problem.parameters)
    most = n if budget.adjacency == "add-remove" else rows  # which rows are asked is secret then
    return Schedule(
        problem=problem,
        n=n,
        budget=budget,
        settings={},
        calibration=calibrate_survey(budget, clip=clip, apart=apart, dimension=length, rows=most),
        mechanism=Independent(1),
        batch_size=rows,
        survey_length=length,
    )


def moment_of(problem: Problem, kind: str) -> Moment:
    """Return the survey's question for a problem, with the default weights."""
    loss = problem.loss
    if isinstance(loss, Logistic):
        slope = 0.5
    elif isinstance(loss, Softmax):
        slope = math.sqrt(1 - 1 / loss.classes)
    elif isinstance(loss, Squared):
        slope = loss.label_bound
    elif isinstance(loss, Huber):
        slope = loss.width
    else:
        slope = loss.lipschitz(1.0, 0.0)
    constant = INTERCEPT if problem.intercept else 0.0
    return Moment(kind, problem.feature_norm, constant, loss.outputs, loss.class_count, slope, gradient=0.5, health=0.1)
