"""Canaries: rows put in or left out by a coin, and how often the coins can be told from what was released.

Canary i is a long row along a feature of its own, in round t; in or out moves that round's sum by s_i, which nobody
else's noise touches. The adversary knows every other row and sees every released value, so for each canary

    ratio_i = s_i' (Sigma^-1 e_t)' (released - sum without canary i) - |s_i|^2 (Sigma^-1)_tt / 2,    guess "in" if > 0.

Right guesses are counted and turned into a lower bound on epsilon (bounds.py). Noise is independent from coordinate to
coordinate, so guesses are, and the bound of independent guesses holds; the one without that assumption is stated too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsco.accounting import gaussian
from dpsco.audit.audit_report import Check
from dpsco.audit.canary_bounds import independent_bound, power_at_half_noise, universal_bound, wanted_canaries
from dpsco.audit.clock import Clock
from dpsco.audit.input_forms import Classes
from dpsco.audit.recording import observe
from dpsco.audit.subject import Ids, Subject, estimator_subject, schedules
from dpsco.clipping.sketch import rank_of
from dpsco.errors import DataError
from dpsco.methods.surveyed import Surveyed
from dpsco.planning.plan import Plan
from dpsco.query import Array, Batch, Query
from dpsco.rows.ids import rounds_of_ids

__all__ = ["MOST", "Guesses", "canary_check", "estimator_guesses", "guess", "judged_guesses", "plan_guesses"]

MOST = 5_000
"""Canaries at most; small budgets would ask for more, and the check then says what it can still catch."""
_LONG = 1e4
_LEAST_POWER = 0.5
"""A bound is stated if half the noise would have been caught at least so often."""


@dataclass(frozen=True)
class Guesses:
    """How many coins were told right, in how many runs."""

    right: int
    canaries: int
    runs: int


def judged_guesses(plan: Plan, found: Guesses, alpha: float) -> Check:
    """Return the lower bound on epsilon at confidence 1 - alpha, against the claim for one row."""
    delta, claimed = plan.budget.delta, plan.budget.mu_per_record
    lower = independent_bound(found.right, found.canaries, alpha)
    universal = universal_bound(found.right, found.canaries, alpha)
    at = {mu: gaussian.epsilon_of(mu, delta) if mu > 0 else 0.0 for mu in (lower, universal, claimed)}
    power = power_at_half_noise(claimed, found.canaries, alpha)
    passed = lower <= claimed
    blind = passed and power < _LEAST_POWER
    broken = (
        f"epsilon is at least {at[lower]:.4g} at delta = {delta:g}, above the claimed {at[claimed]:.4g}: canaries are "
        "told apart more often than the promise allows. Too little noise, or a contribution longer than the clip."
    )
    runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
    return Check(
        "canaries",
        "can rows put in or left out at random be told from the released values more often than promised?",
        passed,
        f"{found.right:,} of {found.canaries:,} coins told right"
        + (
            "; no bound is stated, since so few canaries could not refute this claim"
            if blind
            else f": epsilon >= {at[lower]:.4g} (>= {at[universal]:.4g} without assuming independent guesses), claimed "
            f"{at[claimed]:.4g} at delta = {delta:g}"
        ),
        f"confidence 1 - {alpha:g}, {found.canaries:,} canaries in {runs}; half the noise would be caught with "
        f"probability {power:.2f}",
        () if passed else (broken,),
        tested=not blind,
        required=False,
    )


def canary_check(
    subject: Subject,
    features: Array,
    labels: Array,
    alpha: float,
    rng: np.random.Generator,
    clock: Clock | None = None,
) -> Check:
    """Canaries among the rows of ``features`` for a plan and its oracle, in as many runs as it takes."""
    wanted = min(MOST, wanted_canaries(subject.plan.budget.mu_per_record, alpha))
    return judged_guesses(subject.plan, plan_guesses(subject, features, labels, wanted, rng, clock), alpha)


def plan_guesses(
    subject: Subject,
    features: Array,
    labels: Array,
    wanted: int,
    rng: np.random.Generator,
    clock: Clock | None = None,
) -> Guesses:
    """At least ``wanted`` canaries; as many in one run as there are features of their own for."""
    plan, clock = subject.plan, clock or Clock()
    together = _one_each(subject)
    each = min(plan.problem.dimension, plan.batch_size, len(labels), wanted) if together else 1
    right = total = runs = 0
    while total < wanted and not (runs and clock.over):
        clock.say(f"canaries: {total:,} of {wanted:,}")
        rows = _LONG * plan.problem.feature_norm * np.eye(plan.problem.dimension)[:each]
        right += guess(subject, features, labels, rows, rng, whole=not together)
        total, runs = total + each, runs + 1
    return Guesses(right, total, runs)


def estimator_guesses(
    estimator: Any,
    features: Array,
    labels: Array,
    wanted: int,
    rng: np.random.Generator,
    clock: Clock | None = None,
    classes: Classes | None = None,
) -> Guesses:
    """Canaries with a new feature each, before the rows of ``features``: one run, if its first round has the room."""
    clock = clock or Clock()
    each = min(wanted, max(1, len(labels) // 2))
    right = total = runs = 0
    while total < wanted and not (runs and clock.over):
        clock.say(f"canaries: {total:,} of {wanted:,}")
        wide = np.zeros((each + len(labels), features.shape[1] + each))
        wide[each:, : features.shape[1]] = features
        coins = np.concatenate([np.full(each, np.nanmax(labels)), labels])
        subject = estimator_subject(estimator, wide, coins, classes)
        each_run = min(each, subject.plan.batch_size)
        rows = np.zeros((each_run, wide.shape[1]))
        norm = float(estimator.feature_norm or 1.0)
        rows[np.arange(each_run), features.shape[1] + np.arange(each_run)] = _LONG * norm
        right += guess(subject, wide, coins, rows, rng)
        total, runs = total + each_run, runs + 1
    return Guesses(right, total, runs)


def guess(
    subject: Subject, features: Array, labels: Array, canaries: Array, rng: np.random.Generator, *, whole: bool = False
) -> int:
    """One run with ``canaries`` at its first places, each in or out by a coin; how many coins are told right.

    A canary is read off its own feature's coordinates, or off all of them if ``whole`` (one canary then).
    """
    plan, count = subject.plan, len(canaries)
    coins = rng.integers(0, 2, count).astype(bool)
    x, y = np.array(features, dtype=np.float64), np.array(labels, dtype=np.float64)
    label = np.nanmax(y)
    x[:count], y[:count] = canaries, label
    x[:count][~coins], y[:count][~coins] = _out(plan, canaries, label, ~coins)
    ids = _ids(plan, count, len(y))
    seen = observe(lambda: subject.run(x, y, ids, False))
    if seen.error is not None or not schedules(plan, seen.released):
        raise DataError("The run did not come to its end on ordinary rows: mend it before canaries are put into it.")
    w = np.diff(plan.schedule.mechanism.decoder(), axis=0, prepend=0.0)
    precision = np.linalg.inv(plan.schedule.most_noise.sigma**2 * (w @ w.T))
    reading = precision @ seen.noise(0, plan.schedule.rounds)  # the first places are the survey's, if there is one
    in_round = _rounds(plan, ids[:count])
    right = 0
    for i in range(count):
        t = int(in_round[i])
        shift = _alone(subject, seen.queries[t], canaries[i : i + 1], np.array([label]))
        if plan.budget.adjacency == "replace":  # otherwise a canary that is out contributes nothing
            shift = shift - _alone(subject, seen.queries[t], -canaries[i : i + 1], np.array([label]))
        own = slice(None) if whole else _own(plan, seen.queries[t], int(np.argmax(canaries[i])))
        s = shift[own]
        ratio = float(s @ reading[t, own]) + (float(coins[i]) - 0.5) * float(s @ s) * precision[t, t]
        right += int((ratio > 0) == coins[i])
    return right


def _out(plan: Plan, rows: Array, label: float, which: Any) -> tuple[Array, Array]:
    """Return what replaces a canary that is out: its mirror image under replace, else a row without a label."""
    chosen = rows[which]
    if plan.budget.adjacency == "replace":
        return -chosen, np.full(len(chosen), label)
    return chosen, np.full(len(chosen), np.nan)


def _alone(subject: Subject, query: Query, row: Array, label: Array) -> Array:
    with np.errstate(all="ignore"):
        answer = subject.oracle.answer(query, Batch(query.step, [(subject.scaled(row), label)]))
    return np.array(answer.total, dtype=np.float64)


def _own(plan: Plan, query: Query, feature: int) -> Any:
    """Coordinates that belong to one feature: one for each class, and in a survey its square and its mean too."""
    p, moment = plan.problem.dimension + plan.problem.intercept, query.moment
    if moment is None:
        return slice(feature, None, p)
    if moment.kind == "full":
        first = feature * p - feature * (feature - 1) // 2  # where row `feature` of the packed triangle begins
        second, after = [first, *([first + p - 1 - feature] if plan.problem.intercept else [])], p * (p + 1) // 2
    elif moment.kind == "low-rank":
        rank = rank_of(p)
        second, after = list(range(feature * rank, (feature + 1) * rank)), p * rank + 1
    else:
        second, after = [feature, p + feature], 2 * p - 1
    return np.array([*second, *range(after + feature, after + plan.problem.parameters, p)])


def _ids(plan: Plan, canaries: int, rows: int) -> Ids:
    """Ids of the rows; those of canaries are hashed into the survey, if there is one."""
    if not isinstance(plan.method, Surveyed) or plan.budget.adjacency != "add-remove":
        return np.arange(rows)
    tried = np.arange(rows, rows + 4 * (canaries + 8) * math.ceil(plan.n / plan.method.rows))
    surveyed = rounds_of_ids(tried, bytes.fromhex(plan.digest()), plan.n) < plan.method.rows
    return np.concatenate([tried[surveyed][:canaries], np.arange(canaries, rows)])


def _rounds(plan: Plan, ids: Ids) -> Ids:
    if isinstance(plan.method, Surveyed):
        return np.zeros(len(ids), dtype=np.int64)
    if plan.budget.adjacency != "add-remove":
        return ids // plan.batch_size
    return rounds_of_ids(ids, bytes.fromhex(plan.digest()), plan.rounds)


def _one_each(subject: Subject) -> bool:
    """Whether a row along one feature moves that feature's coordinates and (almost) no other."""
    plan = subject.plan
    noise, x = plan.schedule.most_noise, plan.problem.domain.project(np.zeros(plan.problem.parameters))
    moment = plan.method.moment(plan.problem) if isinstance(plan.method, Surveyed) else None
    query = Query(0, (x,), (1.0,), plan.clip, plan.batch_size, noise.grid, noise.rowwise, moment=moment)
    rows = _LONG * plan.problem.feature_norm * np.eye(plan.problem.dimension)
    ask: Callable[[int], Array] = lambda k: _alone(subject, query, rows[k : k + 1], np.ones(1))  # noqa: E731
    try:
        answers = [ask(k) for k in range(min(8, plan.problem.dimension))]
    except Exception:
        return False
    least = 0.99 if moment is None else 0.7  # the intercept and the health of rows are everybody's
    kept = [np.linalg.norm(a[_own(plan, query, k)]) >= least * np.linalg.norm(a) > 0 for k, a in enumerate(answers)]
    return all(kept)
