"""Excess risk against n, each method tuned at every n, beside the optimal rate."""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.estimates import exponent
from dpsco.research.compare.lineup import SIZED
from dpsco.research.compare.points import curve
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.settings import Setting, floor, optimal_rate
from dpsco.research.compare.study import Study

__all__ = ["measure", "studies"]


def studies(scale: Scale) -> list[Study]:
    """Every contender at every n, with the rounds of its rule."""
    return [
        Study(who, Setting(n=n, fresh=scale.fresh), rounds(n), scale.effort)
        for who, rounds in SIZED
        for n in scale.sizes
    ]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """The curves with the exponents of their excess, and the rates to compare with."""
    wanted = studies(scale)
    tuned = pool.study(wanted)
    curves = []
    for who, _ in SIZED:
        found = curve([t for t in tuned if t.study.contender == who])
        good = [p for p in found["points"] if "excess" in p]
        if len(good) > 1:
            fit = exponent([p["n"] for p in good], [p["excess"][0] for p in good])
            found["exponent"] = fit.to_list()
        curves.append(found)
    settings = [Setting(n=n) for n in scale.sizes]
    return {
        "sizes": list(scale.sizes),
        "rate": [optimal_rate(setting) for setting in settings],
        "floor": [floor(setting) for setting in settings],
        "curves": curves,
    }
