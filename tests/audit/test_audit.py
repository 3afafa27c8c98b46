"""An audit passes what keeps its contract, fails what does not, and says which row broke what."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from tests.audit import oracles_under_test as oracles
from tests.audit.plans import plan
from tests.method_plans import algorithm_1_plan

import dpsco
from dpsco.audit import audit
from dpsco.audit.attack_rows import ordinary_rows
from dpsco.audit.audit_report import AuditReport
from dpsco.audit.canaries import Guesses, judged_guesses
from dpsco.audit.clock import Clock
from dpsco.audit.contract import contract_checks
from dpsco.audit.coordinates import shared_noise
from dpsco.audit.input_forms import Classes, in_form
from dpsco.audit.replay import replay_check
from dpsco.audit.subject import classes_of, estimator_subject, plan_subject
from dpsco.audit.transcript import transcript_check
from dpsco.datasets import reference_problem
from dpsco.query import Clipped
from dpsco.release.releaser import Releaser

HERE = Path(__file__).parent


def failed(report) -> dict[str, str]:
    return {check.name: " ".join(check.findings) for check in report.checks if not check.passed}


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("subject", [oracles.Right(), oracles.gradient], ids=["oracle", "gradient"])
def test_an_oracle_that_keeps_its_contract_passes(subject, adjacency) -> None:
    report = audit(subject, plan=plan(adjacency), seed=1)
    assert report.passed, report
    assert report.synthetic
    measured = {check.name: check.measured for check in report.checks}
    share = float(re.search(r"([\d.]+) of the declared", measured["neighbours"])[1])
    assert 0.9 < share <= 1  # the bound is met, and nearly reached: the search is not idle


def test_rows_with_ids_are_audited_by_deleting_them() -> None:
    report = audit(dpsco.PerExample(oracles.gradient), plan=plan("add-remove"), seed=2)
    assert report.passed, report


BUGS = {
    "ClipsApart": ("clip", "clipped separately"),
    "ClipsBeforeWeighting": ("clip", "before weighting"),
    "ForgetsToClip": ("clip", "nothing is clipped"),
    "DividesByRows": ("one row at a time", "divides by the number of rows"),
    "LooksAtOtherRows": ("one row at a time", "depends on the other rows"),
    "LooksAtLargeBatches": ("one row at a time", "depends on the other rows"),
    "Remembers": ("one row at a time", "keeps state"),
    "RaisesOnOddLabels": ("every row is taken", "KeyError"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_oracle_fails_and_is_told_why(bug: str) -> None:
    check, says = BUGS[bug]
    subject = plan_subject(plan(), getattr(oracles, bug)())
    found = {c.name: " ".join(c.findings) for c in contract_checks(subject, np.random.default_rng(3)) if not c.passed}
    assert says in found[check]
    if check == "clip":
        assert re.search(r"row '.*?': its contribution is [\d.e+]+ times the clip", found["clip"])


def test_what_exceeds_at_release_is_named_with_its_row_round_and_amount() -> None:
    found = failed(audit(oracles.ForgetsToClip(), plan=plan(), seed=4))
    amount = float(re.search(r"sums of round \d are ([\d.e+]+) times the declared", found["neighbours"])[1])
    assert amount > 100
    assert "epsilon is at least" in found["canaries"]


def test_a_memory_between_rounds_shows_as_two_rounds_that_change() -> None:
    rng = np.random.default_rng(5)
    subject = plan_subject(plan(), oracles.Remembers())
    check = replay_check(subject, *ordinary_rows(subject.plan.problem, 96, rng), rng)
    assert "both change" in " ".join(check.findings)


def test_a_plan_and_its_own_oracle_pass() -> None:
    problem = dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(5.0), 6, intercept=True)
    report = audit(
        dpsco.Plan(
            problem, 400, dpsco.Budget(2.0, 1e-6), dpsco.AcceleratedSRGD(rounds=5, beta=1.0, clip=1.0, mechanism="tree")
        )
    )
    assert report.passed, report


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1])
def test_noise_of_another_size_fails_the_white_box_audit(factor: float, monkeypatch) -> None:
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: factor * draw(self, *rows))
    check = transcript_check(plan_subject(plan(), oracles.gradient), np.ones((1, 16)), np.ones(1), 1e-6)
    assert not check.passed
    assert ("less" if factor < 1 else "more") in " ".join(check.findings)


def test_noise_used_twice_fails_the_white_box_audit(monkeypatch) -> None:
    draw = Releaser._draw

    def twice(self: Releaser, first: int, count: int) -> np.ndarray:
        return np.concatenate([draw(self, row // 2, 1) for row in range(first, first + count)])

    monkeypatch.setattr(Releaser, "_draw", twice)
    check = transcript_check(plan_subject(plan(), oracles.gradient), np.ones((1, 16)), np.ones(1), 1e-6)
    assert "shared between rounds" in " ".join(check.findings)


def _twins(noise: np.ndarray) -> np.ndarray:
    half = noise.shape[1] // 2
    return np.concatenate([noise[:, :half], noise[:, :half], noise[:, 2 * half :]], axis=1)


def _one_pair(noise: np.ndarray) -> np.ndarray:
    noise[:, 11] = -noise[:, 3]
    return noise


@pytest.mark.parametrize("shares", [_twins, _one_pair])
def test_noise_that_coordinates_share_fails_the_audit(shares, monkeypatch) -> None:
    """Its size, its centre and its rounds are as declared, and D_3 - D_11 leaves without noise."""
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: shares(draw(self, *rows)))
    check = transcript_check(plan_subject(plan(), oracles.gradient), np.ones((1, 16)), np.ones(1), 1e-6)
    assert check.outcome == "FAILED"
    assert "shared between coordinates" in " ".join(check.findings)


@pytest.mark.parametrize("width", [8, 1024, 5000])
def test_a_stretch_of_noise_that_is_used_twice_is_found_in_vectors_of_any_length(width: int) -> None:
    rng = np.random.default_rng(4)
    runs = [rng.standard_normal((4, width)) for _ in range(3)]
    assert shared_noise(runs, 1e-6) is None
    half = width // 2
    found = shared_noise([np.concatenate([u[:, :half], u[:, :half]], axis=1) for u in runs], 1e-6)
    assert "shared between coordinates" in found


@pytest.mark.parametrize(("numbers", "width"), [(2, 6), (40, 30), (1, 2000)])
def test_independent_coordinates_are_found_to_share_noise_as_rarely_as_stated(numbers: int, width: int) -> None:
    """At alpha = 0.05, of 300 fixed draws: 15 are expected, and 33 are 4.8 standard deviations away."""
    rng = np.random.default_rng(5)
    found = [shared_noise([rng.standard_normal((numbers, width))], 0.05) for _ in range(300)]
    assert sum(text is not None for text in found) < 33


def test_an_estimator_passes_and_its_report_is_marked_not_private() -> None:
    data = reference_problem(600, 40, fresh=1)
    model = dpsco.PrivateLinearSVC(epsilon=4.0, delta=1e-6, classes=[0, 1], fit_intercept=False, rounds=3)
    report = audit(model, data=(data.features, data.labels), seed=8)
    assert report.passed, report
    assert not report.synthetic
    assert "NOT PRIVATE" in str(report)


def test_an_estimator_with_text_classes_is_audited_on_rows_that_count() -> None:
    """Once every row became a zero row, and the audit passed with distance 0."""
    data = reference_problem(300, 6, fresh=1)
    words = np.where(data.labels > 0, "yes", "no")
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=["no", "yes"], rounds=3)
    report = audit(model, data=(data.features, words), seed=8, seconds=5)
    assert {check.name: check.outcome for check in report.checks}["neighbours"] == "passed", report
    classes = classes_of(model, words)
    codes, rng = classes.encode(words), np.random.default_rng(8)
    subject = estimator_subject(model, data.features, codes, classes)
    neighbours = replay_check(subject, data.features, codes, rng)
    assert neighbours.outcome == "passed", neighbours
    assert float(re.search(r"([\d.]+) of the declared", neighbours.measured)[1]) > 0.5
    assert "6 kinds of container" in neighbours.confidence


def test_an_audit_that_observed_nothing_is_not_tested_and_not_passed() -> None:
    """No label is among the classes: every row is a zero row, and no pair of neighbours differs."""
    data = reference_problem(300, 6, fresh=1)
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=["no", "yes"], rounds=3)
    subject = estimator_subject(model, data.features, data.labels, Classes(["No", "Yes"]))
    rng = np.random.default_rng(0)
    check = replay_check(subject, data.features, data.labels, rng)
    assert check.outcome == "not tested"
    assert "zero row" in check.findings[0]
    report = AuditReport("x", "y", (check,), synthetic=True)
    assert not report.passed
    assert "NOT TESTED (neighbours)" in report.verdict
    assert json.loads(report.to_json())["checks"][0]["outcome"] == "not tested"


def test_an_oracle_that_answers_no_row_is_not_tested() -> None:
    class Deaf:
        def answer(self, query, batch):
            rows = sum(len(labels) for _, labels in batch.chunks)
            return Clipped(np.zeros(query.points[0].size), rows)

    report = audit(Deaf(), plan=plan(), seed=3, seconds=10)
    outcomes = {check.name: check.outcome for check in report.checks}
    assert outcomes["neighbours"] == outcomes["clip"] == outcomes["one row at a time"] == "not tested"
    assert not report.passed


def test_a_row_that_decides_about_a_container_is_found(monkeypatch) -> None:
    """A seeded bug of a kind that once was there: one odd label turns a list of labels into zero rows."""
    from dpsco.audit import subject as subjects

    def brittle(form, features, labels):
        if form == "lists" and not np.all(np.isfinite(labels)):
            labels = np.full(len(labels), np.nan)
        return in_form(form, features, labels)

    monkeypatch.setattr(subjects, "in_form", brittle)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 16)
    target = plan_subject(
        algorithm_1_plan(problem=problem, n=96, budget=dpsco.Budget(4.0, 1e-6), rounds=4, beta=1.0, clip=1.0)
    )
    rng = np.random.default_rng(5)
    check = replay_check(target, *ordinary_rows(problem, 96, rng), rng)
    assert check.outcome == "FAILED"
    assert "(lists)" in " ".join(check.findings)


def test_canaries_without_power_state_no_bound() -> None:
    weak = algorithm_1_plan(problem=plan().problem, n=96, budget=dpsco.Budget(0.05, 1e-6), rounds=4, beta=1.0, clip=1.0)
    check = judged_guesses(weak, Guesses(2_600, 5_000, 10, 0.52), 1e-6)
    assert check.outcome == "not tested"
    assert not check.required
    assert "epsilon >=" not in check.measured
    strong = judged_guesses(plan(), Guesses(620, 1_000, 10, 0.9), 1e-6)
    assert "epsilon >=" in strong.measured
    assert "with probability" in strong.confidence


def test_an_audit_that_saw_too_little_noise_to_tell_half_of_it_is_not_passed() -> None:
    """16 runs of one round of one number: no test at alpha = 1e-6 tells half of the noise from all of it."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 1)
    small = algorithm_1_plan(problem=problem, n=96, budget=dpsco.Budget(4.0, 1e-6), rounds=1, beta=1.0, clip=1.0)
    report = audit(small, seed=0, seconds=1e-6)
    noise = next(check for check in report.checks if check.name == "noise")
    assert (noise.outcome, noise.required) == ("not tested", True)
    assert "allow more seconds" in noise.findings[0]
    assert "from 16 runs; half the noise would be caught with probability 0.00" in noise.confidence
    assert not report.passed
    assert "NOT TESTED (noise" in report.verdict


