"""The marks that the headline must reach, each with the measured ratio and its interval.

At n^(1/4) rounds, excess over ours: one-pass DP-SGD and DP-FTRL at least 4, acceleration with independent gradients
at least 1.7, the unaccelerated variant at least 3. Best over all rounds: ours at most 0.75 of the best one-pass method
without recursive gradients and at most 1.15 of the unaccelerated variant's best. The former is told twice: against
methods as their papers have them, and against those with momentum and averaging too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsco.research.compare.points import over

__all__ = ["marks"]

AT_FEW_ROUNDS = {"dp-sgd": 4.0, "dp-ftrl": 4.0, "accelerated-sgd": 1.7, "unaccelerated-srgd": 3.0}
RECURSIVE = ("accelerated-srgd", "unaccelerated-srgd", "online-to-batch")
BELOW_ONE_PASS, BELOW_UNACCELERATED = 0.75, 1.15


def marks(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each mark: what, the ratio asked for, the ratio measured, whether it is reached."""
    curves = [c for c in section["curves"] if any("excess" in p for p in c["points"])]
    ours = next(c for c in curves if c["kind"] == "ours")
    at, best = _at(ours, section["quarter"]), _best(ours)
    found = []
    for algorithm, wanted in AT_FEW_ROUNDS.items():
        rival = _plain(curves, algorithm)
        place = None if rival is None else _at(rival, section["quarter"])
        if rival is None or at is None or place is None:
            continue
        measured = over(place, at)
        what = f"{rival['name']} over ours at {section['quarter']} rounds"
        found.append(
            {
                "what": what,
                "asked": f"at least {wanted:g}",
                "measured": measured.to_list(),
                "met": measured.value >= wanted,
            }
        )
    for kinds, words in (
        (("one pass",), ""),
        (("one pass", "one pass, more tuned"), ", momentum and averaging allowed"),
    ):
        others = [c for c in curves if c["kind"] in kinds and c["algorithm"] not in RECURSIVE]
        if others:
            rival = min(others, key=lambda c: _best(c)["excess"][0])
            who = f"the best one-pass method without recursive gradients{words}"
            found.append(_ceiling(best, rival, BELOW_ONE_PASS, who))
    unaccelerated = _plain(curves, "unaccelerated-srgd")
    if unaccelerated is not None:
        found.append(_ceiling(best, unaccelerated, BELOW_UNACCELERATED, "the unaccelerated variant"))
    return found


def _ceiling(best: Mapping[str, Any], rival: Mapping[str, Any], limit: float, who: str) -> dict[str, Any]:
    place = _best(rival)
    measured = over(dict(best), place)
    what = f"best of ours ({best['steps']} rounds) over {who}: {rival['name']} ({place['steps']:,} rounds)"
    return {"what": what, "asked": f"at most {limit:g}", "measured": measured.to_list(), "met": measured.value <= limit}


def _plain(curves: list[Any], algorithm: str) -> Any:
    return next((c for c in curves if c["algorithm"] == algorithm and c["kind"] == "one pass"), None)


def _at(curve: Mapping[str, Any], rounds: int) -> Any:
    return next((p for p in curve["points"] if p["rounds"] == rounds and "excess" in p), None)


def _best(curve: Mapping[str, Any]) -> dict[str, Any]:
    return min((p for p in curve["points"] if "excess" in p), key=lambda p: p["excess"][0])
