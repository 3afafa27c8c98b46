"""Rows at rest: one pass, objective perturbation with or without a survey, or sufficient statistics.

In a population (spectrum_priors.py) of curvatures h_j, squared distances d_j and disagreement g, with n rows:

    objective perturbation   1/2 sum_j h_j (d_j ridge^2 + sigma^2 + n h_j g) / (n h_j + ridge)^2
    sufficient statistics    the same, sigma^2 the variance of the noise in a y and in a a' times the optimum, the ridge
                             of methods/sufficient_statistics.py
    survey and rounds        1/2 sum_j of a harmonic mean of h_j d_j, the signal, and of noise and sampling
                             C^2 / (n_1^2 mu^2 h'_j) + g / n_1 on the n_1 later rows; h'_j = c s_j / (s_j + kappa) is
                             the curvature of direction j in the survey's metric, s_j = h_j / c, kappa half the spectral
                             size of the survey's noise, C^2 = slope^2 sum_j s_j / (s_j + kappa)
    plain rounds             as response_planner.py predicts

An objective behind a survey has the formula of rounds behind one. The last two leave out what planning from a noisy
release and few rounds cost: ``SURVEYED`` and ``BEHIND`` times, and ``DOUBT`` more per unit of the survey's noise. These
were set on the twenty regimes of python -m benchmarks solvers, on those of --random 1 to 4 and 501, and on some thirty
others of 1,000 to 8,000 rows. ``PLAIN`` is a cautious guess: none of these regimes is planned without a survey. The
least geometric mean over the populations wins. Public numbers alone decide. One pass is kept where it is all that is
possible: streams, clusters, federations, ``partial_fit``.

Scales of columns
    The populations have columns of ordinary scales. Those of a table may differ a hundredfold. No public number says
    so. A ridge that is alike for all columns then loses the small ones, and few rounds do not reach them. Objective
    perturbation behind a survey does (methods/surveyed_objective.py). Where a survey of all rows would have noise below
    ``SEEN`` in the mean of each number, sqrt(2 p) / (mu n), it had at most 1.4 times the excess of the best other
    method in these regimes, and down to an eightieth of theirs. So it is taken there, without a prediction; one pass
    where its proof does not cover the problem, the budget or the account. One pass over few rows without an intercept
    has no survey; an objective has one there too, below ``SEEN_BY_FEW``: a third of the excess of a plain one at best,
    1.4 times as much at worst.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpsco.accounting.budget import ADJACENCY, Budget
from dpsco.errors import InvalidArgument
from dpsco.methods import METHODS, ObjectivePerturbation, SufficientStatistics, Surveyed, SurveyedObjective
from dpsco.methods.sufficient_statistics import RIDGE
from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction
from dpsco.planning.spectrum_priors import loss_scale, populations
from dpsco.planning.surveyed_plan import surveyed_plan
from dpsco.problem import Problem
from dpsco.query import Array

__all__ = ["SOLVERS", "least_excess", "rest_plan"]

SOLVERS = ("one-pass", "auto", ObjectivePerturbation.name, SufficientStatistics.name, SurveyedObjective.name)
"""What ``solver=`` of the estimators can be."""

SURVEYED, PLAIN = 2.0, 1.5
"""Excess over predicted excess, relative to that of objective perturbation: of rounds behind a survey, and of the plain
plan."""

BEHIND, BEHIND_FAINT, FAINT = 0.85, 1.2, 0.04
"""The same of an objective behind a survey: with an intercept, and without one or where the survey's noise, as ``SEEN``
counts it, is above ``FAINT``. Objective perturbation has more than is predicted for it where a few directions hold most
of the rows' length, and the constant is one such direction."""

DOUBT = 0.25
"""What a survey adds to the first two of these, in units of its noise over a typical direction."""

MOST_WORK = 2e12
"""Multiply-adds of one pass, n p^2, up to which objective perturbation is considered."""


_SCALES = (
    "which learns how the columns are scaled: objective perturbation and sufficient statistics have to assume that all "
    "are alike"
)
_EXACT = "and its minimiser is exact where few rounds leave small columns behind; its privacy needs a convex loss"

SEEN = 0.012
"""Noise of a survey of all rows over a typical direction, per column, below which it sees how columns are scaled. Times
the root of the number of scores: classes share a survey, and each adds noise to an objective without one."""

SEEN_BY_FEW, FEWEST = 0.009, 1_000
"""The same, and least rows, where one pass does without a survey: few rows, no intercept (surveyed_planner.py)."""


def rest_plan(problem: Problem, n: int, budget: Budget, name: str) -> Plan:
    """Return the plan of a method for rows at rest, with its predicted excess; a survey predicts it later."""
    if name == SurveyedObjective.name:
        for survey in ("auto", "full"):  # the second one raises where none is possible
            made = surveyed_plan(problem, n, budget, rounds=None, survey=survey, later=ObjectivePerturbation.name)
            if made is not None:
                return made
    method = METHODS[name].planned(problem, n, budget)
    plan = Plan(problem, n, budget, method, rule="formula")
    return dataclasses.replace(plan, prediction=_ridge_prediction(plan)) if budget.private else plan


