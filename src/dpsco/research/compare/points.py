"""Results as plain dictionaries: what JSON holds, and all that pages, plots and tables are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsco.research.compare.estimates import Estimate, mean, ratio
from dpsco.research.compare.study import Tuned

__all__ = ["curve", "over", "point"]


def point(tuned: Tuned) -> dict[str, Any]:
    """One tuned contender at one place."""
    study, outcomes = tuned.study, tuned.outcomes
    found: dict[str, Any] = {
        "n": study.setting.n,
        "rounds": study.rounds,
        "tried": tuned.tried,
        "refused": tuned.refused,
        "best": study.contender.described(tuned.best),
        "edge": [name for name, edge in zip(study.contender.knobs, tuned.edges, strict=True) if edge],
    }
    if not tuned.works:
        return {**found, "why_not": next(o.refused for o in outcomes if o.refused)}
    return {
        **found,
        "excess": mean(tuned.scores).to_list(),
        "scores": [float(f"{score:.4g}") for score in tuned.scores],
        "gradients": round(sum(o.gradients for o in outcomes) / len(outcomes)),
        "steps": round(sum(o.steps for o in outcomes) / len(outcomes)),
        "participation": max(o.participation for o in outcomes),
        "seconds": round(sum(o.seconds for o in outcomes) / len(outcomes), 2),
    }


def curve(tuned: Sequence[Tuned]) -> dict[str, Any]:
    """The points of one contender."""
    who = tuned[0].study.contender
    return {"name": who.name, "algorithm": who.algorithm, "kind": who.kind, "points": [point(t) for t in tuned]}


def over(above: dict[str, Any], below: dict[str, Any]) -> Estimate:
    """How many times the excess of one point is that of another; their runs share rows."""
    return ratio(above["scores"], below["scores"])
