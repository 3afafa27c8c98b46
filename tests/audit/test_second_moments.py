"""Audits of surveys and of sufficient statistics: pairs that reach the declared difference, and power as measured."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

import dpsco
from dpsco.audit import audit
from dpsco.audit.attack_rows import OddRow, far_from, ordinary_rows
from dpsco.audit.canaries import Guesses, canary_check, judged_guesses, plan_guesses
from dpsco.audit.canary_bounds import power_at_half_noise, wanted_canaries
from dpsco.audit.clock import Clock
from dpsco.audit.contract import contract_checks
from dpsco.audit.replay import replay_check
from dpsco.audit.subject import first_query, plan_subject
from dpsco.clipping.mapped import MappedOracle
from dpsco.query import Batch
from dpsco.release.releaser import Releaser

ADJACENCIES = ["zero-out", "replace", "add-remove"]


def statistics(adjacency: str, p: int = 8, n: int = 60) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Squared(1.0), dpsco.L2Ball(5.0), p)
    return dpsco.Plan(problem, n, dpsco.Budget(8.0, 1e-5, adjacency), dpsco.SufficientStatistics())


def surveyed(adjacency: str, loss: object, kind: str = "full") -> dpsco.Plan:
    problem = dpsco.Problem(loss, dpsco.L2Ball(5.0), 8)
    method = dpsco.Surveyed(rounds=2, rows=60, kind=kind)
    return dpsco.Plan(problem, 120, dpsco.Budget(8.0, 1e-5, adjacency), method)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_sufficient_statistics_are_audited_by_what_they_ask(adjacency: str) -> None:
    report = audit(statistics(adjacency, p=4), seed=0, seconds=3.0)
    assert report.passed, str(report)
    outcomes = {check.name: check.outcome for check in report.checks}
    assert {name: outcomes[name] for name in ("clip", "one row at a time", "every row is taken", "neighbours")} == {
        "clip": "passed",
        "one row at a time": "passed",
        "every row is taken": "passed",
        "neighbours": "passed",
    }


def test_a_contract_that_nothing_answered_is_not_tested() -> None:
    plan = statistics("zero-out")

    def refuse(query: object, batch: object) -> None:
        raise ValueError

    subject = SimpleNamespace(plan=plan, oracle=SimpleNamespace(answer=refuse), scaled=lambda rows: rows)
    clip, *others = contract_checks(subject, np.random.default_rng(0))  # type: ignore[arg-type]
    assert clip.outcome == "not tested"
    assert [check.outcome for check in others] == ["FAILED", "FAILED"]


@pytest.mark.parametrize(
    "plan",
    [
        statistics("replace"),
        surveyed("replace", dpsco.Squared(1.0)),
        surveyed("replace", dpsco.Logistic()),
        surveyed("replace", dpsco.Softmax(3)),
        surveyed("replace", dpsco.Logistic(), "diagonal"),
        statistics("zero-out"),
        surveyed("zero-out", dpsco.Logistic()),
    ],
    ids=lambda plan: f"{plan.method.name} {plan.problem.loss.kind} {plan.budget.adjacency}",
)
def test_canaries_move_second_moments_almost_as_far_as_declared(plan: dpsco.Plan) -> None:
    rows = ordinary_rows(plan.problem, 8, np.random.default_rng(0))
    found = plan_guesses(plan_subject(plan), *rows, 8, np.random.default_rng(0))
    assert ndtr(0.8 * plan.budget.mu) < found.at_half_noise <= ndtr(plan.budget.mu)


def test_too_little_noise_is_caught_by_canaries_under_replace(monkeypatch) -> None:
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: draw(self, *rows) / 4)
    plan = statistics("replace", p=24, n=100)
    rows = ordinary_rows(plan.problem, 24, np.random.default_rng(0))
    check = canary_check(plan_subject(plan), *rows, 1e-6, np.random.default_rng(0), Clock(60.0, None))
    assert check.outcome == "FAILED", check


def test_the_power_is_that_of_the_measured_shifts() -> None:
    plan = statistics("replace")
    mu = plan.budget.mu
    whole, weak = float(ndtr(mu)), float(ndtr(0.6 * mu))
    enough = wanted_canaries(mu, 1e-6)
    assert power_at_half_noise(mu, enough, 1e-6, whole) == power_at_half_noise(mu, enough, 1e-6) > 0.98
    assert power_at_half_noise(mu, enough, 1e-6, weak) < 0.01
    assert judged_guesses(plan, Guesses(enough // 2, enough, 1, weak), 1e-6).outcome == "not tested"
    assert wanted_canaries(mu, 1e-6, float(ndtr(mu / 4))) == 1 << 30
    both = Guesses(3, 4, 1, 0.75) + Guesses(5, 12, 2, 0.25)
    assert both == Guesses(8, 16, 3, 0.375)


@pytest.mark.parametrize(
    "plan",
    [statistics("replace"), surveyed("replace", dpsco.Logistic()), surveyed("replace", dpsco.Squared(1.0))],
    ids=lambda plan: f"{plan.method.name} {plan.problem.loss.kind}",
)
def test_neighbours_under_replace_come_close_to_the_declared_difference(plan: dpsco.Plan) -> None:
    rng = np.random.default_rng(0)
    check = replay_check(plan_subject(plan), *ordinary_rows(plan.problem, plan.n, rng), rng, Clock(8.0, None))
    assert check.passed, check
    assert 0.95 < float(re.search(r"([\d.]+) of the declared", check.measured)[1]) <= 1.0


def test_rows_that_end_with_the_survey_are_no_test_of_the_rounds_behind_it() -> None:
    plan, rng = surveyed("zero-out", dpsco.Logistic()), np.random.default_rng(0)
    rows = ordinary_rows(plan.problem, plan.method.rows, rng)
    check = replay_check(plan_subject(plan), *rows, rng, Clock(8.0, None))
    assert check.outcome == "not tested"
    assert "behind the survey" in check.measured


def test_a_long_survey_does_not_hide_a_bug_behind_it(monkeypatch) -> None:
    """The audit's own rows go beyond the survey, however many rows that has."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4)
    plan = dpsco.Plan(problem, 20_000, dpsco.Budget(1.0, 1e-6), dpsco.Surveyed(rounds=3, rows=6_000))
    real = MappedOracle.answer

    def too_long(oracle, query, batch):
        answer = real(oracle, query, batch)
        answer.total *= 1024.0
        return answer

    monkeypatch.setattr(MappedOracle, "answer", too_long)
    found = {check.name: check.outcome for check in audit(plan, seed=1, seconds=8).checks}
    assert found["neighbours"] == "FAILED"


@pytest.mark.parametrize("intercept", [False, True])
def test_the_far_row_is_the_furthest(intercept: bool) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4, intercept=intercept)
    plan = dpsco.Plan(problem, 120, dpsco.Budget(8.0, 1e-5, "replace"), dpsco.Surveyed(rounds=2, rows=60))
    query, oracle, rng = first_query(plan), plan_subject(plan).oracle, np.random.default_rng(0)

    def vector(features: np.ndarray, label: float) -> np.ndarray:
        return oracle.answer(query, Batch(0, [(features[None], np.array([label]))])).total.copy()

    row = OddRow("ordinary", 10.0 * rng.normal(size=4), 1.0)
    far = far_from(row, problem, query.moment)
    here = vector(row.features, row.label)
    distance = np.linalg.norm(vector(far.features, far.label) - here)
    slack = query.grid * np.sqrt(len(here))
    for _ in range(200):
        assert np.linalg.norm(vector(10.0 * rng.normal(size=4), float(rng.integers(2))) - here) <= distance + slack
