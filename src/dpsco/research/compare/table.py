"""Table 1, measured: steps and gradients counted while each method runs as its authors set it, exponents fitted.

Every method runs with its formulas' own settings, untuned: what is measured here is cost, not accuracy. Counts are
those of the training loop; "single epoch" is a counted participation of 1, and must agree with what the method says.
"""

from __future__ import annotations

from typing import Any

from dpsco.research.compare.estimates import Estimate, exponent
from dpsco.research.compare.lineup import TABLE, Row
from dpsco.research.compare.paper import LINES, RESQUE, Line
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.settings import Setting
from dpsco.research.compare.trial import Outcome, Trial

__all__ = ["measure", "trials"]

CLOSE = 0.02
"""Exponents that differ by less are called equal."""


def trials(scale: Scale) -> list[Trial]:
    """Every row at every n."""
    return [
        Trial(
            setting=Setting(n=n, fresh=scale.fresh),
            algorithm=row.algorithm,
            rounds=row.rounds(n),
            role="scoring",
            replicate=replicate,
            options=row.options,
            plan=row.plan,
        )
        for row in TABLE
        for n in scale.table_sizes
        for replicate in range(scale.table_keys)
    ]


def measure(pool: Pool, scale: Scale) -> dict[str, Any]:
    """The table, a line each."""
    outcomes = pool.runs(trials(scale))
    each = len(scale.table_sizes) * scale.table_keys
    lines = [_line(row, outcomes[i * each : (i + 1) * each], scale) for i, row in enumerate(TABLE)]
    return {"sizes": list(scale.table_sizes), "lines": lines, "left_out": RESQUE}


def _line(row: Row, outcomes: list[Outcome], scale: Scale) -> dict[str, Any]:
    paper = LINES[row.line]
    keys = scale.table_keys
    ran = {
        n: outcomes[i * keys : (i + 1) * keys]
        for i, n in enumerate(scale.table_sizes)
        if all(not o.refused for o in outcomes[i * keys : (i + 1) * keys])
    }
    refusals = sorted({o.refused for o in outcomes if o.refused})
    line: dict[str, Any] = {
        "name": row.name,
        "algorithm": row.algorithm,
        "system": paper.system,
        "paper": {
            "gradients": paper.gradients,
            "steps": paper.steps,
            "gradient_exponent": paper.gradient_exponent,
            "step_exponent": paper.step_exponent,
            "single_epoch": paper.single_epoch,
            "convexity": paper.convexity,
        },
        "sizes": list(ran),
        "refusals": refusals,
    }
    if len(ran) < 2:
        return line
    steps = [sum(o.steps for o in found) / keys for found in ran.values()]
    gradients = [sum(o.gradients for o in found) / keys for found in ran.values()]
    step_fit, gradient_fit = exponent(list(ran), steps), exponent(list(ran), gradients)
    participation = max(o.participation for found in ran.values() for o in found)
    line |= {
        "steps": [round(s) for s in steps],
        "gradients": [round(g) for g in gradients],
        "step_exponent": step_fit.to_list(),
        "gradient_exponent": gradient_fit.to_list(),
        "gradients_per_row": round(gradients[-1] / list(ran)[-1], 3),
        "participation": participation,
        "single_epoch": participation == 1,
        "declares_single_epoch": bool(row.method.single_epoch),
        "convexity": row.method.needs == "convexity",
        "releases": row.method.releases,
        "excess": [float(f"{sum(o.score or 0.0 for o in found) / keys:.4g}") for found in ran.values()],
        "seconds": [round(sum(o.seconds for o in found) / keys, 2) for found in ran.values()],
    }
    line["why"] = _why(row, paper, step_fit, gradient_fit)
    return line


def _why(row: Row, paper: Line, steps: Estimate, gradients: Estimate) -> list[str]:
    """The reasons for what differs from the paper's exponents, and nothing where nothing does."""
    told = []
    if abs(steps.value - paper.step_exponent) > CLOSE:
        told.append(row.step_reason)
    if abs(gradients.value - paper.gradient_exponent) > CLOSE:
        told.append(row.gradient_reason)
    return [reason[0].upper() + reason[1:] for reason in told if reason]
