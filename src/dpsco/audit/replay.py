"""Neighbouring data sets through ``release``: measured sensitivity against the declared one.

Train on D, replay on D' with the released values of D frozen. By the proof, what is handed to ``release`` may differ
in one round, by at most ``calibration.difference``; queries, warnings, errors and everything shown must be the same.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dpsco.audit.attack_rows import OddRow, far_from, odd_rows
from dpsco.audit.audit_report import Check
from dpsco.audit.clock import Clock
from dpsco.audit.input_forms import ARRAY, forms
from dpsco.audit.recording import Transcript, observe
from dpsco.audit.subject import Ids, Subject, first_query, schedules
from dpsco.query import Array

__all__ = ["replay_check"]

_LISTED = 4


def replay_check(
    subject: Subject, features: Array, labels: Array, rng: np.random.Generator, clock: Clock | None = None
) -> Check:
    """Each odd row takes the place of another somewhere in the data; the worst distance against what was declared.

    All odd rows are tried as an array of numbers, and a few of them in every other container.
    """
    clock = clock or Clock()
    ids = np.arange(len(labels))
    base = observe(lambda: subject.run(features, labels, ids, True))
    stages = schedules(subject.plan, base.released)
    used = min(len(labels), sum(schedule.rounds * schedule.batch_size for schedule in stages) or len(labels))
    stages = stages or [subject.plan.schedule]
    declared = [s.most_noise.difference for s in stages for _ in range(s.rounds)]
    stage_of = [k for k, s in enumerate(stages) for _ in range(s.rounds)]
    surveyed = min(used, stages[0].batch_size) if len(stages) > 1 else used
    findings: list[tuple[float, str]] = []
    reached: set[int] = set()
    worst, pairs = 0.0, 0
    if base.error is not None:
        findings.append((0.0, f"the data set itself ends in {base.error}."))
    tried = _tried(odd_rows(subject.plan.problem, rng), dense=subject.own_oracle) if base.error is None else []
    for form, row in tried:
        if clock.over and pairs >= _LEAST:
            break
        clock.say(f"neighbours: {pairs + 1} of {len(tried)} pairs ({row.name}, {form})")
        behind = surveyed < used and pairs % 2 == 1  # every other pair differs behind the survey
        place = int(rng.integers(surveyed, used) if behind else rng.integers(surveyed))
        if pairs % 8 in (2, 4):  # the ends of a round: what an oracle carries over is often its first or its last row
            place = 0 if pairs % 8 == 2 else min(surveyed, stages[0].batch_size) - 1
        first, second = _pair(subject, (features, labels, ids), place, row)
        one = observe(partial(subject.run, *first, True, form), base)
        other = observe(partial(subject.run, *second, True, form), base)
        pairs += 1
        distances = [_distance(a, b) / d for a, b, d in zip(one.sums, other.sums, declared, strict=False)]
        if one.error is not None:  # release refused a sum that is not finite: no distance is beyond it
            distances.append(np.inf)
        worst = max([worst, *distances])
        reached |= {stage_of[step] for step, distance in enumerate(distances[: len(stage_of)]) if distance > 0}
        found = _compare(one, other, distances)
        findings += [(weight, f"row {place}, {row.name!r} ({form}): {text}") for weight, text in found]
    findings.sort(key=lambda item: -item[0])
    texts = [text for _, text in findings]
    idle = not findings and (worst == 0.0 or len(reached) < len(stages))
    return Check(
        "neighbours",
        "do two data sets that differ in one row differ by more than was declared, anywhere?",
        not findings,
        ("no pair of neighbours differs at all: no row reached a sum" if worst == 0.0 else _NOT_BEHIND)
        if idle
        else f"largest distance at release {worst:.4g} of the declared "
        + " (survey) and ".join(f"{s.most_noise.difference:.4g}" for s in stages),
        f"deterministic, {pairs} of {len(tried)} pairs of neighbours ({subject.plan.budget.adjacency}), whole runs "
        f"replayed, rows in {len({form for form, _ in tried[:pairs]})} kinds of container",
        (_IDLE if worst == 0.0 else _FEWER,)
        if idle
        else tuple(texts[:_LISTED]) + ((f"{len(texts)} findings in all.",) if len(texts) > _LISTED else ()),
        tested=not idle,
    )


_NOT_BEHIND = "no pair of neighbours differs in a sum behind the survey, or none in the survey"
_FEWER = "the rows that were tried do not reach every stage of the plan. Give more rows, or audit a plan of smaller n."
_IDLE = (
    "every row counts as a zero row. Check that labels are among the declared classes and rows have the right width."
)
_IN_OTHER_FORMS = ("ordinary", "100 times too long", "NaN in a feature", "label 77")
_LEAST = 12  # pairs that are tried however slow the subject is


def _tried(rows: list[OddRow], *, dense: bool) -> list[tuple[str, OddRow]]:
    others = [(form, row) for form in forms(dense=dense) for row in rows if row.name in _IN_OTHER_FORMS]
    return [(ARRAY, row) for row in rows] + others


def _distance(one: Array, other: Array) -> float:
    """How far apart two sums are: infinitely, if one is longer or not finite (NaN compares with nothing)."""
    if one.shape != other.shape:
        return np.inf
    with np.errstate(all="ignore"):
        distance = float(np.linalg.norm(one - other))
    return distance if np.isfinite(distance) else np.inf


_Rows = tuple[Array, Array, Ids]


def _pair(subject: Subject, rows: _Rows, place: int, row: OddRow) -> tuple[_Rows, _Rows]:
    """Two neighbours, the first with the odd row at ``place``."""
    x, y, ids = rows[0].copy(), np.array(rows[1], dtype=np.float64), rows[2]
    x[place], y[place] = row.features, row.label
    odd = (x, y, ids)
    adjacency = subject.plan.budget.adjacency
    if adjacency == "replace":
        plan = subject.plan
        surveyed = plan.schedule.survey_length > 0 and place < plan.schedule.batch_size
        other = far_from(row, plan.problem, first_query(plan).moment if surveyed else None)
        far = (x.copy(), y.copy(), ids)
        far[0][place], far[1][place] = other.features, other.label
        return odd, far
    if adjacency == "add-remove":
        return odd, (np.delete(x, place, axis=0), np.delete(y, place), np.delete(ids, place))
    zero = (x.copy(), y.copy(), ids)
    zero[1][place] = np.nan  # a row without a label is the zero row
    return odd, zero


def _compare(one: Transcript, other: Transcript, distances: list[float]) -> list[tuple[float, str]]:
    """Return the findings, largest distance first, in units of what was declared."""
    if one.error != other.error:
        return [(0.0, f"one data set ends in {one.error or 'a model'}, its neighbour in {other.error or 'a model'}.")]
    if [len(total) for total in one.sums] != [len(total) for total in other.sums]:
        return [(np.inf, "the numbers that are released are not as many with this row as without it.")]
    if one.error is not None:  # without the odd row the run came to its end, and whether it does is an output
        return [(np.inf, f"a run with this row ends in {one.error}.")]
    found, apart = [], max(distances, default=0.0)
    if apart > 1:
        step = int(np.argmax(distances))
        found.append((apart, f"the sums of round {step} are {apart:.4g} times the declared difference apart."))
    moved = [step for step, distance in enumerate(distances) if distance > 0]
    if len(moved) > 1:
        found.append((apart, f"rounds {moved[0]} and {moved[1]} both change: a row may enter one round only."))
    if one.warned != other.warned:
        found.append((0.0, "one data set warns, its neighbour does not: a warning is an output."))
    if [q.digest() for q in one.queries] != [q.digest() for q in other.queries]:
        found.append((0.0, "the runs ask different queries although the same values were released to both."))
    elif one.visible != other.visible:
        found.append((0.0, "model, report or trace differ although the same values were released to both."))
    return found
