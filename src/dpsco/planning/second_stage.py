"""From a released survey to the plan of the later rounds.

    survey -> geometry -> start, metric P, T, B, clip, beta, z-step, mechanism -> a plan on the rows P a

A release that shows nothing usable gives the plain plan on the rows as they are: a run whose survey is spent never ends
in a refusal.

Guarantee: post-processing of the released survey. The budget is that of the first stage's plan, and nothing here can
change it. The same release gives the same plan: BLAS runs on one thread. Under add-remove any of
its rounds has room for all n rows, as the survey has.
Cost: about 10 ms at 20 columns, 40 ms at 250.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from dpsco.clipping.diagonal_map import diagonal_map
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.clipping.row_map import RowMap
from dpsco.errors import InvalidArgument
from dpsco.methods.in_geometry import mapped_problem
from dpsco.methods.surveyed import WIDEST, Surveyed
from dpsco.methods.surveyed_objective import SurveyedObjective, plain_objective
from dpsco.parallel import one_blas_thread
from dpsco.planning.axes_geometry import axes_geometry
from dpsco.planning.geometry import Geometry, geometry
from dpsco.planning.low_rank_geometry import low_rank_geometry
from dpsco.planning.objective_in_geometry import objective_in
from dpsco.planning.plan import Plan
from dpsco.planning.released_survey import Health, ReleasedSurvey, read_survey
from dpsco.planning.response_planner import response_plan
from dpsco.planning.rounds_in_geometry import InMetric, fitting, rounds_in
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.survey_start import Start, start_from
from dpsco.problem import Everything, L2Ball, Logistic, Problem, Softmax, Squared
from dpsco.query import Array

__all__ = ["SecondStage", "second_stage"]

_WIDE = 20.0
_LEAST_SLOPE = 1e-4
"""Mean squared slope over its bound, at least."""


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The later rounds of a surveyed run."""

    plan: Plan
    """Of the rounds on mapped rows, in the coordinates of u."""
    map: RowMap
    start: Array
    """u_0."""
    geometry: Geometry
    survey: ReleasedSurvey

    @property
    def health(self) -> Health:
        """The survey's health check."""
        return self.survey.health


def second_stage(plan: Plan, released: Array) -> SecondStage:
    """Return the plan of the later rounds.

    Parameters
    ----------
    plan : Plan
        A plan with a survey.
    released : array
        What the survey released.
    """
    with one_blas_thread(), np.errstate(all="ignore"):
        return _second_stage(plan, released)


def _second_stage(plan: Plan, released: Array) -> SecondStage:
    problem, budget, method = plan.problem, plan.budget, plan.method
    if not isinstance(method, Surveyed):
        raise InvalidArgument(f"Expected a plan with a survey, got method={method.name!r}.")
    columns, moment, scale = problem.dimension + problem.intercept, method.moment(problem), loss_scale(problem)
    survey = read_survey(
        released, moment, columns=columns, rows=method.rows, sigma=plan.schedule.calibration.at(0).sigma
    )
    seen = _geometry(survey, columns)
    shape = fitting(problem, dataclasses.replace(seen, feature_norm=problem.feature_norm))
    kind = problem.loss.kind if isinstance(problem.loss, (Logistic, Softmax)) else "other"
    objective = isinstance(method, SurveyedObjective)
    start = start_from(survey, shape, loss=kind, curvature=scale.curvature, gap=scale.gap, doubted=objective)
    left = plan.n - method.rows
    if isinstance(method, SurveyedObjective):
        return _objective(plan, method, shape, survey, start)
    made = rounds_in(
        problem,
        left,
        budget,
        shape,
        start,
        survey_rows=method.rows,
        most=method.rounds - 1,
        later=method.later,
        squared_slope=_squared_slope(problem, survey, start, moment.slope),
    )
    if made is None:
        return _unwhitened(plan, method, shape, survey)
    mapped = mapped_problem(problem, made.map)
    return SecondStage(
        plan=_with_room(
            plan, Plan(mapped, left, budget, made.later, rule="released survey", prediction=made.prediction)
        ),
        map=made.map,
        start=mapped.domain.project(made.start),
        geometry=shape,
        survey=survey,
    )


