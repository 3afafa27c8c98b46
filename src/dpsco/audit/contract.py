"""The contract of oracles, asked question by question, without noise.

Each row contributes one vector, a function of that row and the query alone, of norm at most C; the answer is the sum.

    answer(q, {d})                      norm at most C (1 + 2^-11) + sqrt(p) grid / 2
    answer(q, D) - sum answer(q, {d})   within the slack of summation and rounding
    answer(q, D) twice                  the same bits
    answer(q, {odd row})                finite; no error and no warning that another row would not cause
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsco.audit.attack_rows import OddRow, odd_rows, ordinary_rows
from dpsco.audit.audit_report import Check
from dpsco.audit.subject import Subject, first_query
from dpsco.query import SUMMATION_SLACK, Array, Batch, Query

__all__ = ["contract_checks"]

_LISTED = 4
_COMPANY, _CROWD = 7, 256
"""Rows that are asked about together: few at every question, and many, where batches have as many, at two of them."""
_NOTHING = "no row contributed anything: it was not answered, or its contribution was 0"


@dataclass(frozen=True)
class _Question:
    name: str
    query: Query


def contract_checks(subject: Subject, rng: np.random.Generator) -> tuple[Check, ...]:
    """Three checks: the length of one row's contribution, sums of contributions, and rows that end a run."""
    questions, rows = _questions(subject, rng), odd_rows(subject.plan.problem, rng)
    return (
        _clip_check(subject, questions, rows),
        _sum_check(subject, questions, rng),
        _outcome_check(subject, questions, rows),
    )


def _questions(subject: Subject, rng: np.random.Generator) -> list[_Question]:
    """Return queries of rounds 0, 1 and 7 at points that are equal, apart, and opposite, inside the domain.

    Second moments are asked for once, in one form.
    """
    plan, size = subject.plan, subject.plan.problem.parameters
    if plan.schedule.survey_length:
        return [_Question("the round of second moments", first_query(plan))]
    project = plan.problem.domain.project
    noise = plan.schedule.most_noise

    def query(step: int, *points: Array) -> Query:
        weights = (step + 1.0, -float(step))[: len(points)]
        return Query(step, points, weights, plan.clip, plan.batch_size, noise.grid, noise.rowwise)

    def point(length: float) -> Array:
        x = rng.standard_normal(size)
        return project(length * x / np.linalg.norm(x))

    far, near, here = point(1e3), point(1.0), project(np.zeros(size))
    return [
        _Question("round 0 at the start", query(0, here)),
        _Question("round 1 at the start and at the start again", query(1, here, here)),
        _Question("round 1 at two points far apart", query(1, far, project(-far))),
        _Question("round 7 at two near points", query(7, near, project(near + 1e-3))),
        _Question("round 7 at two opposite points", query(7, near, project(-near))),
        _Question("round 7 at a near and a far point", query(7, here, far)),
    ]


def _ask(subject: Subject, query: Query, rows: Array, labels: Array) -> Array:
    scaled = subject.scaled(np.array(rows, dtype=np.float64))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = subject.oracle.answer(query, Batch(query.step, [(scaled, np.array(labels))]))
    return np.array(answer.total, dtype=np.float64)


def _norm(vector: Array) -> float:
    """l2 norm without overflow of the squares."""
    with np.errstate(all="ignore"):
        scale = max(1.0, float(np.max(np.abs(vector), initial=0.0)))
        return float(np.linalg.norm(vector / scale)) * scale


# --- how long one row's contribution is -------------------------------------------------------------


def _clip_check(subject: Subject, questions: list[_Question], rows: list[OddRow]) -> Check:
    plan = subject.plan
    clip, grid = plan.schedule.most_noise.clip, plan.schedule.most_noise.grid
    bound = clip * (1 + SUMMATION_SLACK / 2) + np.sqrt(plan.schedule.sum_length) * grid / 2
    largest, over, answered = 0.0, [], 0
    for question in questions:
        for row in rows:
            try:
                length = _norm(_ask(subject, question.query, row.features[None], np.array([row.label])))
            except Exception:  # noqa: S112 - errors are the third check's
                continue
            answered += 1
            if np.isfinite(length):
                largest = max(largest, length)
            if length > bound and np.isfinite(length):
                over.append((length, row, question))
    over.sort(key=lambda item: -item[0])
    findings = [
        f"{question.name}, row {row.name!r}: its contribution is {length / clip:.4g} times the clip."
        for length, row, question in over[:_LISTED]
    ]
    if over:
        findings += [f"{len(over)} of {len(questions) * len(rows)} cases exceed it.", _why(subject, *over[0][1:])]
    return Check(
        "clip",
        "can one row contribute more than the clip?",
        not over,
        f"longest contribution {largest / clip:.4g} times the clip" if largest or over else _NOTHING,
        f"deterministic, {answered} of {len(questions) * len(rows)} synthetic rows and queries were answered; rows not "
        "tried may still exceed it",
        tuple(findings),
        tested=largest > 0 or bool(over),
    )


