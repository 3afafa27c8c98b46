"""Ratios of excess risks that summarise the section over rounds, with their intervals.

At n^(1/4) rounds: each one-pass method over Accelerated-DP-SRGD. Best over all rounds: Accelerated-DP-SRGD over the
best one-pass method without recursive gradients (as published, then with momentum and averaging), and over its
unaccelerated variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsco.research.compare.estimates import Estimate
from dpsco.research.compare.result_curves import accepted_points, best_point, excess_ratio, point_at

__all__ = ["headline_ratios"]

AT_FEW_ROUNDS = ("dp-sgd", "dp-ftrl", "accelerated-sgd", "unaccelerated-srgd")
RECURSIVE = ("accelerated-srgd", "unaccelerated-srgd", "online-to-batch")


def headline_ratios(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each ratio compares and its measured value with the ends of its interval."""
    curves = [curve for curve in section["curves"] if accepted_points(curve)]
    ours = next(curve for curve in curves if curve["kind"] == "ours")
    as_published = {c["method"]: c for c in curves if c["kind"] == "one pass"}
    rounds = section["quarter"]
    ratios = []
    for method in AT_FEW_ROUNDS:
        other = as_published.get(method)
        above, below = None if other is None else point_at(other, rounds), point_at(ours, rounds)
        if other is not None and above is not None and below is not None:
            what = f"{other['name']} over Accelerated-DP-SRGD at {rounds} rounds"
            ratios.append(_record(what, excess_ratio(above, below)))
    for kinds, condition in (
        (("one pass",), ""),
        (("one pass", "one pass, more tuned"), ", momentum and averaging allowed"),
    ):
        others = [c for c in curves if c["kind"] in kinds and c["method"] not in RECURSIVE]
        if others:
            other = min(others, key=lambda c: best_point(c)["excess"][0])
            ratios.append(_best_over(ours, other, f"the best one-pass method without recursive gradients{condition}"))
    if "unaccelerated-srgd" in as_published:
        ratios.append(_best_over(ours, as_published["unaccelerated-srgd"], "the unaccelerated variant"))
    return ratios


def _best_over(ours: Mapping[str, Any], other: Mapping[str, Any], role: str) -> dict[str, Any]:
    best, theirs = best_point(ours), best_point(other)
    what = (
        f"best of Accelerated-DP-SRGD ({best['steps']} rounds) over {role}: "
        f"{other['name']} ({theirs['steps']:,} rounds)"
    )
    return _record(what, excess_ratio(best, theirs))


def _record(what: str, measured: Estimate) -> dict[str, Any]:
    return {"what": what, "measured": measured.to_list()}