def _geometry(survey: ReleasedSurvey, columns: int) -> Geometry:
    if survey.kind == "low-rank":
        return low_rank_geometry(survey)
    return axes_geometry(survey) if survey.kind == "diagonal" and columns > WIDEST else geometry(survey)


def _objective(
    plan: Plan, method: SurveyedObjective, shape: Geometry, survey: ReleasedSurvey, start: Start
) -> SecondStage:
    """Return the objective on the other rows: in the survey's geometry, or as they are if that shows nothing usable."""
    problem, budget, left = plan.problem, plan.budget, plan.n - method.rows
    made = objective_in(problem, left, budget, shape, start, survey_rows=method.rows)
    if made is None:
        mapped, later = plain_objective(problem, left, budget)
        found = InMetric(_as_they_are(plan, method), later, None, np.zeros(mapped.parameters))
    else:
        mapped, found = made
    later_plan = Plan(mapped, left, budget, found.later, rule="released survey", prediction=found.prediction)
    return SecondStage(later_plan, found.map, mapped.domain.project(found.start), shape, survey)


def _squared_slope(problem: Problem, survey: ReleasedSurvey, start: Start, slope: float) -> float:
    """Return the mean square of the loss's derivative near the optimum, or somewhat more."""
    seen = survey.health.squared_slope
    if isinstance(problem.loss, (Logistic, Softmax)):  # a likelihood's Hessian is the covariance of its gradients
        return start.curvature * max(problem.loss.outputs - 1, 1)
    if seen is None:
        return slope**2
    at_zero = slope**2 * seen
    if not isinstance(problem.loss, Squared):
        return max(at_zero, _LEAST_SLOPE * slope**2)
    explained = float(np.sum(survey.gradient * start.x.reshape(survey.gradient.shape)))
    doubt = math.hypot(slope**2 * survey.health.noise, survey.gradient_noise * float(np.linalg.norm(start.x)))
    return max(at_zero + explained, 0.1 * at_zero, _LEAST_SLOPE * slope**2) + doubt


def _unwhitened(plan: Plan, method: Surveyed, shape: Geometry, survey: ReleasedSurvey) -> SecondStage:
    """Return the plain plan on the other rows, for a survey that shows nothing usable."""
    problem, left, most = plan.problem, plan.n - method.rows, method.rounds - 1
    row_map = _as_they_are(plan, method)
    mapped = mapped_problem(problem, row_map)
    if isinstance(problem.loss, Squared) and isinstance(mapped.domain, Everything):  # it has slopes of every size there
        mapped = dataclasses.replace(mapped, domain=L2Ball(_WIDE * problem.loss.label_bound))
    made = response_plan(mapped, left, plan.budget)
    if made.rounds > most:
        made = response_plan(mapped, left, plan.budget, rounds=most)
    start = mapped.domain.project(np.zeros(mapped.parameters))
    made = _with_room(plan, dataclasses.replace(made, rule="released survey"))
    return SecondStage(made, row_map, start, shape, survey)


def _as_they_are(plan: Plan, method: Surveyed) -> RowMap:
    """Return the map that only scales rows to norm 1 and adds the constant."""
    problem, constant = plan.problem, method.moment(plan.problem).constant
    columns = problem.dimension + problem.intercept
    if method.kind == "diagonal":
        return diagonal_map(np.ones(columns), problem.feature_norm, constant)
    none = np.zeros((columns, 0))
    return LowRankMap(none, problem.feature_norm, constant, none, np.zeros(0), 1.0)


def _with_room(plan: Plan, later: Plan) -> Plan:
    """Return the plan of the later rounds, for n rows in any of them where a row's round is secret."""
    if plan.budget.adjacency != "add-remove":
        return later
    method = dataclasses.replace(later.method, batch_size=later.batch_size)  # type: ignore[call-arg]
    return dataclasses.replace(later, n=plan.n, method=method)
