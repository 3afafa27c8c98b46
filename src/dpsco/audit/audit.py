"""``audit``: every check that applies to a subject."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsco.audit.attack_rows import ordinary_rows
from dpsco.audit.audit_report import AuditReport, Check
from dpsco.audit.canaries import MOST, canary_check, estimator_guesses, judged_guesses
from dpsco.audit.canary_bounds import wanted_canaries
from dpsco.audit.clock import Clock
from dpsco.audit.contract import contract_checks
from dpsco.audit.replay import replay_check
from dpsco.audit.subject import Subject, classes_of, estimator_subject, plan_subject
from dpsco.audit.transcript import transcript_check
from dpsco.audit.units import units_check
from dpsco.errors import DataError, DpscoError, InvalidArgument, positive
from dpsco.methods.surveyed import Surveyed
from dpsco.planning.plan import Plan
from dpsco.query import Array

__all__ = ["audit"]

_ROWS = 4_096
_MOST_ROWS = 1 << 18  # of a survey, ahead of them
_SECONDS = 45.0


def audit(
    subject: Any,
    *,
    plan: Plan | None = None,
    data: tuple[Any, Any] | None = None,
    alpha: float = 1e-6,
    seed: int | None = None,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> AuditReport:
    """Look for a broken guarantee in ``subject``.

    Parameters
    ----------
    subject : Plan, Oracle, callable or estimator
        A plan; an oracle (an object with ``answer``) or a gradient function ``g(x, features, label)``, with the
        ``plan`` it is to run under; or an estimator of the library, with ``data``.
    plan : Plan, optional
        Of an oracle or a gradient function.
    data : (X, y), optional
        Rows to run on; synthetic ones unless given. With your own rows the report is NOT PRIVATE, and marked so.
    alpha : float
        Probability that a sound subject fails one statistical check.
    seed : int, optional
        Repeats the synthetic rows and coins; the noise is always fresh.
    seconds : float, optional
        Checks that repeat runs stop after about so long, and say how much they have seen; 45 for an estimator and no
        limit for a plan unless given. The check of the noise makes up to 16 runs where fewer show too little.
    progress : callable, optional
        Called with a line of text while the audit goes on.

    Returns
    -------
    AuditReport

    Guarantee: none. An audit finds bugs; what it does not find may still be there. Cost: seconds to a minute.
    """
    if not 0 < positive("alpha", alpha, "It is the rate of false alarms.") < 0.5:
        raise InvalidArgument(f"Expected alpha={alpha} below 0.5.")
    rng = np.random.default_rng(seed)
    limit = (_SECONDS if hasattr(subject, "fit") else math.inf) if seconds is None else seconds
    clock = Clock(positive("seconds", limit, "It is how long the audit may take.", infinite=True), progress)
    if hasattr(subject, "fit"):
        if data is None:
            raise InvalidArgument("An estimator is audited on rows: pass data=(X, y). Made-up rows will do.")
        return _audit_estimator(subject, data, alpha, rng, clock)
    if isinstance(subject, Plan):
        target = plan_subject(subject)
    elif plan is None:
        raise InvalidArgument("An oracle is audited under a plan: pass plan=..., which says its clip, size and noise.")
    else:
        target = plan_subject(plan, subject)
    return _audit_plan(target, data, alpha, rng, clock)


def _audit_plan(subject: Subject, data: Any, alpha: float, rng: np.random.Generator, clock: Clock) -> AuditReport:
    plan = subject.plan
    used = plan.n if isinstance(plan.method, Surveyed) else plan.rounds * plan.batch_size
    if data is None:
        ahead = min(plan.method.rows, _MOST_ROWS) if isinstance(plan.method, Surveyed) else 0
        features, labels = ordinary_rows(plan.problem, min(ahead + _ROWS, used), rng)
    else:
        features, labels = _arrays(data)
    contract = subject.own_oracle or data is None
    checks = [*contract_checks(subject, rng)] if contract else []
    checks.append(replay_check(subject, features, labels, rng, clock.part(0.4)))
    # Noise does not depend on rows, and rows that do not come count as zero rows: few make many quick runs.
    checks.append(_tried("noise", lambda: transcript_check(subject, features[:1], labels[:1], alpha, clock.part(0.5))))
    first = slice(0, min(plan.batch_size, plan.problem.dimension))
    checks.append(_tried("canaries", lambda: canary_check(subject, features[first], labels[first], alpha, rng, clock)))
    return _report(subject, checks, synthetic=data is None)


def _audit_estimator(estimator: Any, data: Any, alpha: float, rng: np.random.Generator, clock: Clock) -> AuditReport:
    from dpsco.estimators import PrivateLinearModel

    if not isinstance(estimator, PrivateLinearModel):
        raise InvalidArgument(
            f"Expected an estimator of dpsco, got {type(estimator).__name__}. Of a pipeline, audit the last step "
            "on the rows that it gets: audit(pipeline[-1], data=(pipeline[:-1].transform(X), y))."
        )
    try:
        given = np.asarray(data[1])
    except (TypeError, ValueError, IndexError):
        raise DataError("Expected data=(X, y), rows and a label for each.") from None
    classes = classes_of(estimator, given)
    features, labels = _arrays((data[0], given if classes is None else classes.encode(given)))
    clock.say("the estimator as it is")
    subject = estimator_subject(estimator, features, labels, classes)
    wanted = min(MOST, wanted_canaries(subject.plan.budget.mu_per_record, alpha))
    checks = [
        replay_check(subject, features, labels, rng, clock.part(0.4)),
        _tried("noise", lambda: transcript_check(subject, features, labels, alpha, clock.part(0.5))),
    ]
    if subject.rows_per_unit is not None:
        checks.append(units_check(subject, features, labels, rng))
    if checks[0].tested:
        found = estimator_guesses(estimator, features, labels, wanted, rng, clock, classes)
        checks.append(judged_guesses(subject.plan, found, alpha))
    return _report(subject, checks, synthetic=False)


def _tried(name: str, check: Any) -> Check:
    """Run a check whose runs must end; a run that does not end is its finding."""
    try:
        found: Check = check()
    except DpscoError as error:
        return Check(name, "could it be looked at?", False, "no run came to its end", "none", (str(error),))
    return found


def _report(subject: Subject, checks: list[Check], *, synthetic: bool) -> AuditReport:
    budget = subject.plan.budget
    rows = "one row" if budget.records == 1 else f"any {budget.records} rows"
    guarantee = f"({budget.epsilon:g}, {budget.delta:g})-DP for {rows} ({budget.adjacency}), mu = {budget.mu:.5g}"
    return AuditReport(subject.name, guarantee, tuple(checks), synthetic)


def _arrays(data: Any) -> tuple[Array, Array]:
    try:
        features, labels = np.asarray(data[0], dtype=np.float64), np.asarray(data[1], dtype=np.float64)
    except (TypeError, ValueError, IndexError):
        raise DataError("Expected data=(X, y), two arrays of numbers.") from None
    if features.ndim != 2 or labels.shape != (len(features),) or not len(labels):
        raise DataError(
            f"Expected data=(X, y) of shapes (rows, features), (rows,); got {features.shape}, {labels.shape}."
        )
    return features, labels
