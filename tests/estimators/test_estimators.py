"""Estimators: public facts are arguments, one pass, one promise, nothing secret kept."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pandas
import pytest
from scipy.sparse import csc_matrix, csr_matrix
from scipy.sparse import random as random_rows
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import dpsco
from dpsco.datasets import reference_problem
from dpsco.estimators import PrivacyLeakWarning, PrivateLinearRegression, PrivateLinearSVC, PrivateLogisticRegression

N = 6_000
DATA = reference_problem(n=N, dimension=6, fresh=10)
X, Y = DATA.features, DATA.labels
PUBLIC = {"epsilon": 1.0, "delta": 1e-6, "classes": [0, 1]}
NO_NOISE = {"epsilon": math.inf, "delta": 1e-6}


def quiet(estimator, *args, **more):
    """Fit with the warnings about seeds and inferred facts off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return estimator.fit(*args, **more)


def test_three_lines_are_enough() -> None:
    clf = PrivateLogisticRegression(epsilon=1.0, delta=1e-6, feature_norm=1.0, radius=20.0, classes=[0, 1]).fit(X, Y)
    assert clf.predict(X).shape == (N,)
    assert (clf.privacy_.epsilon, clf.privacy_.private) == (1.0, True)
    assert isinstance(clf.plan_, dpsco.Plan)
    assert clf.plan_.n == N


def test_without_noise_it_comes_close_to_scikit_learn() -> None:
    ours = PrivateLogisticRegression(**NO_NOISE, classes=[0, 1], radius=20.0).fit(X, Y)
    theirs = LogisticRegression(C=np.inf).fit(X, Y)
    risk = [np.mean(np.logaddexp(0, np.where(Y == 1, -1, 1) * m.decision_function(X))) for m in (ours, theirs)]
    assert risk[0] - risk[1] < 0.002
    ours = PrivateLinearRegression(**NO_NOISE, label_bound=2.0, loss="squared").fit(X, X @ np.arange(6.0) / 5 + 0.3)
    assert ours.score(X, X @ np.arange(6.0) / 5 + 0.3) > 0.99
    assert LinearRegression().fit(X, Y).score(X, Y) - ours.fit(X, Y.astype(float)).score(X, Y) < 0.01


def test_softmax_and_text_labels() -> None:
    names = np.array(["ash", "beech", "cedar"])[np.argmax(X[:, :3], axis=1)]
    clf = PrivateLogisticRegression(epsilon=4.0, delta=1e-6, classes=["cedar", "ash", "beech"]).fit(X, names)
    assert clf.classes_.tolist() == ["ash", "beech", "cedar"]
    assert clf.coef_.shape == (3, 6)
    assert clf.intercept_.shape == (3,)
    assert clf.score(X, names) > 0.7
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(clf.classes_[np.argmax(clf.predict_proba(X), axis=1)], clf.predict(X))
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X))


def test_support_vectors_of_two_classes_have_one_score() -> None:
    svc = PrivateLinearSVC(**{**PUBLIC, "epsilon": 4.0}).fit(X, Y)
    assert svc.score(X, Y) > 0.6
    assert svc.coef_.shape == (1, X.shape[1])


@pytest.mark.parametrize("survey", ["none", "full"])
def test_support_vectors_of_three_classes_share_one_run_and_budget(survey) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 9_000)
    rows = np.eye(3, 4)[labels] + 0.35 * rng.standard_normal((9_000, 4))
    named = np.array(["low", "middle", "high"])[labels]
    public = {"epsilon": 2.0, "delta": 1e-6, "feature_norm": 2.0, "classes": ["low", "middle", "high"]}
    svc = PrivateLinearSVC(**public, survey=survey).fit(rows, named)
    assert svc.coef_.shape == (3, 4)
    assert svc.decision_function(rows).shape == (9_000, 3)
    assert svc.score(rows, named) > 0.9  # 0.97 without privacy
    assert svc.privacy_.epsilon <= 2.0
    with pytest.raises(dpsco.IntervalError, match="survey" if survey == "none" else "multiclass hinge"):
        svc.summary()


