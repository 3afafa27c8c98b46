"""Attempts to get something broken past the audit."""

from __future__ import annotations

import numpy as np
from tests.audit.oracles_under_test import clip, gradient

import dpsco
from dpsco.audit import audit
from dpsco.audit.attack_rows import ordinary_rows
from dpsco.audit.replay import replay_check
from dpsco.audit.subject import plan_subject
from dpsco.query import Array, Batch, Clipped, Query, to_grid

PROBLEM = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(5.0), dimension=3)
PLAN = dpsco.Plan(PROBLEM, 40, dpsco.Budget(2.0, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))


class LetsNaNThrough:
    """Clips every finite row and forgets the others: NaN > C is false."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        total, count = np.zeros(query.points[0].size), 0
        with np.errstate(all="ignore"):
            for features, labels in batch.chunks:
                for a, y in zip(features, labels, strict=True):
                    terms = [w * gradient(x, a, y) for w, x in zip(query.weights, query.points, strict=True)]
                    difference: Array = np.sum(terms, axis=0)
                    total += clip(difference, query.clip) if not np.all(np.isfinite(a)) or np.isfinite(y) else 0.0
                    count += 1
            return Clipped(to_grid(total, query.grid), count)


def test_a_sum_that_is_not_finite_is_no_small_distance() -> None:
    """``release`` refuses NaN, so the row decides whether the run ends; and NaN is not larger than any bound."""
    rng = np.random.default_rng(0)
    features, labels = ordinary_rows(PROBLEM, 40, rng)
    check = replay_check(plan_subject(PLAN, LetsNaNThrough()), features, labels, rng)
    assert not check.passed
    assert "inf of the declared" in check.measured


class Refuses:
    """Cannot take its last round."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        if query.step == PLAN.rounds - 1:
            raise ZeroDivisionError
        return dpsco.PerExample(gradient).answer(query, batch)


def test_an_oracle_that_ends_every_run_is_told_by_which_error() -> None:
    report = audit(Refuses(), plan=PLAN, seed=0)
    for name in ("noise", "canaries"):
        check = next(check for check in report.checks if check.name == name)
        assert not check.passed
        assert "ended in ZeroDivisionError" in check.findings[0]
