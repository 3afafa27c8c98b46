"""Excess risk against the number of rounds: the headline picture, and the marks read off it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsco.research.compare.lineup import BESIDE, NOT_TUNED, OWN_SCHEDULE, ROUND_BASED
from dpsco.research.compare.points import curve
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.settings import Setting, floor, rows_for
from dpsco.research.compare.study import Study

__all__ = ["measure", "studies"]


def studies(scale: Scale) -> list[Study]:
    """Every contender at every number of rounds; those that set their own rounds once, one of them not tuned."""
    setting = Setting(n=scale.n, fresh=scale.fresh)
    free = [Study(who, setting, rounds, scale.effort) for who in ROUND_BASED for rounds in scale.rounds]
    free += [Study(who, setting, rounds, scale.effort) for who in BESIDE for rounds in scale.rounds[1::2]]
    own = [Study(who, setting, scale.quarter, scale.effort) for who in OWN_SCHEDULE]
    if scale.name != "full":  # their accountants alone would take as long as all the rest
        return free + own
    one = replace(scale.effort, configurations=1, tuning=0)
    return free + own + [Study(who, setting, scale.quarter, one) for who in NOT_TUNED]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """The curves, tuned and scored."""
    import numpy as np

    wanted = studies(scale)
    tuned = pool.study(wanted)
    setting = wanted[0].setting
    names = list(dict.fromkeys(study.contender.name for study in wanted))
    curves = [curve([t for t in tuned if t.study.contender.name == name]) for name in names]
    start = rows_for(setting, "scoring", 0).measure(np.zeros(setting.dimension))["score"]
    return {
        "n": setting.n,
        "dimension": setting.dimension,
        "epsilon": setting.epsilon,
        "delta": setting.budget.delta,
        "mu": setting.budget.mu,
        "quarter": scale.quarter,
        "floor": floor(setting),
        "start": float(f"{start:.4g}"),
        "curves": curves,
    }
