"""One pass beside many: what methods that read the data again and again reach, with gradients and rounds counted."""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.lineup import ONE_PASS, full_batch, poisson
from dpsco.research.compare.points import over, point
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.settings import Setting, floor
from dpsco.research.compare.study import Study, Tuned

__all__ = ["measure", "studies"]

OWN_ROUNDS = 64
POISSON_ROUNDS = 64
"""Rounds of one epoch of DP-SGD: its rate of sampling is one over it."""


def studies(scale: Scale) -> list[Study]:
    """One pass of ours first, at every n."""
    settings = [Setting(n=n, fresh=scale.fresh) for n in scale.passes_sizes]
    return [study for setting in settings for study in _at(setting, scale)]


def _at(setting: Setting, scale: Scale) -> list[Study]:
    return [
        Study(ONE_PASS, setting, OWN_ROUNDS, scale.effort),
        *(Study(poisson(e), setting, POISSON_ROUNDS * e, scale.effort) for e in scale.epochs),
        *(Study(full_batch(e), setting, e, scale.effort) for e in scale.full_batch_epochs),
    ]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """A group for each n: a line each, with its excess over that of one pass."""
    wanted = studies(scale)
    tuned = pool.study(wanted)
    each = len(wanted) // len(scale.passes_sizes)
    return {"groups": [_group(tuned[start : start + each]) for start in range(0, len(tuned), each)]}


def _group(tuned: list[Tuned]) -> dict[str, Any]:
    lines = [{"name": found.study.contender.name, **point(found)} for found in tuned]
    for line in lines:
        if "scores" in line:
            line["over_ours"] = over(line, lines[0]).to_list()
    setting = tuned[0].study.setting
    return {"n": setting.n, "floor": floor(setting), "lines": lines}
