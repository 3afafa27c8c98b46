"""The plan that audits of the tests run."""

from __future__ import annotations

from tests.method_plans import algorithm_1_plan

import dpsco


def plan(adjacency: str = "zero-out", p: int = 16, **changes: object) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(5.0), p)
    arguments = {"n": 96, "rounds": 4, "beta": 1.0, "clip": 1.0, **changes}
    return algorithm_1_plan(problem=problem, budget=dpsco.Budget(4.0, 1e-6, adjacency), **arguments)  # type: ignore[arg-type]
