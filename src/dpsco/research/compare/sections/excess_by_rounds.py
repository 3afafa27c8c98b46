"""Excess risk against the number of rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpsco.research.compare.compared_methods import (
    ANY_ROUNDS,
    FURTHER,
    NOT_TUNED,
    OWN_ROUNDS,
    PLANNED_ROUNDS,
    accountant_installed,
)
from dpsco.research.compare.comparison_size import ComparisonSize, fourth_root
from dpsco.research.compare.evaluation_data import Setting, non_private_excess, rows_for
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.result_curves import curve
from dpsco.research.compare.tuning import TuningTask

__all__ = ["measure", "tasks"]


def tasks(size: ComparisonSize) -> list[TuningTask]:
    """Return one task per method and number of rounds; one per method that sets its own rounds."""
    setting, quarter = Setting(n=size.n, fresh=size.fresh), fourth_root(size.n)
    once = replace(size.budget, configurations=1, tuning=0)
    wanted = [TuningTask(method, setting, rounds, once) for method in PLANNED_ROUNDS for rounds in size.rounds]
    wanted += [TuningTask(method, setting, rounds, size.budget) for method in ANY_ROUNDS for rounds in size.rounds]
    wanted += [TuningTask(method, setting, rounds, size.budget) for method in FURTHER for rounds in size.rounds[1::2]]
    if size.name != "medium":  # they take fifty times as long as the others
        wanted += [TuningTask(method, setting, quarter, size.budget) for method in OWN_ROUNDS]
    if size.name == "full" and accountant_installed():  # the accountants alone take as long as a quick comparison
        wanted += [TuningTask(method, setting, quarter, once) for method in NOT_TUNED]
    return wanted


def measure(pool: RunPool, size: ComparisonSize) -> dict[str, Any]:
    """Return one curve per method."""
    wanted = tasks(size)
    tuned = pool.tune(wanted)
    setting = wanted[0].setting
    names = dict.fromkeys(task.method.name for task in wanted)
    start = rows_for(setting, "scoring", 0).measure(np.zeros(setting.dimension))["score"]
    return {
        "n": setting.n,
        "dimension": setting.dimension,
        "epsilon": setting.epsilon,
        "delta": setting.budget.delta,
        "mu": setting.budget.mu,
        "quarter": fourth_root(size.n),
        "floor": non_private_excess(setting),
        "start": float(f"{start:.4g}"),
        "curves": [curve([each for each in tuned if each.task.method.name == name]) for name in names],
    }