def least_excess(one_pass: Plan, problem: Problem, *, wide: Problem | None = None, gaussian: bool = False) -> Plan:
    """Return the plan of least predicted excess for rows that can be read many times.

    Parameters
    ----------
    one_pass : Plan
        What one pass would do.
    problem : Problem
        What methods for rows at rest would solve; the domain may be another ball.
    wide : Problem, optional
        What an objective behind a survey would solve where one pass has none; None where no survey is wanted.
    gaussian : bool
        Whether the run must be mu-GDP, as an account needs it.
    """
    n, budget = one_pass.n, one_pass.budget
    if not budget.private or n < 2:
        return one_pass
    surveyed = isinstance(one_pass.method, Surveyed)
    noise = _survey_noise(one_pass) / (problem.dimension + problem.intercept) / math.sqrt(problem.loss.outputs)
    seen = noise < (SEEN if surveyed else SEEN_BY_FEW)
    asked = one_pass.problem if surveyed else wide if seen and n >= FEWEST else None
    possible = not gaussian and _work(problem, n) <= MOST_WORK
    behind = _behind_survey(asked, n, budget) if asked is not None and possible else None
    if seen and behind is not None:
        return dataclasses.replace(behind, rule=f"{behind.rule}, {_SCALES}, {_EXACT}")
    if seen and surveyed:
        return dataclasses.replace(one_pass, rule=f"{one_pass.rule}, {_SCALES}")
    found = [(_one_pass_excess(one_pass), one_pass)]
    if behind is not None:
        more = BEHIND if problem.intercept and noise < FAINT else BEHIND_FAINT
        found.append((_one_pass_excess(one_pass) * more / SURVEYED, behind))
    for name in (ObjectivePerturbation.name, SufficientStatistics.name):
        try:
            plan = rest_plan(problem, n, budget, name)
        except InvalidArgument:
            continue  # its proof does not cover the problem or the budget
        work = _work(problem, n) if name == ObjectivePerturbation.name else 0.0
        if plan.predicted_excess is None or work > MOST_WORK or (gaussian and not plan.schedule.accounting.gaussian):
            continue
        found.append((plan.predicted_excess, plan))
    best, chosen = min(found, key=lambda pair: pair[0])
    others = ", ".join(f"{plan.method.name} {excess:.2g}" for excess, plan in found if plan is not chosen)
    if not others:
        return one_pass
    why = f"least predicted excess: {best:.2g}, against {others}"
    return dataclasses.replace(chosen, rule=why if chosen.rule == "formula" else f"{chosen.rule}, {why}")


def _behind_survey(problem: Problem, n: int, budget: Budget) -> Plan | None:
    """Return objective perturbation behind a survey; None where its proof does not cover the problem or the budget."""
    try:
        return rest_plan(problem, n, budget, SurveyedObjective.name)
    except InvalidArgument:
        return None


def _work(problem: Problem, n: int) -> float:
    return n * float(problem.parameters) ** 2


def _survey_noise(plan: Plan) -> float:
    """Noise of a survey of all rows over a typical direction (surveyed_planner.py)."""
    columns = plan.problem.dimension + plan.problem.intercept
    return math.sqrt(2.0 * ADJACENCY[plan.budget.adjacency]) * columns**1.5 / (plan.budget.mu_per_record * plan.n)


def _mean(excess: Array) -> float:
    return math.exp(float(np.mean(np.log(excess))))


def _one_pass_excess(plan: Plan) -> float:
    if not isinstance(plan.method, Surveyed):
        return PLAIN * (plan.predicted_excess or math.inf)
    problem, budget, rows = plan.problem, plan.budget, plan.method.rows
    population, scale = populations(problem), loss_scale(problem)
    mu, later = budget.mu_per_record, plan.n - rows
    columns = problem.parameters // problem.loss.outputs
    apart = ADJACENCY[budget.adjacency]
    h, count, c = population.curvature, population.count, scale.curvature
    norm = problem.row_norm**2
    kappa = 0.5 * math.sqrt(2.0 * columns) * norm * math.sqrt(apart) / (mu * rows)
    white = h / c / (h / c + kappa)
    copies = max(1, problem.loss.outputs - 1)
    clip = scale.slope**2 * np.sum(count / copies * white, axis=1, keepdims=True)
    each = 0.5 * (clip * (apart / (later * mu)) ** 2 / (c * white) + population.disagreement / later)
    signal = 0.5 * h * population.distance / count
    return SURVEYED * (1 + DOUBT * _survey_noise(plan)) * _mean(np.sum(count * each * signal / (each + signal), axis=1))


def _ridge_prediction(plan: Plan) -> Prediction:
    """Return the prediction of a ridge solution: objective perturbation, or statistics."""
    population, n, schedule = populations(plan.problem), plan.n, plan.schedule
    h, count, distance = population.curvature, population.count, population.distance
    if isinstance(plan.method, SufficientStatistics):
        moment = plan.method.moment(plan.problem)
        sigma = schedule.most_noise.sigma * moment.feature_norm**2
        of_labels = sigma / (moment.omega * moment.feature_norm)
        tilt = of_labels**2 + sigma**2 / 2 * np.sum(distance, axis=1, keepdims=True)
        r = sigma * math.sqrt(2.0 * plan.problem.parameters)
        ridge = RIDGE * r * r / (r + n * np.min(h, axis=1, keepdims=True))
    else:
        tilt, ridge = np.array([[schedule.inner_sigma**2]]), np.array([[schedule.settings["ridge"]]])
    under = 0.5 * h / (n * h + ridge) ** 2
    parts = [
        np.sum(under * part, axis=1)
        for part in (distance * ridge**2, count * tilt, count * n * h * population.disagreement)
    ]
    total = parts[0] + parts[1] + parts[2]
    mean = _mean(total)
    return Prediction(*(mean * float(np.mean(part / total)) for part in parts))
