"""Estimators with ids, accounts or in pipelines: their cap is exercised, nothing is charged, errors name the remedy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpsco
from dpsco.audit import audit
from dpsco.audit.subject import estimator_subject
from dpsco.audit.units import units_check
from dpsco.datasets import reference_problem
from dpsco.rows.contribution_cap import ContributionCap


def test_an_estimator_with_units_is_audited() -> None:
    data = reference_problem(300, 6, fresh=1)
    model = dpsco.PrivateLogisticRegression(
        epsilon=4.0, delta=1e-6, classes=[0, 1], rounds=3, max_rows_per_unit=2, fit_intercept=False
    )
    report = audit(model, data=(data.features, data.labels), seed=8, seconds=10)
    outcomes = {check.name: check.outcome for check in report.checks}
    assert (outcomes["neighbours"], outcomes["units"]) == ("passed", "passed"), report
    few = audit(model.set_params(max_rows_per_unit=90), data=(data.features, data.labels), seed=8, seconds=10)
    assert {check.name: check.outcome for check in few.checks}["units"] == "not tested"


@pytest.mark.parametrize("survey", ["none", "full"])
def test_a_cap_that_lets_all_rows_of_a_unit_count_fails(survey: str, monkeypatch) -> None:
    data = reference_problem(400, 6, fresh=1)
    model = dpsco.PrivateLogisticRegression(
        epsilon=4.0, delta=1e-6, classes=[0, 1], rounds=3, survey=survey, max_rows_per_unit=3
    )
    subject = estimator_subject(model, data.features, data.labels)
    sound = units_check(subject, data.features, data.labels, np.random.default_rng(0))
    assert sound.outcome == "passed", sound
    monkeypatch.setattr(ContributionCap, "counted_texts", lambda self, texts, codes: np.ones(len(codes), dtype=bool))
    broken = units_check(subject, data.features, data.labels, np.random.default_rng(0))
    assert broken.outcome == "FAILED"
    assert "the cap is 3" in broken.findings[0]


def test_an_estimator_with_an_account_is_audited_and_charges_nothing(tmp_path) -> None:
    data = reference_problem(300, 6, fresh=1)
    account = dpsco.Account.create(tmp_path / "people.json", limit=dpsco.Budget(8.0, 1e-5))
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=[0, 1], rounds=3, account=account)
    report = audit(model, data=(data.features, data.labels), seed=8, seconds=5)
    assert {check.name: check.outcome for check in report.checks}["neighbours"] == "passed", report
    assert not account.runs


def test_a_pipeline_is_refused_by_name() -> None:
    pipeline = make_pipeline(StandardScaler(), dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=[0, 1]))
    with pytest.raises(dpsco.InvalidArgument, match=r"pipeline\[-1\]"):
        audit(pipeline, data=(np.ones((20, 2)), np.tile([0, 1], 10)))


def test_an_estimator_whose_noise_is_known_is_refused() -> None:
    """Its report says "not private", and the audit, which draws noise by itself, passed it."""
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=[0, 1], random_state=0)
    with pytest.raises(dpsco.InvalidArgument, match="random_state"):
        audit(model, data=(np.ones((20, 2)), np.tile([0, 1], 10)))


def test_labels_without_an_order_ask_for_the_classes() -> None:
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-6)
    labels = np.array(["yes", 3] * 10, dtype=object)
    with pytest.raises(dpsco.InvalidArgument, match="classes="):
        audit(model, data=(np.ones((20, 2)), labels))


def test_classes_that_a_label_decides_are_found() -> None:
    """With a third label the sums are longer: the audit ended in an error of NumPy's."""
    data = reference_problem(300, 4, fresh=1)
    model = dpsco.PrivateLogisticRegression(epsilon=4.0, delta=1e-5, rounds=3)
    report = audit(model, data=(data.features, data.labels.astype(int)), seed=8, seconds=5)
    assert {check.name: check.outcome for check in report.checks}["neighbours"] == "FAILED"
