"""Excess risk against n, each method tuned at every n, and the optimal rate."""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.compared_methods import BY_SIZE
from dpsco.research.compare.comparison_size import ComparisonSize
from dpsco.research.compare.estimates import exponent
from dpsco.research.compare.evaluation_data import Setting, non_private_excess, optimal_rate
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.result_curves import accepted_points, curve
from dpsco.research.compare.tuning import TuningTask

__all__ = ["measure", "tasks"]


def tasks(size: ComparisonSize) -> list[TuningTask]:
    """Return one task per method and n."""
    return [
        TuningTask(method, Setting(n=n, fresh=size.fresh), rounds(n), size.budget)
        for method, rounds in BY_SIZE
        for n in size.sizes
    ]


def measure(pool: RunPool, size: ComparisonSize) -> dict[str, Any]:
    """Return the curves with their fitted exponents, and the rates to compare them with."""
    tuned = pool.tune(tasks(size))
    curves = []
    for method, _ in BY_SIZE:
        record = curve([each for each in tuned if each.task.method == method])
        points = accepted_points(record)
        if len(points) > 1:
            record["exponent"] = exponent([p["n"] for p in points], [p["excess"][0] for p in points]).to_list()
        curves.append(record)
    settings = [Setting(n=n) for n in size.sizes]
    return {
        "sizes": list(size.sizes),
        "rate": [optimal_rate(setting) for setting in settings],
        "floor": [non_private_excess(setting) for setting in settings],
        "curves": curves,
    }
