"""A plan in words."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsco.planning.plan import Plan, Prediction

__all__ = ["explain"]


def explain(plan: Plan) -> str:
    """What the plan will do, what it promises, and what in it deserves a second look."""
    lines = [_what(plan), _promise(plan), _steps(plan)]
    if plan.prediction is not None:
        lines.append(_prediction(plan.prediction))
    lines += [f"Note: {note}" for note in _notes(plan)]
    text = "\n".join(textwrap.fill(line, 110, subsequent_indent="  ") for line in lines)
    return text + _theorem(plan)


def _theorem(plan: Plan) -> str:
    """What the plan's theorem asks for, and whether it is met."""
    from dpsco.planning.theorems import theorem_1, theorem_2  # they make plans, so they import this module first

    if plan.rule == "theorem-1":
        return "\n" + theorem_1(plan.problem, plan.n, plan.budget).explain()
    if plan.rule == "theorem-2":
        return "\n" + theorem_2(plan.problem, plan.n, plan.budget, rounds=plan.rounds).explain()
    return ""


def _what(plan: Plan) -> str:
    problem, unread = plan.problem, plan.n - plan.rounds * plan.batch_size
    text = (
        f"One pass over n = {plan.n:,} rows in T = {plan.rounds} rounds of B = {plan.batch_size:,} fresh rows: "
        f"{problem.loss.kind} loss, {problem.parameters:,} parameters in a {problem.domain.kind}."
    )
    return text + (f" {unread:,} rows are left over and never read." if unread else "")


def _promise(plan: Plan) -> str:
    budget, noise = plan.budget, plan.calibration
    if not budget.private:
        return "No noise is added (epsilon = inf): the result is not private."
    covered = "one row" if budget.records == 1 else f"any {budget.records} rows"
    per_prefix = plan.noise_mechanism.max_error * noise.difference / budget.mu_per_record
    return (
        f"Promise: ({budget.epsilon:.6g}, {budget.delta:.3g})-DP for {covered}, {budget.adjacency} adjacency; "
        f"mu = {budget.mu:.6g} exactly. Each row's weighted difference is clipped to {plan.clip:.6g}; the "
        f"{plan.mechanism!r} mechanism adds Gaussian noise of standard deviation {noise.sigma:.4g} a coordinate to "
        "each "
        f"draw, at most {per_prefix:.4g} on any running sum, which is then divided by B."
    )


def _steps(plan: Plan) -> str:
    divisor = "beta" if plan.z_step == "listed" else "2 beta"
    adapts = " at first, then down to the curvature that released values show" if plan.adaptive else ""
    return (
        f"Steps: beta = {plan.beta:.6g}{adapts}, eta_t = t + 1, z moves by eta_t/({divisor}) ({plan.z_step}). "
        f"Chosen {plan.rule if plan.rule == 'by hand' else 'by the rule ' + plan.rule}."
    )


def _prediction(p: Prediction) -> str:
    largest = max(
        ("optimisation", p.optimisation), ("privacy noise", p.noise), ("sampling", p.sampling), key=lambda x: x[1]
    )
    return (
        f"Predicted excess risk {p.total:.3g}: optimisation {p.optimisation:.3g}, privacy noise {p.noise:.3g}, "
        f"sampling {p.sampling:.3g}. What limits the run is {largest[0]}."
    )


def _notes(plan: Plan) -> list[str]:
    notes = []
    by_hand = plan.rule == "by hand"  # a rule has weighed both of these
    if by_hand and plan.beta < plan.problem.smoothness:
        notes.append(
            f"beta is below the worst-case smoothness {plan.problem.smoothness:.4g}: right if the population is "
            "smoother, "
            "unstable if it is not."
        )
    if by_hand and plan.budget.private and plan.clip < plan.problem.lipschitz:
        notes.append(
            f"clip is below the Lipschitz constant {plan.problem.lipschitz:.4g}: many rows may be cut short, which "
            "biases the "
            "result. Privacy does not suffer."
        )
    if plan.budget.private and plan.budget.delta >= 1 / plan.n:
        notes.append(f"delta is at or above 1/n = {1 / plan.n:.2g}: a promise this weak lets a few rows leak whole.")
    if not math.isfinite(plan.problem.diameter):
        notes.append("the domain is unbounded, so the theory's bounds do not apply to it.")
    return notes
