"""``dpsco.plan``: every number of a run from public numbers alone."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.survey import MOMENTS
from dpsco.errors import InvalidArgument, one_of, positive_integer
from dpsco.methods import METHODS, ObjectivePerturbation, SurveyedObjective
from dpsco.methods.surveyed import LATER
from dpsco.planning.at_rest import SOLVERS, least_excess, rest_plan
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.response_planner import response_plan
from dpsco.planning.rounds_in_geometry import geometry_plan
from dpsco.planning.surveyed_plan import surveyed_plan
from dpsco.planning.theorems import theorem_1, theorem_2
from dpsco.problem import Problem

__all__ = ["RULES", "SURVEYS", "WANTED", "plan"]

WANTED = (*MOMENTS, "intervals")
SURVEYS = ("auto", *WANTED, "none")
RULES = ("response", "theorem-1", "theorem-2")
_OURS = "accelerated-srgd"


@np.errstate(all="ignore")  # that of the caller may turn a harmless underflow into an error
def plan(
    problem: Problem,
    *,
    n: int,
    budget: Budget,
    method: str | None = None,
    rule: str | None = None,
    rounds: int | None = None,
    memory: float | None = None,
    mechanism: str | None = None,
    survey: str = "auto",
    geometry: Geometry | None = None,
    passes: int | None = 1,
) -> Plan:
    """Plan a run over ``n`` rows. The plan needs no tuning and has seen no data.

    Parameters
    ----------
    problem : Problem
        Loss, domain and dimension.
    n : int
        Public number of rows.
    budget : Budget
        The guarantee.
    method : str, optional
        Name of the method. ``"accelerated-srgd"`` unless given, or its unaccelerated variant where rule ``"response"``
        predicts less excess for it (many rounds, few rows). Any other gets its own formulas: the clip is the Lipschitz
        constant.
    rule : {"response", "theorem-1", "theorem-2"}, optional
        How the hyperparameters of ``"accelerated-srgd"`` are chosen. ``"response"``, the default: least predicted
        excess (response_planner.py). ``"theorem-1"``, ``"theorem-2"``: the paper's settings to the letter
        (theorems.py), which are vacuous at most n and then refused, in words.
    rounds : int, optional
        Fixes T, if you pay per round. With a survey it is the most adaptive rounds, the survey's included.
    memory : float, optional
        Most bytes kept between rounds (rule ``"response"``).
    mechanism : str, optional
        Fixes how the noise is correlated; by default the one made for the method, for theorems the binary tree.
    survey : {"auto", "full", "diagonal", "low-rank", "intervals", "none"}
        Whether a first round learns the geometry of the rows (methods/surveyed.py) and decides on the others. "auto"
        takes one where it is possible, public numbers say that it pays, and none of method, rule, memory and mechanism
        is given. "intervals" is "full" on more rows, up to a quarter: as many as standard errors need. With a kind,
        ``method`` may be "accelerated-srgd", "unaccelerated-srgd", "dp-sgd", "dp-ftrl" or "objective-perturbation".
    geometry : Geometry, optional
        ``result.geometry`` of an earlier run on the same population, or ``dpsco.public_geometry(rows)``: the rounds run
        in it, and no rows, round or budget go to a survey. Methods as for a survey.
    passes : {1, None}
        1: each row is read once. None: rows are at rest, and passes are free. Then the method of least predicted excess
        is taken: one pass, ``"surveyed-objective-perturbation"``, ``"objective-perturbation"`` or
        ``"sufficient-statistics"`` (at_rest.py), where none of method, rule, rounds, memory, mechanism and geometry is
        given.

    Returns
    -------
    Plan

    Raises
    ------
    InvalidArgument
        If an option does not belong to the method or the rule, or no such run exists.

    Guarantee: whatever the rule, the noise is calibrated from the mechanism's true sensitivity and the exact curve.
    """
    if not isinstance(problem, Problem):
        raise InvalidArgument("Expected problem to be a dpsco.Problem.")
    if not isinstance(budget, Budget):
        raise InvalidArgument("Expected budget to be a dpsco.Budget, such as Budget(epsilon=1.0, delta=1e-6).")
    n = positive_integer("n", n, "It is the public number of rows.")
    bare = rule is None and memory is None and mechanism is None
    free = method is None and bare
    if passes is not None and repr(passes) != "1":
        raise InvalidArgument(
            f"Expected passes={passes!r} to be 1, or None where rows are at rest and passes are free."
        )
    if passes is None and free and rounds is None and geometry is None and survey not in WANTED:
        wide = None if survey == "none" else problem
        return least_excess(plan(problem, n=n, budget=budget, survey=survey), problem, wide=wide)
    variant = method is None and mechanism is None
    method = one_of("method", method or _OURS, (*METHODS, SurveyedObjective.name))
    one_of("survey", survey, SURVEYS)
    if method == SurveyedObjective.name:
        if survey == "none":
            raise InvalidArgument(f"method={method!r} begins with a survey. Leave survey out, or name its kind.")
        method, survey = ObjectivePerturbation.name, "full" if survey == "auto" else survey
    if geometry is not None or survey in WANTED:
        return _in_geometry(problem, n, budget, method, rounds, survey, geometry, bare=bare)
    if method != _OURS:
        if rule is not None:
            raise InvalidArgument(f"rule= belongs to method={_OURS!r}; method={method!r} has formulas of its own.")
        return _by_formula(problem, n, budget, method, rounds=rounds, memory=memory, mechanism=mechanism)
    rule = one_of("rule", rule or "response", RULES)
    if rule == "response":
        if survey == "auto" and free:
            surveyed = surveyed_plan(problem, n, budget, rounds=rounds, survey=survey)
            if surveyed is not None:
                return surveyed
        given = {"memory": memory, "mechanism": mechanism}
        return response_plan(problem, n, budget, rounds=rounds, variant=variant, **given)  # type: ignore[arg-type]
    if memory is not None:
        raise InvalidArgument(f"memory= belongs to rule='response'; rule={rule!r} follows the paper.")
    settings = (theorem_1 if rule == "theorem-1" else theorem_2)(problem, n, budget, rounds=rounds)
    return Plan(problem, n, budget, settings.method(mechanism or "tree"), rule=rule)


def _in_geometry(
    problem: Problem,
    n: int,
    budget: Budget,
    method: str,
    rounds: int | None,
    survey: str,
    geometry: Geometry | None,
    *,
    bare: bool,
) -> Plan:
    """Return the plan with a survey of a given kind, or in a given geometry."""
    name = f"survey={survey!r}" if geometry is None else "geometry="
    laters = LATER if geometry is not None or survey == "intervals" else (*LATER, *SurveyedObjective.laters)
    if not bare or method not in laters:
        raise InvalidArgument(
            f"{name} decides on every hyperparameter of {', '.join(laters)}. Leave rule, memory and mechanism out, and "
            "choose one of these methods."
        )
    if method in SurveyedObjective.laters and rounds is not None:
        raise InvalidArgument(f"Expected rounds={rounds} to be left out: a survey and one objective are two rounds.")
    if geometry is None:
        made = surveyed_plan(problem, n, budget, rounds=rounds, survey=survey, later=method)
        if made is None:
            raise InvalidArgument(f"{name} is not possible. Plan with survey='none'.")
        return made
    if survey in WANTED or not isinstance(geometry, Geometry):
        raise InvalidArgument(
            "Expected geometry to be a dpsco.Geometry, such as result.geometry, and no survey beside it: the geometry "
            "takes its place."
        )
    if rounds is not None:
        rounds = positive_integer("rounds", rounds, "It is the most adaptive rounds.")
    return geometry_plan(problem, n, budget, geometry, rounds=rounds, later=method)


def _by_formula(problem: Problem, n: int, budget: Budget, method: str, **options: Any) -> Plan:
    """Return the plan of a method that has formulas of its own."""
    kind, given = METHODS[method], {name: value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - {field.name for field in fields(kind)})
    if unknown:
        raise InvalidArgument(f"method={method!r} has no {', '.join(unknown)}. Leave it out.")
    if method in SOLVERS:
        return rest_plan(problem, n, budget, method)
    return Plan(problem, n, budget, kind.planned(problem, n, budget, **given), rule="formula")
