"""``dpsco.plan``: every number of a run from public numbers alone."""

from __future__ import annotations

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, one_of, positive_integer
from dpsco.planning.plan import Plan
from dpsco.planning.response_planner import response_plan
from dpsco.planning.theorems import theorem_1, theorem_2
from dpsco.problem import Problem

__all__ = ["RULES", "plan"]

RULES = ("response", "theorem-1", "theorem-2")


def plan(
    problem: Problem,
    *,
    n: int,
    budget: Budget,
    rule: str = "response",
    rounds: int | None = None,
    memory: float | None = None,
    mechanism: str | None = None,
) -> Plan:
    """A plan for one pass over ``n`` rows that needs no tuning and has seen no data.

    ``rule``
        ``"response"``: least predicted excess (response_planner.py). ``"theorem-1"``, ``"theorem-2"``: the paper's
        settings to the letter (theorems.py), which are vacuous at most n and then refused, in words.
    ``rounds``
        fixes T, for those who pay per round. ``memory`` caps the bytes kept between rounds (response rule).
    ``mechanism``
        fixes how the noise is correlated; by default the one made for this algorithm, for theorems the binary tree.

    Guarantee: whatever the rule, the noise is calibrated from the mechanism's true sensitivity and the exact curve.
    """
    if not isinstance(problem, Problem):
        raise InvalidArgument("Expected problem to be a dpsco.Problem.")
    if not isinstance(budget, Budget):
        raise InvalidArgument("Expected budget to be a dpsco.Budget, such as Budget(epsilon=1.0, delta=1e-6).")
    n = positive_integer("n", n, "It is the public number of rows.")
    one_of("rule", rule, RULES)
    if rule == "response":
        return response_plan(problem, n, budget, rounds=rounds, memory=memory, mechanism=mechanism)
    if memory is not None:
        raise InvalidArgument(f"memory= belongs to rule='response'; rule={rule!r} follows the paper.")
    settings = (theorem_1 if rule == "theorem-1" else theorem_2)(problem, n, budget, rounds=rounds)
    return settings.plan(mechanism=mechanism or "tree")
