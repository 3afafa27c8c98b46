"""A method of many passes in the survey's geometry: survey some rows, map the others, run the method on them.

    survey   the first n_0 rows, as the default plan would ask them; released at the full budget
    rows     b = P a of the other n - n_0, P and the length C that contributions are cut to from the released survey
    method   on the rows b with feature norm C, from the survey's start; the model is x = P'u

A row enters the survey or the method, never both, and P is post-processing of the first release: both have the whole
budget (parallel composition). One hyperparameter of the method is a multiple of its own formula, for tuning.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dpsco.errors import InvalidArgument
from dpsco.methods import METHODS, AcceleratedGD
from dpsco.methods.surveyed import Surveyed
from dpsco.planning.plan import Plan
from dpsco.planning.second_stage import SecondStage
from dpsco.planning.table_problem import ROOMY
from dpsco.problem import L2Ball, Problem
from dpsco.query import Array
from dpsco.rows.stream import stream
from dpsco.run import Model, Run, train
from dpsco.run.train import library_oracle

__all__ = ["ROUNDS", "behind_survey"]

ROUNDS = 32
"""Rounds of accelerated gradient descent on all rows."""


def behind_survey(
    plan: Plan, later: str, features: Any, labels: Array, *, key: bytes, factor: float = 1.0
) -> tuple[Model, Plan]:
    """Return the model of the method ``later`` behind the survey of ``plan``, and the plan of that method.

    Parameters
    ----------
    plan : Plan
        A plan with a survey.
    later : str
        Name of the method; one that does not plan its rounds makes ``ROUNDS``.
    features, labels
        All n rows, as arrays.
    key : bytes
        Fixes the noise of the survey; turned round, that of the method.
    factor : float
        Multiplies the hyperparameters that the method's own formula gives.
    """
    if not isinstance(plan.method, Surveyed):
        raise InvalidArgument(f"Expected a plan with a survey, got method={plan.method.name!r}.")
    rows, problem, budget = plan.method.rows, plan.problem, plan.budget
    second = _surveyed(plan, features[:rows], labels[:rows], key)
    left, longest = plan.n - rows, second.plan.clip
    mapped = Problem(problem.loss, L2Ball(ROOMY / longest), second.map.columns, feature_norm=longest)
    method = METHODS[later].planned(mapped, left, budget, **({"rounds": ROUNDS} if later == AcceleratedGD.name else {}))
    values: dict[str, Any] = {name: factor * value for name, value in method.defaults(mapped, left, budget).items()}
    made = Plan(mapped, left, budget, dataclasses.replace(method, **values), rule="tuned")
    others = stream(second.map.rows(features[rows:]), labels[rows:])
    found = train(made, others, start=second.start, key=key[::-1])
    return Model.from_parameters(second.map.parameters(np.ravel(found.model.coef)), problem), made


def _surveyed(plan: Plan, features: Any, labels: Array, key: bytes) -> SecondStage:
    """Return what the survey says about the other rows."""
    with Run(plan, oracle=library_oracle(plan), key=key) as run:
        run.push(features, labels)
        if run.second is None:
            raise InvalidArgument("The survey planned no rounds.")
        return run.second
