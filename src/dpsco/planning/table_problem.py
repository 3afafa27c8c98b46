"""What estimators and commands decide alike for tables: the ball of models, delta and the plan."""

from __future__ import annotations

import math
from typing import Any

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, one_of, positive_integer
from dpsco.methods import SurveyedObjective
from dpsco.planning.at_rest import SOLVERS, least_excess, rest_plan
from dpsco.planning.choose import SURVEYS, WANTED, plan
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.surveyed_plan import surveyed_plan
from dpsco.problem import Everything, Huber, L2Ball, Loss, Problem, Squared

__all__ = ["default_delta", "model_ball", "table_plan"]

ROOMY = 100.0
"""Radius of a model on rows at rest, in scores: the ridge keeps it ordinary, the ball need not."""
WIDE = 1000.0
"""Radius of a surveyed model, in scores: columns may be much shorter than the feature norm."""


def default_delta(n: int) -> float:
    """min(1e-5, n^-1.1): a function of the public n alone, safely below one row in n."""
    return min(1e-5, float(n) ** -1.1)


def model_ball(radius: float, loss: Loss) -> L2Ball | Everything:
    """Return the ball of models: ``radius``, and radius sqrt(K / 2) for K > 2 classes together; inf is no bound."""
    if math.isinf(radius):
        return Everything()
    return L2Ball(radius if loss.outputs == 1 else radius * math.sqrt(loss.outputs / 2))


def table_plan(
    loss: Loss,
    width: int,
    *,
    n: int,
    budget: Budget,
    intercept: bool,
    radius: float | None = None,
    rounds: int | None = None,
    survey: str = "auto",
    geometry: Geometry | None = None,
    solver: str = "one-pass",
    gaussian: bool = False,
    **options: Any,
) -> Plan:
    """Return the plan of a table whose rows are scaled into the unit ball.

    Parameters
    ----------
    loss, width, n, budget, intercept, rounds, survey, geometry
        As ``Problem`` and ``plan`` take them.
    **options
        rule, memory and mechanism, as ``plan`` takes them.
    radius : float, optional
        Bound on the norm of the model, in scores. Unless given, ``WIDE`` with a survey, and without one 20 for
        classifiers and 10 for regressions: the plain plan counts on models of ordinary size. ``ROOMY`` for methods on
        rows at rest.
    solver : {"one-pass", "auto", "objective-perturbation", "surveyed-objective-perturbation", "sufficient-statistics"}
        "auto": whichever has the least predicted excess on rows at rest (at_rest.py), where neither ``rounds``,
        ``geometry``, a kind of survey nor one of ``options`` is given: these belong to one pass.
    gaussian : bool
        Whether the run must be mu-GDP, as an account needs it.

    Raises
    ------
    InvalidArgument
        If a solver is named beside what belongs to one pass, or its proof does not cover the problem or the budget.
    """
    n = positive_integer("n", n, "It is the public number of rows.")
    free = all(value is None for value in options.values())
    if one_of("solver", solver, SOLVERS) != "one-pass":
        at_rest = Problem(loss, model_ball(radius or ROOMY, loss), width, intercept=intercept)
        bare = free and rounds is None and geometry is None and one_of("survey", survey, SURVEYS) not in WANTED
        if solver != "auto" and not bare:
            raise InvalidArgument(
                f"solver={solver!r} plans without rounds, geometry, a kind of survey, rule, memory and mechanism. "
                "Leave them out, or use solver='one-pass'."
            )
        wide = Problem(loss, model_ball(radius or WIDE, loss), width, intercept=intercept)
        if solver == SurveyedObjective.name:
            return rest_plan(wide, n, budget, solver)
        if solver != "auto":
            return rest_plan(at_rest, n, budget, solver)
        shared: dict[str, Any] = {"n": n, "budget": budget, "intercept": intercept, "radius": radius, "rounds": rounds}
        one_pass = table_plan(loss, width, **shared, survey=survey, geometry=geometry, **options)
        if not bare:
            return one_pass
        return least_excess(one_pass, at_rest, wide=None if survey == "none" else wide, gaussian=gaussian)

    def within(size: float) -> Problem:
        return Problem(loss, model_ball(size, loss), width, intercept=intercept)

    if radius is not None or geometry is not None:
        size = WIDE if radius is None else radius
        return plan(within(size), n=n, budget=budget, rounds=rounds, survey=survey, geometry=geometry, **options)
    if one_of("survey", survey, SURVEYS) != "none" and free:
        surveyed = surveyed_plan(within(WIDE), n, budget, rounds=rounds, survey=survey)
        if surveyed is not None:
            return surveyed
    ordinary = 10.0 if isinstance(loss, (Huber, Squared)) else 20.0
    return plan(within(ordinary), n=n, budget=budget, rounds=rounds, survey="none", **options)