# --- facts ------------------------------------------------------------------------------------------


def test_a_fact_read_off_the_rows_is_warned_of_and_reported() -> None:
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        clf = PrivateLogisticRegression(delta=1e-6).fit(X, Y)
    assert any("NOT COVERED" in line and "labels" in line for line in clf.privacy_.assumptions)
    with pytest.warns(PrivacyLeakWarning, match="label_bound"):
        reg = PrivateLinearRegression(delta=1e-6).fit(X, Y.astype(float))
    assert any("NOT COVERED" in line for line in reg.privacy_.assumptions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stated = PrivateLogisticRegression(**PUBLIC).fit(X, Y)
        PrivateLinearRegression(delta=1e-6, label_bound=1.0).fit(X, Y)
    assert not any("NOT COVERED" in line for line in stated.privacy_.assumptions)
    assert any("GridSearchCV" in line for line in stated.privacy_.assumptions)


def test_delta_comes_from_the_public_n_alone() -> None:
    assert PrivateLogisticRegression(classes=[0, 1]).fit(X, Y).privacy_.delta == 1e-5
    clf = PrivateLogisticRegression(classes=[0, 1], n=10**6).fit(X, Y)
    assert clf.privacy_.delta == pytest.approx(1e6**-1.1)


def test_rows_are_scaled_into_the_norm_in_training_and_prediction() -> None:
    """Longer rows count as their multiple of that norm; scaling all rows and the norm together changes nothing."""
    kwargs = {**NO_NOISE, "classes": [0, 1], "shuffle": False}
    long = X * np.where(np.arange(N) % 2, 50.0, 3.0)[:, None]
    capped = long * np.minimum(1.0, 2.0 / np.linalg.norm(long, axis=1))[:, None]
    a = PrivateLogisticRegression(feature_norm=2.0, **kwargs).fit(long, Y)
    b = PrivateLogisticRegression(feature_norm=2.0, **kwargs).fit(capped, Y)
    c = PrivateLogisticRegression(feature_norm=200.0, **kwargs).fit(100 * capped, Y)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9)
    np.testing.assert_allclose(a.coef_, 100 * c.coef_, rtol=1e-9)
    np.testing.assert_allclose(a.decision_function(long), b.decision_function(capped), rtol=1e-9)
    np.testing.assert_allclose(a.decision_function(capped), capped @ a.coef_[0] + a.intercept_[0], rtol=1e-9)


def test_targets_are_clamped() -> None:
    y = X @ np.arange(6.0)
    kwargs = {**NO_NOISE, "shuffle": False, "label_bound": 1.0}
    a = PrivateLinearRegression(**kwargs).fit(X, y)
    b = PrivateLinearRegression(**kwargs).fit(X, np.clip(y, -1, 1))
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert PrivateLinearRegression(**{**kwargs, "label_bound": 50.0}).fit(X, y).score(X, y) > 0.9


def test_the_model_stays_within_its_radius() -> None:
    clf = PrivateLogisticRegression(epsilon=0.1, delta=1e-6, classes=[0, 1], radius=3.0, feature_norm=5.0).fit(X, Y)
    assert np.hypot(np.linalg.norm(5.0 * clf.coef_), np.linalg.norm(clf.intercept_)) <= 3.0 + 1e-9


def test_unknown_labels_and_bad_rows_are_refused_or_count_as_zero() -> None:
    labels, rows = Y.copy(), X.copy()
    labels[7], rows[5, 0] = 12345, np.nan
    with pytest.raises(dpsco.DataError, match="declared classes") as caught:
        PrivateLogisticRegression(**PUBLIC).fit(X, labels)
    assert "12345" not in str(caught.value)
    with pytest.raises(ValueError, match="NaN"):
        PrivateLogisticRegression(**PUBLIC).fit(rows, Y)
    kwargs = {**NO_NOISE, "classes": [0, 1], "shuffle": False, "invalid_rows": "zero"}
    a = PrivateLogisticRegression(**kwargs).fit(rows, labels)
    labels[5], rows[7] = 9, np.inf  # whatever else they hold
    b = PrivateLogisticRegression(**kwargs).fit(rows, labels)
    np.testing.assert_array_equal(a.coef_, b.coef_)


