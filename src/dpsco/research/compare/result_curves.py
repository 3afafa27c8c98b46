"""Results as plain dictionaries: the content of compare.json, from which pages, plots and tables are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.research.compare.estimates import Estimate, mean, ratio
from dpsco.research.compare.single_run import PLANNED
from dpsco.research.compare.tuning import TunedMethod

__all__ = ["accepted_points", "best_point", "curve", "excess_ratio", "mean_of", "point", "point_at"]


def point(tuned: TunedMethod) -> dict[str, Any]:
    """Return the record of one tuned method at one setting.

    ``at`` is the number of rounds that the point stands for: the counted ones or, for a plan, the most that it may use.
    """
    task, outcomes = tuned.task, tuned.outcomes
    record: dict[str, Any] = {
        "n": task.setting.n,
        "rounds": task.rounds,
        "tried": tuned.tried,
        "refused": tuned.refused,
        "best": task.method.describe(tuned.best),
        "edge": [name for name, edge in zip(task.method.knobs, tuned.edges, strict=True) if edge],
    }
    if not tuned.accepted:
        return {**record, "why_not": next(outcome.refused for outcome in outcomes if outcome.refused)}
    steps = round(mean_of([outcome.steps for outcome in outcomes]))
    limited = task.method.method == PLANNED and "rounds" not in dict(task.method.options)
    return {
        **record,
        "excess": mean(tuned.scores).to_list(),
        "scores": [float(f"{score:.4g}") for score in tuned.scores],
        "gradients": round(mean_of([outcome.gradients for outcome in outcomes])),
        "steps": steps,
        "at": task.rounds if limited else steps,
        "participation": max(outcome.participation for outcome in outcomes),
        "seconds": round(mean_of([outcome.seconds for outcome in outcomes]), 2),
    }


def curve(tuned: Sequence[TunedMethod]) -> dict[str, Any]:
    """Return the points of one method."""
    method = tuned[0].task.method
    points = [point(each) for each in tuned]
    return {"name": method.name, "method": method.method, "kind": method.kind, "points": points}


def excess_ratio(above: Mapping[str, Any], below: Mapping[str, Any]) -> Estimate:
    """Return the excess of one point divided by that of another, paired: both methods saw the same rows."""
    return ratio(above["scores"], below["scores"])


def accepted_points(curve: Mapping[str, Any]) -> list[Any]:
    """Return the points at which the method accepted the setting."""
    return [point for point in curve["points"] if "excess" in point]


def best_point(curve: Mapping[str, Any]) -> Any:
    """Return the point with the least excess."""
    return min(accepted_points(curve), key=lambda point: point["excess"][0])


def point_at(curve: Mapping[str, Any], rounds: int) -> Any:
    """Return the point at this number of rounds, None if the method has none."""
    return next((p for p in accepted_points(curve) if p["rounds"] == rounds == p["at"]), None)


def mean_of(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)
