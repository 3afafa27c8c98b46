"""Noise of methods with Poisson-sampled rounds, and the budgets that they refuse."""

from __future__ import annotations

import math

from dpsco.accounting.budget import Budget
from dpsco.accounting.composition import EXACT_GAUSSIAN, Composition
from dpsco.accounting.poisson import multiplier
from dpsco.errors import InvalidArgument
from dpsco.methods.method import no_positions
from dpsco.release.calibration import Calibration, calibrate_round

__all__ = ["check_sampled", "sampled_noise"]

_BOTH_ROWS = 1.0 + 2.0**-9


def check_sampled(name: str, budget: Budget) -> None:
    """Refuse budgets whose neighbours the accountant does not know."""
    no_positions(name, budget)
    if budget.records != 1:
        raise InvalidArgument(
            f"Expected records=1 for method={name!r}: its accountant knows neighbours that differ in one row. Use a "
            "single-epoch method for several records at once."
        )


def sampled_noise(
    budget: Budget, *, clip: float, dimension: int, rows: int, rate: float, rounds: int, total: int
) -> tuple[Calibration, Composition]:
    """Noise of ``rounds`` rounds on samples of ``rows`` rows at ``rate``, and the accounting behind it.

    ``total`` is the number of rounds of the whole run.
    """
    accounting, z, sampled = EXACT_GAUSSIAN, 1.0, False
    if budget.private and rate >= 1.0:
        z = math.sqrt(rounds) / budget.mu
    elif budget.private:
        found = multiplier(
            epsilon=budget.epsilon,
            delta=budget.gaussian_delta,
            rate=rate,
            rounds=rounds,
            adjacency=budget.adjacency,
            mu=budget.mu,
        )
        # Under replace the accountant takes z per clip, calibrate_round per two clips and one slack: a slack for each.
        z = found.z if budget.clips_apart == 1.0 else found.z / budget.clips_apart * _BOTH_ROWS
        words = f"dp_accounting's PLD accountant: epsilon {found.epsilon:.6g} at delta {budget.delta:.3g}"
        accounting, sampled = Composition(words, gaussian=False), True
    noise = calibrate_round(
        budget, clip=clip, dimension=dimension, rows=rows, multiplier=z, rounds=total, sampled=sampled
    )
    return noise, accounting
