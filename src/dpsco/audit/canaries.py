"""Canaries: rows put in or left out by a coin, and how often the coins can be told from what was released.

Canary i is a long row along a feature of its own, in round t; in or out moves that round's sum by s_i, which nobody
else's noise touches. The adversary knows every other row and sees every released value, so for each canary

    ratio_i = s_i' (Sigma^-1 e_t)' (released - sum without canary i) - |s_i|^2 (Sigma^-1)_tt / 2,    guess "in" if > 0.

Under replace a canary that is out is another row: its mirror image, two clips away, where rounds ask for gradients. A
second moment does not change with the sign of a row: there it is a row along a second feature, with another label.

Right guesses are counted and turned into a lower bound on epsilon (bounds.py). Noise is independent from coordinate to
coordinate, so guesses are, and the bound of independent guesses holds; the one without that assumption is stated too.
At half the noise a coin is told right with probability Phi(|s_i| (Sigma^-1)_tt^(1/2)): the power of the check follows
from the shifts that were measured, not from the claim.
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
from dpsco.audit.subject import Ids, Subject, estimator_subject, first_query, schedules
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
    at_half_noise: float
    """Share of coins that half the noise would let one tell right, by the measured shifts."""

    def __add__(self, other: Guesses) -> Guesses:
        """Return the guesses of both."""
        canaries = self.canaries + other.canaries
        weak = (self.at_half_noise * self.canaries + other.at_half_noise * other.canaries) / canaries
        return Guesses(self.right + other.right, canaries, self.runs + other.runs, weak)


def judged_guesses(plan: Plan, found: Guesses, alpha: float) -> Check:
    """Return the lower bound on epsilon at confidence 1 - alpha, against the claim for one row."""
    delta, claimed = plan.budget.delta, plan.budget.mu_per_record
    lower = independent_bound(found.right, found.canaries, alpha)
    universal = universal_bound(found.right, found.canaries, alpha)
    at = {mu: gaussian.epsilon_of(mu, delta) if mu > 0 else 0.0 for mu in (lower, universal, claimed)}
    power = power_at_half_noise(claimed, found.canaries, alpha, found.at_half_noise)
    passed = lower <= claimed
    blind = passed and power < _LEAST_POWER
    broken = (
        f"epsilon is at least {at[lower]:.4g} at delta = {delta:g}, above the claimed {at[claimed]:.4g}: canaries are "
        "told apart more often than the guarantee allows. Too little noise, or a contribution longer than the clip."
    )
    runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
    return Check(
        "canaries",
        "can rows put in or left out at random be told from the released values more often than declared?",
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
    plan, clock = subject.plan, clock or Clock()
    wanted = min(MOST, wanted_canaries(plan.budget.mu_per_record, alpha))
    found = plan_guesses(subject, features, labels, wanted, rng, clock)
    more = min(MOST, wanted_canaries(plan.budget.mu_per_record, alpha, found.at_half_noise)) - found.canaries
    if more > 0 and not clock.over:
        found = found + plan_guesses(subject, features, labels, more, rng, clock)
    return judged_guesses(plan, found, alpha)


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
    room = plan.problem.dimension // 2 if _by_features(plan) else plan.problem.dimension
    each = max(1, min(room, plan.batch_size, len(labels), wanted)) if together else 1
    right = total = runs = 0
    weak = 0.0
    while total < wanted and not (runs and clock.over):
        clock.say(f"canaries: {total:,} of {wanted:,}")
        rows = _LONG * plan.problem.feature_norm * np.eye(plan.problem.dimension)[:each]
        told, expected = guess(subject, features, labels, rows, rng, whole=not together)
        right, weak, total, runs = right + told, weak + expected, total + each, runs + 1
    return Guesses(right, total, runs, weak / total)


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
    each, twice = min(wanted, max(1, len(labels) // 2)), getattr(estimator, "adjacency", "") == "replace"
    right = total = runs = 0
    weak = 0.0
    while total < wanted and not (runs and clock.over):
        clock.say(f"canaries: {total:,} of {wanted:,}")
        wide = np.zeros((each + len(labels), features.shape[1] + (2 if twice else 1) * each))
        wide[each:, : features.shape[1]] = features
        coins = np.concatenate([np.full(each, np.nanmax(labels)), labels])
        subject = estimator_subject(estimator, wide, coins, classes)
        each_run = min(each, subject.plan.batch_size)
        rows = np.zeros((each_run, wide.shape[1]))
        norm = float(estimator.feature_norm or 1.0)
        rows[np.arange(each_run), features.shape[1] + np.arange(each_run)] = _LONG * norm
        told, expected = guess(subject, wide, coins, rows, rng)
        right, weak, total, runs = right + told, weak + expected, total + each_run, runs + 1
    return Guesses(right, total, runs, weak / total)


def guess(
    subject: Subject, features: Array, labels: Array, canaries: Array, rng: np.random.Generator, *, whole: bool = False
) -> tuple[int, float]:
    """One run with ``canaries`` at its first places, each in or out by a coin.

    A canary is read off its own features' coordinates, or off all of them if ``whole`` (one canary then).

    Returns
    -------
    How many coins are told right, and how many one would expect at half the noise.
    """
    from scipy.special import ndtr

    plan, count = subject.plan, len(canaries)
    coins = rng.integers(0, 2, count).astype(bool)
    x, y = np.array(features, dtype=np.float64), np.array(labels, dtype=np.float64)
    label, others, other = float(np.nanmax(y)), *_out(plan, canaries, y)
    x[:count], y[:count] = np.where(coins[:, None], canaries, others), np.where(coins, label, other)
    ids = _ids(plan, count, len(y))
    seen = observe(lambda: subject.run(x, y, ids, False))
    if seen.error is not None or not schedules(plan, seen.released):
        raise DataError(f"{seen.ending} Mend it before canaries are put into it.")
    w = np.diff(plan.schedule.mechanism.decoder(), axis=0, prepend=0.0)
    precision = np.linalg.inv(plan.schedule.most_noise.sigma**2 * (w @ w.T))
    reading = precision @ seen.noise(0, plan.schedule.rounds)  # the first places are the survey's, if there is one
    in_round = _rounds(plan, ids[:count])
    right, expected = 0, 0.0
    for i in range(count):
        t = int(in_round[i])
        shift = _alone(subject, seen.queries[t], canaries[i : i + 1], np.array([label]))
        if plan.budget.adjacency == "replace":  # otherwise a canary that is out contributes nothing
            shift = shift - _alone(subject, seen.queries[t], others[i : i + 1], np.array([other]))
        own = np.arange(shift.size) if whole else _own_of(plan, seen.queries[t], canaries[i], others[i])
        s = shift[own]
        ratio = float(s @ reading[t, own]) + (float(coins[i]) - 0.5) * float(s @ s) * precision[t, t]
        right += int((ratio > 0) == coins[i])
        expected += float(ndtr(math.sqrt(float(s @ s) * precision[t, t])))
    return right, expected


def _by_features(plan: Plan) -> bool:
    """Whether a canary that is out is a row along another feature: its mirror image has the same second moment."""
    return plan.budget.adjacency == "replace" and plan.schedule.survey_length > 0


def _out(plan: Plan, rows: Array, labels: Array) -> tuple[Array, float]:
    """Return what replaces canaries that are out, and its label: another row, or the same without a label."""
    if plan.budget.adjacency != "replace":
        return rows, math.nan
    if _by_features(plan) and rows.shape[1] >= 2 * len(rows):
        return np.roll(rows, len(rows), axis=1), float(np.nanmin(labels))
    return -rows, float(np.nanmax(labels))


def _alone(subject: Subject, query: Query, row: Array, label: Array) -> Array:
    with np.errstate(all="ignore"):
        answer = subject.oracle.answer(query, Batch(query.step, [(subject.scaled(row), label)]))
    return np.array(answer.total, dtype=np.float64)


def _own_of(plan: Plan, query: Query, *rows: Array) -> Any:
    """Coordinates that belong to the features of rows along one feature each."""
    features = {int(np.argmax(np.abs(row))) for row in rows}
    return np.concatenate([_own(plan, query, feature) for feature in sorted(features)])


def _own(plan: Plan, query: Query, feature: int) -> Any:
    """Coordinates that belong to one feature: one for each class, and in a survey its square and its mean too."""
    p, moment = plan.problem.dimension + plan.problem.intercept, query.moment
    if moment is None:
        return np.arange(feature, plan.problem.parameters, p)
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
    query = first_query(plan)
    rows = _LONG * plan.problem.feature_norm * np.eye(plan.problem.dimension)
    ask: Callable[[int], Array] = lambda k: _alone(subject, query, rows[k : k + 1], np.ones(1))  # noqa: E731
    try:
        answers = [ask(k) for k in range(min(8, plan.problem.dimension))]
    except Exception:
        return False
    least = 0.99 if query.moment is None else 0.7  # the intercept and the health of rows are everybody's
    kept = [np.linalg.norm(a[_own(plan, query, k)]) >= least * np.linalg.norm(a) > 0 for k, a in enumerate(answers)]
    return all(kept)
