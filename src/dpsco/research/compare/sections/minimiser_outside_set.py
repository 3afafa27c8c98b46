"""The paper's open question (a): n^(1/4) rounds or sqrt(n) rounds if the minimiser lies outside the set.

The theorem for n^(1/4) rounds assumes that the unconstrained minimiser lies in the set. The authors conjecture that
the assumption is not needed. Here ||w*|| = 8 and the set is a ball of radius 3, so the gradient does not vanish at the
optimum.
"""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.compared_methods import OURS
from dpsco.research.compare.comparison_size import ComparisonSize, fourth_root, square_root
from dpsco.research.compare.estimates import exponent
from dpsco.research.compare.evaluation_data import Setting, gradient_at_optimum
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.result_curves import excess_ratio, point
from dpsco.research.compare.tuning import TuningTask

__all__ = ["measure", "tasks"]

RADIUS, OPTIMUM_NORM = 3.0, 8.0


def tasks(size: ComparisonSize) -> list[TuningTask]:
    """Return both numbers of rounds at every n."""
    settings = [Setting(n=n, radius=RADIUS, optimum_norm=OPTIMUM_NORM, fresh=size.fresh) for n in size.outside_sizes]
    rules = (fourth_root, square_root)
    return [TuningTask(OURS, setting, rule(setting.n), size.budget) for rule in rules for setting in settings]


def measure(pool: RunPool, size: ComparisonSize) -> dict[str, Any]:
    """Return the excess over the best point of the set for both numbers of rounds, and their ratio at every n."""
    wanted = tasks(size)
    points = [point(tuned) for tuned in pool.tune(wanted)]
    few, many = points[: len(points) // 2], points[len(points) // 2 :]
    sizes = list(size.outside_sizes)
    return {
        "radius": RADIUS,
        "optimum_norm": OPTIMUM_NORM,
        "gradient_at_optimum": float(f"{gradient_at_optimum(wanted[0].setting):.3g}"),
        "sizes": sizes,
        "few": few,
        "many": many,
        "ratios": [excess_ratio(a, b).to_list() for a, b in zip(few, many, strict=True)],
        "exponents": [exponent(sizes, [p["excess"][0] for p in part]).to_list() for part in (few, many)],
    }
