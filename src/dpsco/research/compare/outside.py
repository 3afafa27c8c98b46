"""The paper's open question (a): minimiser outside the set, n^(1/4) rounds against sqrt(n).

The theorem for n^(1/4) rounds assumes that the unconstrained minimiser lies in the set; the authors believe that it is
not needed. Here it lies outside: ||w*|| = 8, a ball of radius 3, so that the gradient does not vanish at the optimum.
"""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.estimates import exponent
from dpsco.research.compare.lineup import OURS
from dpsco.research.compare.points import over, point
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale, quarter, root
from dpsco.research.compare.settings import Setting, gradient_at_optimum
from dpsco.research.compare.study import Study

__all__ = ["measure", "studies"]

RADIUS, OPTIMUM_NORM = 3.0, 8.0


def studies(scale: Scale) -> list[Study]:
    """Both numbers of rounds at every n."""
    settings = [Setting(n=n, radius=RADIUS, optimum_norm=OPTIMUM_NORM, fresh=scale.fresh) for n in scale.outside_sizes]
    return [Study(OURS, setting, rule(setting.n), scale.effort) for rule in (quarter, root) for setting in settings]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """Excess over the best point of the set, both ways, and their ratio at every n."""
    wanted = studies(scale)
    points = [point(tuned) for tuned in pool.study(wanted)]
    few, many = points[: len(points) // 2], points[len(points) // 2 :]
    sizes = list(scale.outside_sizes)
    return {
        "radius": RADIUS,
        "optimum_norm": OPTIMUM_NORM,
        "gradient_at_optimum": float(f"{gradient_at_optimum(wanted[0].setting):.3g}"),
        "sizes": sizes,
        "few": few,
        "many": many,
        "ratios": [over(a, b).to_list() for a, b in zip(few, many, strict=True)],
        "exponents": [exponent(sizes, [p["excess"][0] for p in part]).to_list() for part in (few, many)],
    }
