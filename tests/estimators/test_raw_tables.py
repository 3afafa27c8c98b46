"""Estimators on raw tables: declared columns, public starts, accounts, chunks, and headlines that tell the truth."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpsco
from dpsco.estimators import base

COLUMNS = dpsco.PublicColumns(
    ranges={"age": (0, 120), "income": (0, 1e6)}, log=["income"], categories={"city": ["Lyon", "Paris"]}, missing=True
)
PUBLIC = {"epsilon": 1.0, "delta": 1e-6, "classes": ["no", "yes"], "columns": COLUMNS}
N = 6_000


def raw(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(18, 90, N), rng.lognormal(10, 1, N)
    city = rng.choice(["Lyon", "Paris", "Oslo"], N)
    score = (age - 50) / 8 + 2 * (city == "Paris") + np.log(income / 2e4)
    frame = pd.DataFrame({"id": np.arange(N), "age": age, "income": income, "city": city})
    return frame, np.where(rng.random(N) < 1 / (1 + np.exp(-score)), "yes", "no")


X, Y = raw()
NEW, NEW_Y = raw(1)


def fitted(**arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        return dpsco.PrivateLogisticRegression(**{**PUBLIC, "random_state": 0, **arguments}).fit(X, Y)


def test_a_raw_table_becomes_a_good_private_model() -> None:
    model = dpsco.PrivateLogisticRegression(**PUBLIC, survey="auto").fit(X, Y)
    assert model.score(NEW, NEW_Y) > 0.75  # 60 fits had 0.819 to 0.863; the labels themselves allow 0.90
    assert model.privacy_.headline.startswith("Private: ")
    assert model.feature_names_in_.tolist() == ["age", "income", "city"]
    assert model.coef_.shape == (1, COLUMNS.width)
    assert model.n_features_in_ == 3
    holes = NEW.copy().astype(object)
    holes.loc[:99, ["age", "city"]] = None
    assert set(model.predict(holes)) == {"no", "yes"}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), model.predict(NEW))  # noqa: S301


def test_containers_and_pipelines_give_the_same_model() -> None:
    wanted = fitted().coef_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        for table in (pl.DataFrame(X), X.astype(object), X.sample(frac=1, axis=1, random_state=0), X.to_dict("list")):
            np.testing.assert_array_equal(clone(fitted()).fit(table, Y).coef_, wanted)
        bare = dpsco.PrivateLogisticRegression(**{**PUBLIC, "columns": None}, random_state=0)
        np.testing.assert_array_equal(make_pipeline(COLUMNS, bare).fit(X, Y)[-1].coef_, wanted)


def test_a_schema_file_declares_the_columns(tmp_path) -> None:
    path = COLUMNS.write(tmp_path / "columns.toml")
    np.testing.assert_array_equal(fitted(columns=str(path)).coef_, fitted().coef_)
    with pytest.raises(dpsco.InvalidArgument, match="PublicColumns, or the path"):
        fitted(columns=3)


def test_one_odd_row_changes_nothing_about_the_rows_of_others() -> None:
    odd = X.to_dict("list")
    odd["age"][5], odd["city"][5], odd["income"][5] = "?", [1], {}
    seen = fitted().columns_.transform(odd)
    np.testing.assert_array_equal(np.delete(seen, 5, 0), np.delete(COLUMNS.transform(X), 5, 0))
    assert fitted().privacy_ != fitted(columns=dpsco.PublicColumns(["age"])).privacy_


def test_chunks_and_pushes_of_raw_tables() -> None:
    stated = {**PUBLIC, "n": N, "invalid_rows": "zero"}
    chunks = ((X[k : k + 700], Y[k : k + 700]) for k in range(0, N, 700))
    whole = dpsco.PrivateLogisticRegression(**stated).fit(chunks)
    assert whole.privacy_.rows_missing == 0
    assert whole.score(NEW, NEW_Y) > 0.8
    pushed = dpsco.PrivateLogisticRegression(**stated)
    for k in range(0, N, 700):
        pushed.partial_fit(X[k : k + 700], Y[k : k + 700])
    assert pushed.score(NEW, NEW_Y) > 0.8
    with pytest.raises(dpsco.InvalidArgument, match="State n="):
        dpsco.PrivateLogisticRegression(**PUBLIC).fit(iter([(X, Y)]))
    with pytest.raises(dpsco.DataError, match="no chunk"):
        dpsco.PrivateLogisticRegression(**stated).fit(iter([]))


def test_an_earlier_model_is_a_start() -> None:
    first = fitted(survey="none", epsilon=8.0)
    again = fitted(start=first, epsilon=0.01)
    assert again.score(NEW, NEW_Y) > fitted(survey="none", epsilon=0.01).score(NEW, NEW_Y) + 0.05
    pair = fitted(start=(first.coef_, first.intercept_), epsilon=0.01)
    np.testing.assert_array_equal(pair.coef_, again.coef_)
    with pytest.raises(dpsco.InvalidArgument, match="coefficients of shape"):
        fitted(start=([1.0, 2.0], 0.0))


def test_a_copy_starts_where_the_original_does() -> None:
    """``clone`` copies the estimators that parameters hold, unfitted: a copy of an earlier model knows nothing."""
    first = fitted(survey="none")
    again = clone(dpsco.PrivateLogisticRegression(**PUBLIC, start=first))
    assert again.start is first
    assert again.fit(X, Y).privacy_.headline.startswith("Private, except: the start is an earlier model")


def test_a_headline_says_that_an_earlier_model_spent_its_own_budget() -> None:
    stated = {**PUBLIC, "survey": "none", "warm_start": True}
    model = dpsco.PrivateLogisticRegression(**stated).fit(X, Y)
    assert "earlier model" not in model.privacy_.headline
    pair = dpsco.PrivateLogisticRegression(**stated, start=(model.coef_, model.intercept_)).fit(X, Y)
    assert "earlier model" not in pair.privacy_.headline  # a pair is what the caller states to be public
    other = dpsco.PrivateLogisticRegression(**stated, start=model).fit(X, Y)
    for again in (model.fit(X, Y), other):
        assert again.privacy_.headline.startswith("Private, except: the start is an earlier model; its own guarantee")


def test_a_chunk_without_rows_is_skipped() -> None:
    stated = {**PUBLIC, "n": len(Y), "survey": "none", "random_state": 0, "invalid_rows": "zero"}
    chunks = [(X[:0], Y[:0]), (X[:700], Y[:700]), (X[:0], Y[:0]), (X[700:], Y[700:])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = dpsco.PrivateLogisticRegression(**stated).fit(iter([chunks[1], chunks[3]]))
        parts = dpsco.PrivateLogisticRegression(**stated).fit(iter(chunks))
        pushed, wanted = (dpsco.PrivateLogisticRegression(**stated) for _ in range(2))
        for chunk in chunks:
            pushed.partial_fit(*chunk)
        for chunk in (chunks[1], chunks[3]):
            wanted.partial_fit(*chunk)
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    np.testing.assert_array_equal(pushed.coef_, wanted.coef_)


def test_a_start_is_the_earlier_model_in_the_units_of_the_plan(monkeypatch) -> None:
    starts = []

    def recorded(plan, rows, *, start, **options):
        starts.append((plan, start))
        return train(plan, rows, start=start, **options)

    train = base.train
    monkeypatch.setattr(base, "train", recorded)
    line = {"label_bound": 120.0, "columns": COLUMNS, "delta": 1e-6, "survey": "none"}
    known = dpsco.PrivateLinearRegression(**line, warm_start=True).fit(X, X["age"])
    before = known.predict(NEW)
    known.fit(X, X["age"])
    dpsco.PrivateLinearRegression(**line, start=known).fit(X, X["age"])
    assert starts[0][1] is None
    scaled = np.asarray(COLUMNS.transform(NEW)) / COLUMNS.row_norm
    for (plan, start), wanted in zip(starts[1:], (before, known.predict(NEW)), strict=True):
        model = dpsco.Model.from_parameters(start, plan.problem)
        np.testing.assert_allclose(120.0 * model.scores(scaled), wanted, rtol=1e-4)


def test_an_account_adds_up_every_fit(tmp_path) -> None:
    account = dpsco.Account.create(tmp_path / "people.json", limit=dpsco.Budget(2.0, 1e-6))
    model = dpsco.PrivateLogisticRegression(**PUBLIC, account=account).fit(X, Y)
    assert account.epsilon == pytest.approx(1.0, rel=1e-6)
    cross_val_score(clone(model).set_params(account=str(tmp_path / "people.json"), epsilon=0.5), X, Y, cv=2)
    spent = account.epsilon
    assert 1.0 < spent < 2.0
    pushed = dpsco.PrivateLogisticRegression(**{**PUBLIC, "epsilon": 0.1}, n=N, account=account)
    pushed.partial_fit(X[:100], Y[:100])
    assert account.epsilon > spent
    with pytest.raises(dpsco.AccountError):
        clone(model).fit(X, Y).set_params(epsilon=2.0).fit(X, Y)


def test_the_headline_says_what_the_guarantee_does_not_cover() -> None:
    with pytest.warns(dpsco.PrivacyLeakWarning):
        read = dpsco.PrivateLogisticRegression(**{**PUBLIC, "classes": None}).fit(X, Y).privacy_
    loose = dpsco.PrivateLogisticRegression(**{**PUBLIC, "delta": 1e-3}).fit(X, Y).privacy_
    with pytest.warns(dpsco.PrivacyLeakWarning):
        bound = dpsco.PrivateLinearRegression(delta=1e-6, columns=COLUMNS).fit(X, X["age"]).privacy_
    for report, words in ((read, "set of labels"), (loose, "not below 1/n"), (bound, "label_bound")):
        assert report.headline.startswith("Private, except: ")
        assert words in report.headline
        assert report.to_text().startswith("PRIVATE, EXCEPT: ")
        assert words in report.to_text().splitlines()[0]
        assert json.loads(report.to_json())["headline"] == report.headline
        assert report.to_json().splitlines()[1].strip().startswith('"headline": "Private, except')
        assert dpsco.PrivacyReport.from_json(report.to_json()) == report
    forged = loose.to_json().replace(loose.headline, "Private: all is well.")
    with pytest.raises(dpsco.InvalidArgument, match="headline"):
        dpsco.PrivacyReport.from_json(forged)


def test_the_report_asks_what_was_before_the_estimator() -> None:
    asked = "no step before this one"
    bare = {**PUBLIC, "columns": None}
    scaled = make_pipeline(COLUMNS, StandardScaler(), dpsco.PrivateLogisticRegression(**bare)).fit(X, Y)
    direct = make_pipeline(COLUMNS, dpsco.PrivateLogisticRegression(**bare)).fit(X, Y)
    assert asked in str(scaled[-1].privacy_)
    assert asked not in str(direct[-1].privacy_)
    assert asked not in str(dpsco.PrivateLogisticRegression(**PUBLIC).fit(X, Y).privacy_)


def test_too_few_rows_are_told_from_public_numbers() -> None:
    few = dpsco.PrivateLogisticRegression(**PUBLIC, survey="none").fit(X[:20], Y[:20])
    assert "n = 20 rows at epsilon = 1 can hardly beat a constant" in " ".join(few.plan_.explain().split())
    assert "can hardly beat a constant" in str(few.privacy_)
    many = dpsco.PrivateLogisticRegression(**PUBLIC, survey="none").fit(X, Y)
    assert "hardly beat" not in str(many.privacy_)
    assert "constant prediction has about" in " ".join(many.plan_.explain().split())


@pytest.mark.parametrize(("n", "hopeless"), [(2_000, True), (20_000, False)])
def test_a_surveyed_plan_says_what_noise_costs_before_the_survey(n, hopeless) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1000.0), 199, intercept=True)
    plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(1.0, 1e-6), survey="full")
    said = " ".join(plan.explain().split())
    noise = 1 / (dpsco.mu_of(1.0, 1e-6) * (n - plan.method.rows))
    assert f"excess risk of about {2 * (200 * noise) ** 2:.2g}. A constant prediction has about 0.347" in said
    assert ("can hardly beat a constant" in said) == hopeless


def test_class_weights_are_public_and_move_the_threshold() -> None:
    chance = 1 / (1 + np.exp((85 - X["age"]) / 15))
    train = np.where(np.random.default_rng(2).random(N) < chance, "yes", "no")
    shares = {}
    for weight in (None, {"yes": 6.0}, {"yes": 6, "no": 1.0}):
        model = fitted_on(train, class_weight=weight)
        shares[str(weight)] = float(np.mean(model.predict(NEW) == "yes"))
    plain, weighted, same = shares.values()
    assert weighted > plain + 0.2
    assert weighted == same
    assert "usable" not in str(model.privacy_)
    for wrong, words in (("balanced", "read off the rows"), ({"perhaps": 1}, "perhaps"), ({"no": -1}, "class_weight")):
        with pytest.raises(dpsco.InvalidArgument, match=words):
            fitted(class_weight=wrong)


@pytest.mark.parametrize("path", ["dense", "sparse", "pushed", "chunks", "objective-perturbation", "no survey"])
def test_every_path_fits_the_weighted_loss(path) -> None:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(5)
    a = rng.uniform(-1, 1, (20_000, 2))
    y = (a @ [3.0, -1.0] - 1.5 + rng.logistic(size=len(a)) > 0).astype(int)
    expected = LogisticRegression(C=1e6, class_weight={0: 1, 1: 8}).fit(a, y)
    model = dpsco.PrivateLogisticRegression(
        epsilon=20.0, delta=1e-6, feature_norm=2**0.5, classes=[0, 1], class_weight={1: 8.0}, n=len(a), random_state=0,
        solver="objective-perturbation" if path == "objective-perturbation" else "one-pass",
        survey="none" if path == "no survey" else "auto", rounds=24 if path == "no survey" else None,
        invalid_rows="zero",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        if path == "pushed":
            for start in range(0, len(a), 5_000):
                model.partial_fit(a[start : start + 5_000], y[start : start + 5_000])
        elif path == "chunks":
            model.fit((a[i : i + 5_000], y[i : i + 5_000]) for i in range(0, len(a), 5_000))
        else:
            model.fit(csr_matrix(a) if path == "sparse" else a, y)
    differ = np.abs(np.append(model.coef_ - expected.coef_, model.intercept_ - expected.intercept_))
    assert differ.max() < (0.8 if path == "no survey" else 0.3)  # without weights the intercept is off by 2


def fitted_on(labels, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        return dpsco.PrivateLogisticRegression(**PUBLIC, random_state=0, **arguments).fit(X, labels)


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_columns_that_are_not_of_numbers_are_named_with_the_way(table) -> None:
    cells = {"age": [30, 41, 52], "city": ["Lyon", "Nice", "Lyon"], "member": [True, False, True]}
    model = dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1])
    with pytest.raises(dpsco.DataError, match=r"by their type: city\. .*PublicColumns") as told:
        model.fit(table(cells), [0, 1, 0])
    assert "Lyon" not in str(told.value)


def test_a_set_of_classes_is_a_set_of_classes() -> None:
    assert fitted(classes={"yes", "no"}).classes_.tolist() == ["no", "yes"]


def test_a_page_from_an_estimator(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    page = fitted(random_state=None).report_page(tmp_path / "page.html", reached={"accuracy": "0.9"})
    html = page.read_text()
    for words in ("Who is protected?", "<b>Private</b>", "on data declared public", "<svg"):
        assert words in html


@pytest.mark.parametrize("penalty", [0.003, 0.1])
def test_a_penalty_is_that_of_ridge_regression_and_costs_nothing(penalty) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    encoded = COLUMNS.transform(X)
    free = LogisticRegression(C=1 / (N * penalty), max_iter=2_000, tol=1e-8).fit(encoded, Y)
    plain, shrunk = (fitted(epsilon=20.0, penalty=each) for each in (0.0, penalty))
    assert shrunk.privacy_.mu == plain.privacy_.mu
    gap, moved = (float(np.linalg.norm(free.coef_ - model.coef_)) for model in (shrunk, plain))
    assert gap < 0.35 * moved
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, [1, 0.8, 0.6, 0.5], size=(40_000, 4))
    target = rows @ [1.0, -1.0, 0.5, 0.2] - 0.2 + 0.1 * rng.standard_normal(40_000)
    wanted = Ridge(alpha=40_000 * penalty).fit(rows, target).coef_
    line = {"label_bound": 2.0, "feature_norm": 2.0, "delta": 1e-6, "epsilon": 20.0, "loss": "squared"}
    found = dpsco.PrivateLinearRegression(**line, penalty=penalty).fit(rows, target).coef_
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


@pytest.mark.parametrize("survey", ["diagonal", "low-rank"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_penalty_is_kept_behind_maps_that_hold_no_matrix(survey, intercept) -> None:
    rng = np.random.default_rng(0)  # columns without correlations: all kinds of survey show the same
    rows = rng.standard_normal((40_000, 20)) / 5
    labels = (4 * rows[:, 0] + rng.logistic(size=40_000) > 0).astype(int)
    facts = {"epsilon": 4.0, "delta": 1e-6, "classes": (0, 1), "fit_intercept": intercept, "penalty": 0.01}
    wanted, found = (
        dpsco.PrivateLogisticRegression(**facts, survey=kind).fit(rows, labels).coef_ for kind in ("full", survey)
    )
    assert np.linalg.norm(found - wanted) < 0.15 * np.linalg.norm(wanted)


def test_a_penalty_without_a_survey_is_refused_before_a_row_is_used() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="geometry that a survey releases"):
        fitted(penalty=0.1, survey="none")
    with pytest.raises(dpsco.InvalidArgument, match="penalty"):
        fitted(penalty=-1.0)