def test_weights_are_refused_with_a_reason() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="one row count for many"):
        PrivateLogisticRegression(**PUBLIC).fit(X, Y, sample_weight=np.ones(N))
    PrivateLogisticRegression(**PUBLIC).fit(X, Y, sample_weight=None)
    with pytest.raises(TypeError, match="colour"):
        PrivateLogisticRegression(**PUBLIC).fit(X, Y, colour=1)


# --- order, noise, units -------------------------------------------------------------------------------


def test_a_sorted_table_is_permuted_first() -> None:
    order = np.argsort(Y, kind="stable")
    kwargs = {**PUBLIC, "epsilon": 8.0}
    mixed = PrivateLogisticRegression(**kwargs).fit(X[order], Y[order])
    as_is = PrivateLogisticRegression(**kwargs, shuffle=False).fit(X[order], Y[order])
    assert mixed.score(X, Y) > as_is.score(X, Y) + 0.02


def test_the_noise_is_fresh_unless_seeded_and_then_the_report_says_so() -> None:
    a, b = (PrivateLogisticRegression(**PUBLIC, shuffle=False).fit(X, Y) for _ in range(2))
    assert not np.array_equal(a.coef_, b.coef_)
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        c = PrivateLogisticRegression(**PUBLIC, random_state=3).fit(X, Y)
    d = quiet(PrivateLogisticRegression(**PUBLIC, random_state=3), X, Y)
    np.testing.assert_array_equal(c.coef_, d.coef_)
    assert not c.privacy_.private
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is what is watched
    PrivateLogisticRegression(**PUBLIC).fit(X, Y)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_a_unit_counts_at_most_k_rows_and_the_promise_covers_them() -> None:
    ids = np.arange(N) // 4
    clf = PrivateLogisticRegression(**PUBLIC, max_rows_per_unit=2).fit(X, Y, unit=ids)
    assert clf.privacy_.records == clf.plan_.budget.records == 2
    assert clf.privacy_.group_epsilon(2) == pytest.approx(1.0, rel=1e-9)
    assert any("one id" in line for line in clf.privacy_.assumptions)
    # In the given order the first two rows of each id count: the others may hold anything.
    kwargs = {**NO_NOISE, "classes": [0, 1], "shuffle": False, "max_rows_per_unit": 2}
    a = PrivateLogisticRegression(**kwargs).fit(X, Y, unit=ids)
    other = np.where((np.arange(N) % 4 >= 2)[:, None], -X, X)
    b = PrivateLogisticRegression(**kwargs).fit(other, Y, unit=[f"id {k}" for k in ids])
    np.testing.assert_array_equal(a.coef_, b.coef_)
    for wrong in ({"max_rows_per_unit": 2}, {}):
        with pytest.raises(dpsco.InvalidArgument, match="unit"):
            PrivateLogisticRegression(**PUBLIC, **wrong).fit(X, Y, unit=None if wrong else ids)
    with pytest.raises(dpsco.InvalidArgument, match="one id for each row"):
        PrivateLogisticRegression(**PUBLIC, max_rows_per_unit=2).fit(X, Y, unit=ids[:-1])


# --- scikit-learn's world ---------------------------------------------------------------------------------


