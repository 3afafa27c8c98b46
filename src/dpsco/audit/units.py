"""The cap on the rows of one unit, where rows carry ids: a unit with many rows may move sums as far as k rows do.

One unit gets many rows, far apart, and all of them are alike. Without them, by the proof, sums differ by at most k
contributions, in all rounds together.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dpsco.audit.attack_rows import odd_rows
from dpsco.audit.audit_report import Check
from dpsco.audit.recording import observe
from dpsco.audit.subject import Subject, schedules
from dpsco.query import Array

__all__ = ["units_check"]

_ROWS = 64
_TIMES = 8
"""Rows of the unit, in multiples of the cap: a row may contribute less than the clip."""
_ROUNDING = 1.0 + 1e-9


def units_check(subject: Subject, features: Array, labels: Array, rng: np.random.Generator) -> Check:
    """Compare a data set in which one unit has many rows with the one in which these are zero rows."""
    most = subject.rows_per_unit or 1
    rows = min(len(labels) // 2, max(_TIMES * most, _ROWS))
    name, question = "units", f"does one id with more than {most} rows move sums by more than {most} rows do?"
    if rows <= 2 * most:
        text = f"{len(labels)} rows are too few for one id that has many more than {most}"
        return Check(name, question, True, "too few rows", "none", (f"{text}. Give more rows.",), tested=False)
    places, ids = rng.choice(len(labels), rows, replace=False), np.arange(len(labels))
    ids[places] = places[0]
    row = next(row for row in odd_rows(subject.plan.problem, rng) if row.name == "100 times too long")
    x, y = features.copy(), np.array(labels, dtype=np.float64)
    x[places], y[places] = row.features, row.label
    without = y.copy()
    without[places] = np.nan
    one = observe(partial(subject.run, x, y, ids, True))
    other = observe(partial(subject.run, x, without, ids, True), one)
    stages = schedules(subject.plan, one.released)
    declared = [schedule.most_noise.difference for schedule in stages for _ in range(schedule.rounds)]
    pairs = zip(one.sums, other.sums, declared, strict=False)
    moved = float(sum(np.linalg.norm(a - b) / difference for a, b, difference in pairs))
    findings = []
    if not moved <= most * _ROUNDING:
        findings.append(f"{rows} rows of one id move the sums by {moved:.4g} contributions: the cap is {most}.")
    if (one.error, one.warned, one.visible) != (other.error, other.warned, other.visible):
        findings.append("what the runs show differs although the same values were released to both.")
    tested = bool(findings) or moved > 0.0
    measured = f"{rows} rows of one id move sums by {moved:.4g} contributions" if tested else "no row of the id counts"
    return Check(name, question, not findings, measured, "deterministic, one pair", tuple(findings), tested=tested)
