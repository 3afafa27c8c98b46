"""Estimators on rows at rest: solver="auto" and what stays one pass."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco import PrivateLinearRegression, PrivateLogisticRegression
from dpsco.audit import audit

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2_000, 5)) / 3
Y = (RNG.random(2_000) < 1 / (1 + np.exp(-4 * X[:, 0] - 0.5))).astype(int)


def test_auto_takes_the_solver_of_least_predicted_excess_and_says_so() -> None:
    model = PrivateLogisticRegression(epsilon=2.0, delta=1e-5, classes=[0, 1], solver="auto", random_state=0)
    with pytest.warns(dpsco.PrivacyLeakWarning):
        model.fit(X[:500], Y[:500])
    assert model.plan_.method.name == "objective-perturbation"
    assert "least predicted excess" in model.plan_.rule
    assert model.privacy_.needs == "convexity"
    assert any("exact minimiser" in line for line in model.privacy_.assumptions)
    assert model.score(X, Y) > 0.65
    assert model.intercept_[0] > 0


def test_a_sparse_table_gives_the_same_model() -> None:
    from scipy.sparse import csr_matrix

    models = [
        PrivateLogisticRegression(delta=1e-5, classes=[0, 1], solver="objective-perturbation", random_state=0)
        for _ in range(2)
    ]
    with pytest.warns(dpsco.PrivacyLeakWarning):
        dense, sparse = models[0].fit(X, Y), models[1].fit(csr_matrix(X), Y)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-4)


def test_partial_fit_stays_one_pass() -> None:
    model = PrivateLogisticRegression(delta=1e-5, classes=[0, 1], solver="auto", n=2_000)
    model.partial_fit(X, Y)
    assert model.plan_.method.single_epoch


def test_intervals_come_from_one_pass_and_other_solvers_say_so() -> None:
    one = PrivateLogisticRegression(epsilon=4.0, delta=1e-5, classes=[0, 1], solver="auto", survey="intervals")
    assert np.all(one.fit(X, Y).standard_errors() > 0)
    other = PrivateLogisticRegression(delta=1e-5, classes=[0, 1], solver="objective-perturbation").fit(X, Y)
    assert other.geometry_ is None
    with pytest.raises(dpsco.IntervalError, match="survey"):
        other.standard_errors()


def test_an_account_is_charged_or_one_pass_is_taken(tmp_path) -> None:
    account = dpsco.Account.create(tmp_path / "account.json", dpsco.Budget(3.0, 1e-5))
    model = PrivateLogisticRegression(delta=1e-6, classes=[0, 1], solver="auto", account=account).fit(X, Y)
    assert model.plan_.method.single_epoch
    assert len(account.runs) == 1


def test_least_squares_from_statistics() -> None:
    y = X @ [1.0, -1.0, 0.5, 0.0, 0.0] + 0.2
    model = PrivateLinearRegression(
        epsilon=4.0, delta=1e-5, label_bound=2.0, loss="squared", solver="sufficient-statistics"
    ).fit(X, y)
    assert model.privacy_.gaussian
    assert model.score(X, y) > 0.5


def test_the_audit_refuses_what_it_cannot_judge() -> None:
    model = PrivateLogisticRegression(delta=1e-5, classes=[0, 1], solver="objective-perturbation")
    with pytest.raises(dpsco.InvalidArgument, match="one-pass"):
        audit(model, data=(X, Y))


def scaled_apart() -> tuple[np.ndarray, np.ndarray]:
    """Five columns that differ a hundredfold and count alike."""
    rng = np.random.default_rng(4)
    scale = np.geomspace(0.5, 0.005, 5)
    rows = rng.standard_normal((6_000, 5)) * scale
    return rows, (rng.random(6_000) < 1 / (1 + np.exp(-rows / scale @ np.full(5, 0.8)))).astype(int)


def test_auto_takes_an_objective_behind_a_survey_where_columns_may_differ() -> None:
    rows, labels = scaled_apart()
    given = {"epsilon": 2.0, "delta": 1e-5, "classes": [0, 1], "feature_norm": 1.5}
    auto = PrivateLogisticRegression(**given, solver="auto").fit(rows, labels)
    assert auto.plan_.method.name == "surveyed-objective-perturbation"
    assert "how the columns are scaled" in auto.plan_.rule
    assert auto.privacy_.private
    assert auto.privacy_.needs == "convexity"
    assert auto.privacy_.releases == "phase outputs"
    assert auto.geometry_ is not None
    plain = PrivateLogisticRegression(**given, solver="objective-perturbation").fit(rows, labels)
    assert auto.score(rows, labels) > plain.score(rows, labels) + 0.03
    with pytest.raises(dpsco.IntervalError, match="rounds behind it"):
        auto.standard_errors()
    named = PrivateLogisticRegression(**given, solver="surveyed-objective-perturbation")
    assert named.fit(rows, labels).plan_.method == auto.plan_.method
    assert named.privacy_.rounds == 2
    assert PrivateLogisticRegression(**given, solver="auto", penalty=1e-3).fit(rows, labels).plan_.method.single_epoch
    with pytest.raises(dpsco.InvalidArgument, match="penalty"):
        PrivateLogisticRegression(**given, solver="surveyed-objective-perturbation", penalty=1e-3).fit(rows, labels)
    with pytest.raises(dpsco.InvalidArgument, match="one-pass"):
        audit(named, data=(rows, labels))


def test_a_sparse_table_gives_the_same_model_behind_a_survey() -> None:
    from scipy.sparse import csr_matrix

    rows, labels = scaled_apart()
    given = {"delta": 1e-5, "classes": [0, 1], "solver": "surveyed-objective-perturbation", "random_state": 0}
    with pytest.warns(dpsco.PrivacyLeakWarning):
        dense, sparse = (PrivateLogisticRegression(**given).fit(x, labels) for x in (rows, csr_matrix(rows)))
    np.testing.assert_allclose(dense.coef_, sparse.coef_, rtol=1e-4, atol=1e-4)
