"""One pass beside many: what methods that read the data again and again reach, with gradients and rounds counted."""

from __future__ import annotations

from typing import Any

from dpsco.comparison.lineup import ONE_PASS, full_batch, poisson
from dpsco.comparison.points import over, point
from dpsco.comparison.pool import Pool
from dpsco.comparison.scale import Scale
from dpsco.comparison.settings import Setting, floor
from dpsco.comparison.study import Study

__all__ = ["measure", "studies"]

OWN_ROUNDS = 64
POISSON_ROUNDS = 64
"""Rounds of one epoch of DP-SGD: its rate of sampling is one over it."""


def studies(scale: Scale) -> list[Study]:
    """One pass of ours first."""
    setting = Setting(n=scale.n, fresh=scale.fresh)
    return [
        Study(ONE_PASS, setting, OWN_ROUNDS, scale.effort),
        *(Study(poisson(e), setting, POISSON_ROUNDS * e, scale.effort) for e in scale.epochs),
        *(Study(full_batch(e), setting, e, scale.effort) for e in scale.full_batch_epochs),
    ]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """A line each, with its excess over that of one pass."""
    wanted = studies(scale)
    points = [
        {"name": study.contender.name, **point(tuned)} for study, tuned in zip(wanted, pool.study(wanted), strict=True)
    ]
    for found in points:
        if "scores" in found:
            found["over_ours"] = over(found, points[0]).to_list()
    setting = wanted[0].setting
    return {"n": setting.n, "floor": floor(setting), "lines": points}
