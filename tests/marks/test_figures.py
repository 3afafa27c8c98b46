"""Marks whose figure is worth printing: measured here once more, at the sizes the marks state."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco
from dpsco import AcceleratedSRGD, Budget, Huber, L2Ball, Logistic, Plan, Problem, SmoothedHinge, Softmax, Squared
from dpsco.audit.attack_rows import ordinary_rows
from dpsco.audit.replay import replay_check
from dpsco.audit.subject import plan_subject
from dpsco.query import Clipped, Query
from dpsco.release.ledger import MemoryLedger
from dpsco.release.mechanisms import LARGEST_FIT, MECHANISMS, mechanism
from dpsco.release.noise import new_key
from dpsco.release.releaser import Releaser

pytestmark = pytest.mark.slow

FITTED = ("dense", "workload")
HORIZONS = (*range(1, 65), 100, 256, 1000, 4096)


def horizons(name: str) -> list[int]:
    """Every horizon of the mark; strategies that are fitted as dense matrices go to 512."""
    return [*(h for h in HORIZONS if h <= LARGEST_FIT), LARGEST_FIT] if name in FITTED else list(HORIZONS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_factorisations(name: str, mark_figure) -> None:
    worst = 0.0
    for horizon in horizons(name):
        m = mechanism(name, horizon=horizon)
        worst = max(worst, float(np.max(np.abs(m.decoder() @ m.strategy() - np.tri(horizon)))))
    assert worst <= 1e-12
    mark_figure(1, f"{name} {worst:.0e}")


def test_sensitivities(mark_figure) -> None:
    worst = 0.0
    for name in MECHANISMS:
        for horizon in [h for h in horizons(name) if h <= 64]:
            m = mechanism(name, horizon=horizon)
            brute = max(math.sqrt(math.fsum(float(v) ** 2 for v in column)) for column in m.strategy().T)
            worst = max(worst, abs(m.sensitivity / brute - 1))
    assert worst <= 1e-12
    mark_figure(2, f"largest relative error {worst:.0e}")


TABLE = {
    "tree": {16: 4.472, 64: 6.481, 256: 8.485},
    "honaker": {16: 3.723, 64: 5.154, 256: 6.574},
    "sqrt": {16: 1.944, 64: 2.389, 256: 2.831},
    "blt": {16: 1.944, 64: 2.391, 256: 2.832},
    "dense": {16: 1.731, 64: 2.187},
    "independent": {16: 4.0, 64: 8.0, 256: 16.0},
}


def test_table_and_streaming(mark_figure) -> None:
    worst = 0.0
    for name in MECHANISMS:
        for horizon in (1, 16, 64, 100, 256):
            m = mechanism(name, horizon=horizon)
            worst = max(worst, float(np.max(np.abs(m.streamed() - m.decoder()))))
        for horizon, error in TABLE.get(name, {}).items():
            assert mechanism(name, horizon=horizon).max_error <= error + 5e-4
    assert worst <= 1e-12
    entries = sum(map(len, TABLE.values()))
    mark_figure(3, f"{entries} of {entries} entries met or beaten; streaming off by {worst:.0e}")


LOSSES = [Logistic(), Squared(label_bound=1.0), Huber(0.5), SmoothedHinge(), Softmax(classes=3)]


def test_neighbours(mark_figure) -> None:
    """The audit's replay on every loss and adjacency: 18 odd rows at random places, twice."""
    largest = 0.0
    for loss in LOSSES:
        for adjacency in ("zero-out", "replace", "add-remove"):
            plan = Plan(
                Problem(loss, L2Ball(5.0), 4),
                1200,
                Budget(1.0, 1e-6, adjacency),
                AcceleratedSRGD(rounds=3, beta=1.0, clip=0.3),
            )
            for seed in range(2):
                rng = np.random.default_rng(seed)
                check = replay_check(plan_subject(plan), *ordinary_rows(plan.problem, 1200, rng), rng)
                assert check.passed, check
                largest = max(largest, float(check.measured.split("release ")[1].split(" ")[0]))
    assert largest > 0.99
    mark_figure(10, f"largest distance {largest:.4f} of the declared, 5 losses, 3 adjacencies")


@pytest.mark.parametrize("name", ["sqrt", "tree", "workload", "smooth"])
def test_log_likelihood(name: str, false_alarms, mark_figure) -> None:
    """N = 1e5 transcripts of T = 16 rounds on either data set of the worst pair; 6 standard errors."""
    from scipy.stats import norm

    false_alarms(4 * 2 * norm.sf(6))
    runs, rounds = 100_000, 16
    problem = Problem(Logistic(), L2Ball(1.0), 1)
    plan = Plan(problem, 1600, Budget(1.0, 1e-6), AcceleratedSRGD(rounds=rounds, beta=1.0, clip=1.0, mechanism=name))
    noise, w = plan.schedule.calibration, np.diff(plan.schedule.mechanism.decoder(), axis=0, prepend=0.0)
    precision = np.linalg.inv(noise.sigma**2 * (w @ w.T))
    moved = np.zeros(rounds)
    moved[int(np.argmax(np.diag(precision)))] = math.floor(noise.difference / noise.grid) * noise.grid
    mu = math.sqrt(moved @ precision @ moved)
    assert mu <= plan.budget.mu
    worst = 0.0
    for world, sums in ((-1, np.zeros(rounds)), (1, moved)):
        channel = Releaser(noise, plan.schedule.mechanism, runs, MemoryLedger(new_key()))
        outputs = [
            channel.release(
                Query(t, (np.zeros(runs),), (1.0,), noise.clip, 100, noise.grid), Clipped(np.full(runs, sums[t]), 1)
            ).value
            for t in range(rounds)
        ]
        ratio = np.stack(outputs).T @ precision @ moved - mu**2 / 2
        worst = max(worst, abs(ratio.mean() - world * mu**2 / 2) / (mu / math.sqrt(runs)))
        worst = max(worst, abs(ratio.var() / mu**2 - 1) / math.sqrt(2 / runs))
    assert worst < 6
    mark_figure(16, f"{name} mu {mu / plan.budget.mu:.4f} of the guarantee, {worst:.1f} standard errors")


def test_an_estimator_contract_counts(mark_figure) -> None:
    """Mark 18: every check of scikit-learn on every estimator, none expected to fail."""
    import warnings

    from sklearn.utils.estimator_checks import check_estimator

    total = 0
    for model in (
        dpsco.PrivateLogisticRegression(random_state=0),
        dpsco.PrivateLinearSVC(random_state=0),
        dpsco.PrivateLinearRegression(random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check_estimator(model, on_fail=None)
        assert [check["check_name"] for check in found if check["status"] in ("failed", "xfail")] == []
        total += sum(check["status"] == "passed" for check in found)
    mark_figure(18, f"{total} checks passed, 0 failed, 3 estimators")
