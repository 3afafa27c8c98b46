"""From a released survey to the plan of the later rounds.

    survey -> geometry -> start, metric P, T, B, clip, beta, z-step, mechanism -> a plan on the rows P a

A release that shows nothing usable gives the plain plan on the rows as they are: a run whose survey is spent never ends
in a refusal.

Guarantee: post-processing of the released survey. The budget is that of the first stage's plan, and nothing here can
change it. The same release gives the same plan: BLAS runs on one thread.
Cost: 0.3 s at 50 columns, about 1 s at 800.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from dpsco.clipping.row_map import RowMap
from dpsco.errors import InvalidArgument
from dpsco.methods import AcceleratedSRGD
from dpsco.methods.surveyed import Surveyed
from dpsco.parallel import one_blas_thread
from dpsco.planning.geometry import Geometry, geometry, metric
from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction
from dpsco.planning.released_survey import Health, read_survey
from dpsco.planning.response_planner import response_plan
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.survey_start import start_from
from dpsco.planning.surveyed_planner import rounds_choice
from dpsco.problem import Everything, L2Ball, Logistic, Problem, Softmax, Squared
from dpsco.problem.domains import Domain
from dpsco.problem.mapped_ball import mapped_ball
from dpsco.query import Array

__all__ = ["SecondStage", "second_stage"]

_LEAST_RATIO = 1e-4
_WIDE = 20.0
_SANE = 1e12
"""Clip, beta and the length of mapped rows are of order 1 to p: whatever is beyond this is not a plan."""


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The later rounds of a surveyed run."""

    plan: Plan
    """Of the rounds on mapped rows, in the coordinates of u."""
    map: RowMap
    start: Array
    """u_0."""
    geometry: Geometry
    health: Health


def second_stage(plan: Plan, released: Array) -> SecondStage:
    """The plan of the later rounds.

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
    columns, outputs = problem.dimension + problem.intercept, problem.loss.outputs
    moment, scale = method.moment(problem), loss_scale(problem)
    survey = read_survey(
        released, moment, columns=columns, rows=method.rows, sigma=plan.schedule.calibration.at(0).sigma
    )
    shape = geometry(survey)
    likelihood = isinstance(problem.loss, (Logistic, Softmax))
    kind = problem.loss.kind if likelihood else "other"
    start = start_from(survey, shape, loss=kind, curvature=scale.curvature, gap=scale.gap)
    left = plan.n - method.rows
    choice = rounds_choice(
        shape,
        start,
        survey_rows=method.rows,
        rows=left,
        mu=budget.mu_per_record,
        rounds=method.rounds - 1,
        outputs=outputs,
        slope=1.0 if likelihood else scale.slope,
        disagreement=scale.disagreement,
        clips_apart=budget.clips_apart,
    )
    form = metric(shape, choice.ridge)
    row_map = RowMap(form.matrix, problem.feature_norm, moment.constant)
    longest = math.hypot(1.0, moment.constant) * float(np.linalg.norm(row_map.matrix, 2))
    finite = math.isfinite(choice.predicted)
    if not finite or not all(1 / _SANE < value < _SANE for value in (choice.clip, choice.beta, longest)):
        return _unwhitened(plan, method, shape, survey.health)
    later = AcceleratedSRGD(
        rounds=choice.rounds,
        beta=choice.beta,
        clip=choice.clip if budget.private else math.inf,
        z_step=choice.z_step,
        mechanism="workload",
        prior=tuple(np.clip(choice.ratios, _LEAST_RATIO, 1.0).tolist()),
    )
    mapped = Problem(
        loss=problem.loss,
        domain=_domain(problem.domain, row_map, columns),
        dimension=columns,
        feature_norm=longest,
    )
    u0 = np.asarray(form.start(start.x.reshape(columns, outputs)).T.ravel())
    if not np.all(np.isfinite(u0)):
        u0 = np.zeros(columns * outputs)
    prediction = Prediction(choice.optimisation, choice.noise, choice.sampling)
    return SecondStage(
        plan=Plan(mapped, left, budget, later, rule="released survey", prediction=prediction),
        map=row_map,
        start=mapped.domain.project(u0),
        geometry=shape,
        health=survey.health,
    )


def _unwhitened(plan: Plan, method: Surveyed, shape: Geometry, health: Health) -> SecondStage:
    """The plain plan on the other rows, for a survey that shows nothing usable: its rows are spent, the rest go on."""
    problem, left, constant = plan.problem, plan.n - method.rows, method.moment(plan.problem).constant
    columns, most = problem.dimension + problem.intercept, method.rounds - 1
    row_map = RowMap(np.eye(columns), problem.feature_norm, constant)
    domain = _domain(problem.domain, row_map, columns)
    if isinstance(problem.loss, Squared) and isinstance(domain, Everything):  # it has slopes of every size there
        domain = L2Ball(_WIDE * problem.loss.label_bound)
    mapped = Problem(problem.loss, domain, columns, feature_norm=math.hypot(1.0, constant))
    made = response_plan(mapped, left, plan.budget)
    if made.rounds > most:
        made = response_plan(mapped, left, plan.budget, rounds=most)
    start = mapped.domain.project(np.zeros(mapped.parameters))
    return SecondStage(dataclasses.replace(made, rule="released survey"), row_map, start, shape, health)


def _domain(domain: Domain, row_map: RowMap, columns: int) -> Domain:
    """The problem's own domain in the coordinates of u."""
    if not isinstance(domain, L2Ball):
        return Everything()
    back = row_map.parameters(np.eye(columns).ravel()).reshape(columns, columns)  # row i: parameters of unit vector i
    return mapped_ball(back.T, domain.radius)