def test_an_audit_without_time_still_sees_enough_to_tell_half_the_noise(monkeypatch, false_alarms) -> None:
    false_alarms(1e-6)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 3)
    small = algorithm_1_plan(problem=problem, n=96, budget=dpsco.Budget(4.0, 1e-6), rounds=2, beta=1.0, clip=1.0)
    rows = np.zeros((1, 3)), np.zeros(1)
    check = transcript_check(plan_subject(small), *rows, 1e-6, Clock(0.0))
    assert check.outcome == "passed", check
    assert float(check.confidence.rsplit(" ", 1)[1]) >= 0.99
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: draw(self, *rows) / 4.0)
    assert transcript_check(plan_subject(small), *rows, 1e-6, Clock(0.0)).outcome == "FAILED"


def test_the_noise_check_states_how_often_half_the_noise_is_caught(monkeypatch, false_alarms) -> None:
    """N = 200 runs of 40 numbers with half the noise: as many are caught as stated, within 5 standard errors."""
    false_alarms(6e-7)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 10)
    target = plan_subject(
        algorithm_1_plan(problem=problem, n=96, budget=dpsco.Budget(4.0, 1e-6), rounds=4, beta=1.0, clip=1.0)
    )
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: draw(self, *rows) / 2.0)
    monkeypatch.setattr("dpsco.audit.transcript._RUNS", 1)
    found = [transcript_check(target, np.zeros((1, 10)), np.zeros(1), 1e-6, Clock(0.0)) for _ in range(200)]
    stated = float(found[0].confidence.rsplit(" ", 1)[1])
    assert 0.3 < stated < 0.9
    assert abs(np.mean([check.outcome == "FAILED" for check in found]) - stated) < 5 * 0.5 / np.sqrt(200)


def test_an_audit_shows_progress_and_keeps_its_time() -> None:
    data = reference_problem(4_000, 12, fresh=1)
    model = dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1], rounds=4)
    said: list[str] = []
    began = time.monotonic()
    report = audit(model, data=(data.features, data.labels), seed=1, seconds=6, progress=said.append)
    assert time.monotonic() - began < 60
    assert {text.split(":")[0] for text in said} >= {"neighbours", "noise", "canaries"}
    assert report.passed, report


@pytest.mark.parametrize("adjacency", ["zero-out", "replace", "add-remove"])
def test_a_surveyed_plan_is_audited_in_both_stages(adjacency) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4, intercept=True)
    method = dpsco.Surveyed(rounds=4, rows=100)
    plan = dpsco.Plan(problem, 400, dpsco.Budget(4.0, 1e-5, adjacency), method)
    found = audit(plan, seed=0, seconds=4.0)
    assert found.passed, str(found)
    assert "(survey) and" in str(found)
