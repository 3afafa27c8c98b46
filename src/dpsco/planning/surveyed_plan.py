"""Stage one of a surveyed run: is there a survey, of which kind, on how many rows. Public numbers alone decide."""

from __future__ import annotations

import math

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.methods.surveyed import LATER, Surveyed, refusal
from dpsco.methods.surveyed_objective import SurveyedObjective
from dpsco.planning.plan import Plan
from dpsco.planning.surveyed_planner import MOST_ROUNDS, WIDEST_FULL, survey_choice
from dpsco.problem import Box, Problem

__all__ = ["surveyed_plan"]

_APART = {"zero-out": 1.0, "add-remove": 1.0, "replace": math.sqrt(2.0)}


def surveyed_plan(
    problem: Problem, n: int, budget: Budget, *, rounds: int | None, survey: str, later: str = LATER[0]
) -> Plan | None:
    """Return the plan with a survey; None where ``survey="auto"`` and one is not possible or does not pay.

    Raises
    ------
    InvalidArgument
        If a survey of a given kind is not possible.
    """
    wanted = survey != "auto"
    measured = survey == "intervals" and later == LATER[0] and budget.private
    if rounds is not None:
        rounds = positive_integer("rounds", rounds, "It is the most adaptive rounds, the survey's included.")
    columns = problem.dimension + problem.intercept
    wide = columns > WIDEST_FULL and survey == "auto" and not isinstance(problem.domain, Box)
    refused = refusal(problem, "diagonal" if wide else survey)
    if not wanted and not budget.private:
        refused = "without noise the plain plan needs none"
    if not refused:
        choice = survey_choice(
            n,
            columns,
            budget.mu_per_record,
            rounds,
            clips_apart=_APART[budget.adjacency],
            kind=survey,
            centred=not problem.intercept,
            objective=later in SurveyedObjective.laters,
        )
        if choice.kind is not None:
            by_columns = columns > WIDEST_FULL and choice.kind == "diagonal"
            surveyed = choice.rows if by_columns else max(1, choice.rows, min(10 * columns, n // 6))
            method = (
                SurveyedObjective(rows=surveyed, kind=choice.kind)
                if later in SurveyedObjective.laters
                else Surveyed(
                    rounds=rounds or MOST_ROUNDS,
                    rows=surveyed,
                    kind=choice.kind,
                    later=MeasuredSRGD.name if measured else later,
                )
            )
            return Plan(problem, n, budget, method, rule="survey")
        refused = choice.reason
    if wanted:
        raise InvalidArgument(f"survey={survey!r} is not possible: {refused}. Plan with survey='none'.")
    return None
