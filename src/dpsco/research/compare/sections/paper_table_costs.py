"""The paper's Table 1, measured: steps and gradients are counted, and exponents are fitted.

Every method runs with the settings of its own formulas, untuned: this section measures cost, not accuracy. The
training loop counts. "Single epoch" means a counted participation of 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dpsco.methods import METHODS
from dpsco.research.compare.compared_methods import NEED_ACCOUNTANT, accountant_installed
from dpsco.research.compare.comparison_size import ComparisonSize
from dpsco.research.compare.estimates import exponent
from dpsco.research.compare.evaluation_data import Setting
from dpsco.research.compare.paper_table import LINES, RESQUE, ROWS, TableRow
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.single_run import RunOutcome, SingleRun

__all__ = ["measure", "runs"]

CLOSE = 0.02
"""Exponents that differ by less count as equal."""


def runs(size: ComparisonSize) -> list[SingleRun]:
    """Return one run per row and n."""
    return [_run(row, n, size) for row in _rows() for n in size.table_sizes]


def measure(pool: RunPool, size: ComparisonSize) -> dict[str, Any]:
    """Return the measured table."""
    outcomes, count = pool.execute(runs(size)), len(size.table_sizes)
    lines = [
        _line(row, dict(zip(size.table_sizes, outcomes[i * count : (i + 1) * count], strict=True)))
        for i, row in enumerate(_rows())
    ]
    return {"sizes": list(size.table_sizes), "lines": lines, "left_out": RESQUE}


def _rows() -> tuple[TableRow, ...]:
    return tuple(row for row in ROWS if accountant_installed() or row.method not in NEED_ACCOUNTANT)


def _run(row: TableRow, n: int, size: ComparisonSize) -> SingleRun:
    setting = Setting(n=n, fresh=size.fresh)
    return SingleRun(setting, row.method, row.rounds(n), "scoring", 0, options=row.options)


def _line(row: TableRow, outcomes: dict[int, RunOutcome]) -> dict[str, Any]:
    paper = dataclasses.asdict(LINES[row.line])
    ran = {n: outcome for n, outcome in outcomes.items() if not outcome.refused}
    line: dict[str, Any] = {
        "name": row.name,
        "method": row.method,
        "system": paper.pop("system"),
        "paper": paper,
        "sizes": list(ran),
        "refusals": sorted({outcome.refused for outcome in outcomes.values() if outcome.refused}),
        "why": [],
    }
    if len(ran) < 2:
        return line
    steps, gradients = [o.steps for o in ran.values()], [o.gradients for o in ran.values()]
    step_fit, gradient_fit = exponent(list(ran), steps), exponent(list(ran), gradients)
    participation = max(outcome.participation for outcome in ran.values())
    method = METHODS[row.method]
    reasons = (
        (row.step_reason, step_fit.value - paper["step_exponent"]),
        (row.gradient_reason, gradient_fit.value - paper["gradient_exponent"]),
    )
    return line | {
        "steps": steps,
        "gradients": gradients,
        "step_exponent": step_fit.to_list(),
        "gradient_exponent": gradient_fit.to_list(),
        "gradients_per_row": round(gradients[-1] / list(ran)[-1], 3),
        "participation": participation,
        "single_epoch": participation == 1,
        "declares_single_epoch": bool(method.single_epoch),
        "convexity": method.needs == "convexity",
        "releases": method.releases,
        "excess": [float(f"{outcome.score or 0.0:.4g}") for outcome in ran.values()],
        "seconds": [round(outcome.seconds, 2) for outcome in ran.values()],
        "why": [reason for reason, difference in reasons if reason and abs(difference) > CLOSE],
    }
