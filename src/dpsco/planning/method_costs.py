"""What each method of the paper's Table 1 costs at a given n: adaptive rounds, gradients, bytes.

Rounds and gradients follow the methods' own analyses without their logarithms and constants, except for the plan at
hand, whose numbers are exact. Bytes are float64 vectors that server and rows exchange in one round: the points asked
about, and the sum that comes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.methods import Surveyed, SurveyedObjective
from dpsco.methods.objective_perturbation import PASSES
from dpsco.planning.plan import Plan
from dpsco.planning.theorems import c_dp

__all__ = ["MethodCost", "method_costs"]


@dataclass(frozen=True)
class MethodCost:
    """One line of the table."""

    name: str
    rounds: float
    gradients: float
    bytes_per_round: int
    one_pass: bool
    note: str


def method_costs(plan: Plan) -> tuple[MethodCost, ...]:
    """Return this plan first, then every method of Table 1 at the same n, p and budget."""
    n, p, budget = plan.n, plan.problem.parameters, plan.budget
    one, two = 8 * p * 2, 8 * p * 3  # one point and one sum; two points and one sum
    spread = math.sqrt(p) * budget.clips_apart / budget.mu_per_record
    return (
        _this_plan(plan),
        MethodCost("Accelerated-DP-SRGD, Theorem 1", n**0.25, 2.0 * n, two, True, _constant(n, budget.delta)),
        MethodCost("Accelerated-DP-SRGD, Theorem 2", n**0.5, 2.0 * n, two, True, "minimiser outside the domain"),
        MethodCost("Snowball-SGD", _snowball(n, spread), n, one, True, "privacy needs convexity; last iterate only"),
        MethodCost("Phased-SGD", n, n, one, True, "privacy needs convexity"),
        MethodCost("DP online-to-batch", n, 2.0 * n, two, True, ""),
        MethodCost("Phased-ERM", n**0.5, n, one, False, "privacy needs convexity; several passes"),
        MethodCost("localized AC-SA", n**0.25, n**1.125, one, False, "several passes"),
    )


def _this_plan(plan: Plan) -> MethodCost:
    """Return the plan at hand: its first round asks about one point, later ones about as many as its method does."""
    schedule, method = plan.schedule, plan.method
    points = method.gradients_per_row(schedule) if schedule.portions is None else 1
    gradients = schedule.rows * points - (points - 1) * schedule.batch_size
    if schedule.portions is not None:
        gradients = sum(round(schedule.size(step)) for step in range(schedule.rounds))
    if isinstance(method, SurveyedObjective):
        gradients = method.rows + PASSES * (plan.n - method.rows)
    elif isinstance(method, Surveyed):  # the survey asks about one point, the first later round too
        gradients = 2 * plan.n - method.rows - (plan.n - method.rows) // max(1, plan.rounds - 1)
    bytes_per_round = 8 * plan.problem.parameters * (points + 1)
    return MethodCost("this plan", plan.rounds, gradients, bytes_per_round, method.single_epoch, method.name)


def _constant(n: int, delta: float) -> str:
    return f"times c_DP = {c_dp(max(n, 2), delta):.2g} as its proof has it"


def _snowball(n: int, spread: float) -> float:
    """Largest T whose batches ceil(a / sqrt(T - t + 1)), a = S sqrt(p) / mu, add up to n: T + a^2, or 2 a sqrt(T)."""
    a = max(spread, 1.0)
    return max(1.0, n - a * a if n > 2 * a * a else (n / (2 * a)) ** 2)
