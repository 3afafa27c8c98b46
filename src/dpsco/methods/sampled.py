"""What methods with Poisson-sampled rounds share: their noise, and what they refuse."""

from __future__ import annotations

import math

from dpsco.accounting.poisson import multiplier
from dpsco.errors import InvalidArgument
from dpsco.methods.method import GAUSSIAN
from dpsco.planning.plan import Plan
from dpsco.release.calibration import Calibration, calibrate_round

__all__ = ["check_sampled", "sampled_noise"]

_BOTH_ROWS = 1.0 + 2.0**-9


def check_sampled(name: str, plan: Plan) -> None:
    """Refuse budgets whose neighbours the accountant does not know."""
    if plan.budget.adjacency == "add-remove":
        raise InvalidArgument(
            f"algorithm={name!r} goes over rows by position, which adjacency='add-remove' does not allow. Plan with "
            "'zero-out', which has the same noise."
        )
    if plan.budget.records != 1:
        raise InvalidArgument(
            f"Expected records=1 for algorithm={name!r}: its accountant knows neighbours that differ in one row. Use a "
            "single-epoch method for several records at once."
        )


def sampled_noise(plan: Plan, *, rows: int, rate: float, rounds: int, total: int) -> tuple[Calibration, str]:
    """Noise of ``rounds`` rounds on samples of ``rows`` rows at ``rate``, and the accounting behind it.

    ``total`` is the number of rounds of the whole run.
    """
    budget, p = plan.budget, plan.problem.parameters
    if not budget.private:
        paid = calibrate_round(budget, clip=plan.clip, dimension=p, rows=rows, multiplier=1.0, rounds=total)
        return paid, GAUSSIAN
    if rate >= 1.0:
        z = math.sqrt(rounds) / budget.mu
        return calibrate_round(budget, clip=plan.clip, dimension=p, rows=rows, multiplier=z, rounds=total), GAUSSIAN
    found = multiplier(
        epsilon=budget.epsilon,
        delta=budget.delta,
        rate=rate,
        rounds=rounds,
        adjacency=budget.adjacency,
        mu=budget.mu,
    )
    # Under replace the accountant takes z per clip, calibrate_round per two clips and one slack: a slack for each.
    z = found.z if budget.clips_apart == 1.0 else found.z / budget.clips_apart * _BOTH_ROWS
    paid = calibrate_round(budget, clip=plan.clip, dimension=p, rows=rows, multiplier=z, rounds=total, sampled=True)
    return paid, f"dp_accounting's PLD accountant: epsilon {found.epsilon:.6g} at delta {budget.delta:.3g}"
