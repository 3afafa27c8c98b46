"""What each method of the paper's Table 1 costs at a given n: adaptive rounds, gradients, bytes.

Rounds and gradients follow the methods' own analyses without their logarithms and constants, except for the plan at
hand, whose numbers are exact. Bytes are float64 vectors that server and rows exchange in one round: the points asked
about, and the sum that comes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.planning.plan import Plan
from dpsco.planning.theorems import c_dp

__all__ = ["Method", "methods"]


@dataclass(frozen=True)
class Method:
    """One line of the table."""

    name: str
    rounds: float
    gradients: float
    bytes_per_round: int
    one_pass: bool
    note: str


def methods(plan: Plan) -> tuple[Method, ...]:
    """This plan first, then every method of Table 1 at the same n, p and budget."""
    n, T, p, budget = plan.n, plan.rounds, plan.problem.parameters, plan.budget
    one, two = 8 * p * 2, 8 * p * 3  # one point and one sum; two points and one sum
    spread = math.sqrt(p) * budget.clips_apart / budget.mu_per_record
    return (
        Method("this plan", T, 2 * T * plan.batch_size - plan.batch_size, two, True, "Accelerated-DP-SRGD"),
        Method("Accelerated-DP-SRGD, Theorem 1", n**0.25, 2.0 * n, two, True, _constant(n, budget.delta)),
        Method("Accelerated-DP-SRGD, Theorem 2", n**0.5, 2.0 * n, two, True, "minimiser may lie outside the domain"),
        Method("Snowball-SGD", _snowball(n, spread), n, one, True, "privacy needs convexity; last iterate only"),
        Method("Phased-SGD", n, n, one, True, "privacy needs convexity"),
        Method("DP online-to-batch", n, 2.0 * n, two, True, ""),
        Method("Phased-ERM", n**0.5, n, one, False, "privacy needs convexity; several passes"),
        Method("localized AC-SA", n**0.25, n**1.125, one, False, "several passes"),
    )


def _constant(n: int, delta: float) -> str:
    return f"times c_DP = {c_dp(max(n, 2), delta):.2g} as its proof has it"


def _snowball(n: int, spread: float) -> float:
    """Largest T whose batches ceil(a / sqrt(T - t + 1)), a = S sqrt(p) / mu, add up to n: T + a^2, or 2 a sqrt(T)."""
    a = max(spread, 1.0)
    return max(1.0, n - a * a if n > 2 * a * a else (n / (2 * a)) ** 2)
