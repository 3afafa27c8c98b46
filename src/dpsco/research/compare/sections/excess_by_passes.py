"""One pass compared with many passes: excess risk, with gradients and rounds counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpsco.research.compare.compared_methods import (
    ONE_PASS,
    PLANNED_ONE_PASS,
    REST,
    accelerated_gd,
    accountant_installed,
    poisson_dp_sgd,
)
from dpsco.research.compare.comparison_size import ComparisonSize
from dpsco.research.compare.evaluation_data import Setting, non_private_excess
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.result_curves import excess_ratio, point
from dpsco.research.compare.tuning import TunedMethod, TuningTask

__all__ = ["measure", "tasks"]

ONE_PASS_ROUNDS = 64
POISSON_ROUNDS = 64
"""Rounds per epoch of DP-SGD with Poisson batches; the sampling rate is its inverse."""


def tasks(size: ComparisonSize) -> list[TuningTask]:
    """Return, per n, the default plan and Accelerated-DP-SRGD, one pass each, and the methods with many passes."""
    epochs = size.epochs if accountant_installed() else ()
    methods = [
        (PLANNED_ONE_PASS, 1),
        (ONE_PASS, ONE_PASS_ROUNDS),
        *((poisson_dp_sgd(e), POISSON_ROUNDS * e) for e in epochs),
        *((accelerated_gd(e), e) for e in size.full_batch_epochs),
        *((method, 1) for method in REST),
    ]
    once = replace(size.budget, configurations=1, tuning=0)
    budgets = [size.budget if method.knobs else once for method, _ in methods]
    settings = [Setting(n=n, fresh=size.fresh) for n in size.passes_sizes]
    return [
        TuningTask(method, setting, rounds, budget)
        for setting in settings
        for (method, rounds), budget in zip(methods, budgets, strict=True)
    ]


def measure(pool: RunPool, size: ComparisonSize) -> dict[str, Any]:
    """Return one group per n: a line per method, with its excess divided by that of the default plan."""
    tuned = pool.tune(tasks(size))
    count = len(tuned) // len(size.passes_sizes)
    return {"groups": [_group(tuned[start : start + count]) for start in range(0, len(tuned), count)]}


def _group(tuned: list[TunedMethod]) -> dict[str, Any]:
    lines = [{"name": each.task.method.name, **point(each)} for each in tuned]
    for line in lines:
        if "scores" in line:
            line["over_default"] = excess_ratio(line, lines[0]).to_list()
    setting = tuned[0].task.setting
    return {"n": setting.n, "floor": non_private_excess(setting), "lines": lines}