def _why(subject: Subject, row: OddRow, question: _Question) -> str:
    """Guess the bug from the answers to the parts of the question."""
    clip = subject.plan.schedule.most_noise.clip
    if question.query.moment is not None:
        return "The bound on second moments is that of clipping/survey.py: the oracle sums something longer."

    def alone(index: int, weight: float) -> float:
        q = question.query
        part = Query(q.step, (q.points[index],), (weight,), q.clip, q.size, q.grid, q.rowwise)
        return _norm(_ask(subject, part, row.features[None], np.array([row.label]))) / clip

    try:
        plain = [alone(j, 1.0) for j in range(len(question.query.points))]
        weighted = [alone(j, weight) for j, weight in enumerate(question.query.weights)]
    except Exception:
        return "It looks as if the oracle cannot answer for one point alone; round 0 asks for one."
    if max(weighted) <= 1.001:
        return (
            "Each weighted gradient alone is within the clip and their difference is not: it looks as if the two "
            "gradients are clipped separately. Subtract first, clip the difference once."
        )
    if max(plain) <= 1.001:
        return (
            "A gradient of weight 1 is within the clip and a heavier one is not: it looks as if clipping comes before "
            "weighting. Multiply by the weights, subtract, then clip."
        )
    return "A single gradient already exceeds it: it looks as if nothing is clipped, or by another norm than l2."


# --- sums of contributions --------------------------------------------------------------------------


def _sum_check(subject: Subject, questions: list[_Question], rng: np.random.Generator) -> Check:
    plan = subject.plan
    noise = plan.schedule.most_noise
    slack = noise.clip * SUMMATION_SLACK + np.sqrt(plan.schedule.sum_length) * noise.grid
    crowd = min(_CROWD, plan.batch_size)
    asked = [(question, _COMPANY) for question in questions]
    asked += [(question, crowd) for question in questions[::5]] if crowd > _COMPANY else []
    rows, labels = ordinary_rows(plan.problem, max(crowd, _COMPANY), rng)
    findings, worst, seen = [], 0.0, False
    for question, count in asked:
        a, y = rows[:count], labels[:count]
        try:
            singles = [_ask(subject, question.query, a[i : i + 1], y[i : i + 1]) for i in range(count)]
            whole = _ask(subject, question.query, a, y)
            other = _ask(subject, question.query, a[::-1], y[::-1])
            again = _ask(subject, question.query, a, y)
        except Exception as error:
            findings.append(f"{question.name}: {count} ordinary rows end in {type(error).__name__}.")
            continue
        total = np.sum(singles, axis=0)
        seen = seen or bool(np.any(whole)) or any(map(np.any, singles))
        apart = float(np.linalg.norm(whole - total))
        worst = max(worst, apart, float(np.linalg.norm(whole - other)))
        if not np.array_equal(whole, again):
            findings.append(
                f"{question.name}: the same question about the same rows was answered differently the second time: the "
                "oracle keeps state or draws random numbers. An answer may depend on its query and its rows alone."
            )
        elif apart > (count + 1) * slack:
            findings.append(f"{question.name}: {_mismatch(whole, total, count)}")
    together = f"{_COMPANY}" if crowd <= _COMPANY else f"{_COMPANY} and {crowd}"
    return Check(
        "one row at a time",
        "is the answer for several rows the sum of the answers for each, and the same every time?",
        not findings,
        f"largest mismatch {worst / noise.clip:.3g} times the clip" if seen else _NOTHING,
        f"deterministic, {len(questions)} queries of {together} synthetic rows, alone, together, reversed and repeated",
        tuple(findings[:_LISTED]),
        tested=seen or bool(findings),
    )


def _mismatch(whole: Array, total: Array, rows: int) -> str:
    if float(np.linalg.norm(whole * rows - total)) <= 0.02 * float(np.linalg.norm(total)):
        return (
            f"{rows} rows give 1/{rows} of the sum of their answers: the oracle divides by the number of rows. Return "
            "the sum; the division by the public batch size comes after the noise."
        )
    return (
        "the answer for the rows together is not the sum of their answers: what a row contributes depends on the other "
        "rows (a batch statistic, a normalisation, a clip of the sum), so a changed row moves more than itself."
    )


# --- rows that end a run ----------------------------------------------------------------------------


def _outcome_check(subject: Subject, questions: list[_Question], rows: list[OddRow]) -> Check:
    findings: list[str] = []
    for row in rows:
        for question in questions:
            found = _outcome(lambda row=row, q=question: _loud(subject, q.query, row))  # type: ignore[misc]
            if found is not None:
                findings.append(f"row {row.name!r}, {question.name}: {found}")
                break
    return Check(
        "every row is taken",
        "can one row make the run stop, or warn?",
        not findings,
        f"{len(rows) - len(findings)} of {len(rows)} kinds of odd rows stop nothing and cause no warning",
        f"deterministic, {len(rows)} kinds of synthetic rows",
        tuple(findings[: 2 * _LISTED]),
    )


def _loud(subject: Subject, query: Query, row: OddRow) -> Any:
    scaled = subject.scaled(np.array(row.features[None], dtype=np.float64))
    return subject.oracle.answer(query, Batch(query.step, [(scaled, np.array([row.label]))])).total


def _outcome(act: Callable[[], Any]) -> str | None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            total = act()
        except Exception as error:
            return f"it ends in {type(error).__name__}. An error is an output: count such rows as zero rows."
    if not np.all(np.isfinite(total)):
        return "the sum is not finite, and release refuses it. Count a row that is not finite as a zero row."
    if caught:
        return f"it warns ({caught[0].category.__name__}). Such a warning is an output: np.errstate silences it."
    return None