def test_sparse_rows_give_the_model_of_dense_rows() -> None:
    rows = np.where(np.abs(X) > 0.2, X, 0.0)
    kwargs = {**NO_NOISE, "classes": [0, 1], "shuffle": False}
    dense = PrivateLogisticRegression(**kwargs).fit(rows, Y)
    for form in (csr_matrix, csc_matrix):
        sparse = PrivateLogisticRegression(**kwargs).fit(form(rows), Y)
        np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(sparse.decision_function(form(rows)), dense.decision_function(rows), atol=1e-9)


def test_the_note_about_few_usable_rows_names_the_cap_where_there_is_one() -> None:
    rng = np.random.default_rng(0)
    rows, units = rng.normal(size=(20_000, 5)), np.arange(20_000) // 4
    facts = {"epsilon": 5.0, "delta": 1e-6, "classes": [0, 1]}
    capped = PrivateLogisticRegression(**facts, max_rows_per_unit=1).fit(rows, rows[:, 0] > 0, unit=units)
    odd = PrivateLogisticRegression(**facts, invalid_rows="zero").fit(rows, np.where(units % 2, 5, rows[:, 0] > 0))
    notes = [next(line for line in str(model.privacy_).splitlines() if "usable" in line) for model in (capped, odd)]
    assert ["max_rows_per_unit=1" in note for note in notes] == [True, False]


def test_a_large_sparse_table_is_surveyed_like_a_dense_one() -> None:
    """Kernels serve its rounds; the survey of sparse rows runs in the threads of the compiled one."""
    rng = np.random.default_rng(0)
    rows = random_rows(430_000, 40, density=0.1, format="csr", random_state=rng)
    labels = (rows @ np.linspace(-1, 1, 40) > 0).astype(int)
    found = [quiet(PrivateLogisticRegression(**PUBLIC, random_state=0), one, labels) for one in (rows, rows.toarray())]
    assert found[0].plan_.method.name == "surveyed"
    np.testing.assert_allclose(found[0].coef_, found[1].coef_, rtol=1e-6, atol=1e-8)


def test_pipelines_clones_grids_and_frames() -> None:
    frame = pandas.DataFrame(X, columns=[f"f{j}" for j in range(6)])
    pipe = make_pipeline(FunctionTransformer(lambda rows: rows / 2), PrivateLogisticRegression(**PUBLIC)).fit(X, Y)
    assert pipe.predict(X).shape == (N,)
    clf = PrivateLogisticRegression(**PUBLIC).fit(frame, Y)
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert clf.n_features_in_ == 6
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert not hasattr(copy, "coef_")
    grid = GridSearchCV(PrivateLogisticRegression(**PUBLIC), {"radius": [5.0, 20.0]}, cv=2).fit(X, Y)
    assert "GridSearchCV" in str(grid.best_estimator_.privacy_)
    assert len(cross_val_score(PrivateLinearRegression(delta=1e-6, label_bound=1.0), X, Y, cv=2)) == 2


def test_a_pickle_holds_the_model_and_nothing_secret() -> None:
    clf = PrivateLogisticRegression(**PUBLIC).fit(X, Y)
    back = pickle.loads(pickle.dumps(clf))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(back.predict_proba(X), clf.predict_proba(X))
    assert back.privacy_ == clf.privacy_
    assert back.plan_ == clf.plan_
    held = {name for name in vars(clf) if name not in clf.get_params()}
    learned = {"coef_", "intercept_", "classes_", "n_features_in_", "plan_", "privacy_", "geometry_", "health_"}
    released = {"_inference"}
    assert held - learned - released == {
        *("_norm", "_run", "_inferred", "_width", "_form", "_result", "columns_", "_encoder"),
        *("_day", "_shrinkage"),  # the date of the first call, and words
    }
    assert clf._run is None


@pytest.mark.parametrize("survey", ["full", "intervals", "diagonal", "low-rank"])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_a_survey_of_too_few_rows_is_refused_by_name(n, survey) -> None:
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], survey=survey)
    with pytest.raises(dpsco.InvalidArgument, match=f"well below n={n}"):
        model.fit(np.ones((n, 3)), [0] * n)
