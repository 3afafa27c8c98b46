"""Intervals behind ``PublicColumns`` are in the units of the raw table, intercept and covariance included."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import dpsco
from dpsco.inference import Inference

N = 40_000
COMMON = {"epsilon": 8.0, "delta": 1e-6, "random_state": 3}
MODELS = {
    "logistic": lambda **more: dpsco.PrivateLogisticRegression(classes=["no", "yes"], **COMMON, **more),
    "softmax": lambda **more: dpsco.PrivateLogisticRegression(classes=["a", "b", "c"], **COMMON, **more),
    "hinge": lambda **more: dpsco.PrivateLinearSVC(classes=["no", "yes"], **COMMON, **more),
    "squared": lambda **more: dpsco.PrivateLinearRegression(label_bound=20.0, loss="squared", **COMMON, **more),
    "huber": lambda **more: dpsco.PrivateLinearRegression(label_bound=20.0, loss="huber", **COMMON, **more),
}
TRUTH = np.array([0.05, 0.4, 0.5, 0.6, -0.3, -4.6])
NAMES = ["age", "log(1 + income / 1000)", "member", "city=Oslo", "city=Paris", "intercept"]


def made() -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, N),
            "income": np.clip(rng.lognormal(10, 1, N), 0, 1e6),
            "member": rng.choice(["yes", "no"], N),
            "city": rng.choice(["Lyon", "Oslo", "Paris"], N),
        }
    )
    rows = [frame["age"], np.log1p(frame["income"] / 1000), frame["member"] == "yes"]
    rows += [frame["city"] == "Oslo", frame["city"] == "Paris"]
    scores = np.column_stack([np.asarray(row, dtype=float) for row in rows]) @ TRUTH[:-1] + TRUTH[-1]
    two = np.where(rng.random(N) < 1 / (1 + np.exp(-scores)), "yes", "no")
    # Twice as large, they make rounds scatter as much as inference allows: one noise in thirty would be refused.
    several = np.stack([scores, -scores, 0 * scores], axis=1) / 2 + rng.gumbel(size=(N, 3))
    three = np.array(["a", "b", "c"])[np.argmax(several, axis=1)]
    numbers = np.clip(scores + 2 * rng.standard_normal(N), -20, 20)
    return frame, {"logistic": two, "hinge": two, "softmax": three, "squared": numbers, "huber": numbers}


FRAME, LABELS = made()


def declared(**more) -> dpsco.PublicColumns:
    given = {
        "ranges": {"age": (18, 120), "income": (0, 1e6)},
        "log": ["income"],
        "booleans": ["member"],
        "categories": {"city": ["Lyon", "Oslo", "Paris"]},
        "drop": "first",
    }
    return dpsco.PublicColumns(**{**given, **more})


def fitted(kind: str, columns: dpsco.PublicColumns, *, pipeline: bool = False, **more):
    model = MODELS[kind](**{"survey": "intervals", **more}, **({} if pipeline else {"columns": columns}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        if pipeline:
            return make_pipeline(columns, model).fit(FRAME, LABELS[kind])[-1]
        return model.fit(FRAME, LABELS[kind])


def quantities() -> np.ndarray:
    """The columns of the table as a statistician would write them, and a constant."""
    rows = [FRAME["age"], np.log(1 + FRAME["income"] / 1000), FRAME["member"] == "yes"]
    rows += [FRAME["city"] == "Oslo", FRAME["city"] == "Paris", np.ones(N)]
    return np.column_stack([np.asarray(row, dtype=float) for row in rows])


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_estimates_of_the_table_make_the_predictions_of_the_model(kind, centered) -> None:
    model = fitted(kind, declared(centered=centered), pipeline=True)
    rows = declared(centered=centered).transform(FRAME[:500])
    table = model.inference_.estimate.reshape(3 if kind == "softmax" else 1, 6)
    scores = quantities()[:500] @ table.T
    if kind == "softmax":
        expected, scores = (each - each.mean(axis=1, keepdims=True) for each in (model.decision_function(rows), scores))
    elif kind in ("logistic", "hinge"):
        expected, scores = model.decision_function(rows), scores[:, 0]
    else:
        expected, scores = model.predict(rows), scores[:, 0]
    np.testing.assert_allclose(scores, expected, atol=1e-4 * np.max(np.abs(expected)))
    assert model.standard_errors().shape == ((3, 6) if kind == "softmax" else (6,))
    assert model.confidence_intervals(0.9).shape == ((3, 6, 2) if kind == "softmax" else (6, 2))


@pytest.mark.parametrize("part", ["total", "sampling", "privacy", "optimisation"])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_the_covariance_goes_through_the_same_map(kind, part) -> None:
    columns = declared(centered=True)
    model = fitted(kind, columns)
    outputs = 3 if kind == "softmax" else 1
    of_features = model._result.inference.in_units(1 / model._norm, 1.0).covariance(part)
    slopes, offsets, _ = columns.units
    turn = np.eye(6)
    turn[:5, :5] = np.diag(slopes)
    turn[5, :5] = offsets
    turn = np.kron(np.eye(outputs), turn)
    np.testing.assert_allclose(model.covariance(part), turn @ of_features @ turn.T, rtol=1e-9, atol=1e-15)
    roots = np.sqrt(np.diag(model.covariance(part)))
    np.testing.assert_allclose(model.standard_errors(part).ravel(), roots, rtol=1e-12)


@pytest.mark.parametrize("survey", ["intervals", "full", "auto"])
@pytest.mark.parametrize("kind", ["logistic", "squared", "huber"])
def test_the_truth_of_the_raw_table_is_near(kind, survey) -> None:
    """Six coefficients of a fixed seed, each within five standard errors."""
    model = fitted(kind, declared(), survey=survey)
    estimate, errors = model.inference_.estimate, model.standard_errors()
    assert np.all(np.abs(estimate - TRUTH) < 5 * errors)
    text = model.summary()
    for name in NAMES:
        assert f"\n{name} " in text


@pytest.mark.parametrize("kind", ["logistic", "softmax", "huber"])
def test_a_step_of_a_pipeline_and_an_argument_say_the_same(kind) -> None:
    one, other = fitted(kind, declared()), fitted(kind, declared(), pipeline=True)
    np.testing.assert_array_equal(one.covariance(), other.covariance())
    assert one.summary() == other.summary()
    rows = declared().transform(FRAME[:20])
    np.testing.assert_array_equal(one.predict_interval(FRAME[:20]), other.predict_interval(rows))
    again = pickle.loads(pickle.dumps(other))  # noqa: S301 - our own bytes
    assert again.summary() == other.summary()


def test_columns_that_change_later_and_copied_rows_change_no_units() -> None:
    columns = declared()
    model = fitted("logistic", columns, pipeline=True)
    before = model.confidence_intervals()
    columns.set_params(ranges={"age": (0, 1), "income": (0, 1)})
    model._inference = None
    np.testing.assert_array_equal(model.confidence_intervals(), before)
    rows = np.array(declared().transform(FRAME))  # a copy says nothing about columns: features are in their own units
    plain = MODELS["logistic"](survey="intervals", feature_norm=declared().row_norm)
    with pytest.warns(UserWarning, match="random_state"):
        plain.fit(rows, LABELS["logistic"])
    np.testing.assert_allclose(plain.inference_.estimate, [*plain.coef_[0], plain.intercept_[0]], rtol=1e-9)
    assert "\nx0 " in plain.summary()


def test_predicted_intervals_hold_what_the_pipeline_predicts() -> None:
    model = fitted("logistic", declared())
    ends, middle = model.predict_interval(FRAME[:50]), model.predict_proba(FRAME[:50])[:, 1]
    assert np.all((ends[:, 0] < middle) & (middle < ends[:, 1]))
    rows = quantities()[:50]
    spread = np.sqrt(np.einsum("ri,ij,rj->r", rows, model.covariance(), rows))
    width = np.diff(np.log(ends / (1 - ends)), axis=1)[:, 0]
    np.testing.assert_allclose(width / spread, np.median(width / spread), rtol=1e-3)  # one quantile for all


def test_a_table_for_data_frames_has_the_numbers_of_the_summary() -> None:
    model = fitted("softmax", declared())
    table = pd.DataFrame(model.inference_.table(0.9))
    assert table["name"].tolist() == NAMES * 3
    assert table["class"].tolist() == [name for name in "abc" for _ in NAMES]
    np.testing.assert_array_equal(table[["low", "high"]], model.confidence_intervals(0.9).reshape(-1, 2))
    np.testing.assert_array_equal(table["standard_error"], model.standard_errors().ravel())
    np.testing.assert_allclose(table["z"], table["estimate"] / table["standard_error"])
    assert np.all((table["p_value"] < 0.1) == ((table["low"] > 0) | (table["high"] < 0)))


def test_without_an_intercept_the_ranges_make_one() -> None:
    model = fitted("squared", declared(), fit_intercept=False)
    assert model.inference_.intercept
    assert "no intercept" in model.summary()
    slopes, offsets, _ = declared().units
    np.testing.assert_allclose(model.inference_.estimate, [*(slopes * model.coef_), model.coef_ @ offsets])
    expected = np.append(offsets, 0)[:5] @ (model.covariance()[:5, :5] / np.outer(slopes, slopes)) @ offsets
    assert model.covariance()[5, 5] == pytest.approx(expected)
    at_zero = fitted("squared", declared(ranges={"age": (0, 120), "income": (0, 1e6)}), fit_intercept=False)
    assert not at_zero.inference_.intercept
    assert at_zero.standard_errors().shape == (5,)


def test_rows_that_were_shortened_are_noted() -> None:
    assert "shortened" not in fitted("logistic", declared()).summary()
    assert "shortened" in fitted("logistic", declared(), feature_norm=1.6).summary()


def test_all_levels_beside_an_intercept_are_refused_with_the_remedy() -> None:
    model = fitted("logistic", declared(drop=None))
    with pytest.raises(dpsco.IntervalError, match=r"drop='first'.*--drop first"):
        model.summary()
    # The difference of two levels is the same number, whichever is dropped.
    by_lyon, by_paris = (fitted("logistic", declared(drop={"city": level})) for level in ("Lyon", "Paris"))
    one, other = by_lyon.inference_.estimate[4], -by_paris.inference_.estimate[3]
    assert abs(one - other) < 2 * by_lyon.standard_errors()[4]


def test_a_penalty_and_a_ball_that_binds_are_noted_in_the_units_of_the_table() -> None:
    plain, shrunk = fitted("logistic", declared()), fitted("logistic", declared(), penalty=0.01)
    assert "ridge" in shrunk.summary()
    np.testing.assert_array_equal(plain.covariance(), shrunk.covariance())
    bound = fitted("logistic", declared(), radius=1.0)
    assert "binds" in bound.summary()
    assert "\nage " in bound.summary()
    with pytest.raises(dpsco.IntervalError, match="survey"):
        fitted("logistic", declared(), survey="none").summary()


def test_degrees_of_an_intercept_are_those_of_its_terms() -> None:
    def with_offset(offset: float) -> np.ndarray:
        few = Inference(
            estimate=np.ones(2), sampling=np.eye(2), privacy=np.zeros((2, 2)), shift=np.zeros(2),
            degrees=np.array([6.0, 24.0]), loss=dpsco.Logistic(), features=1, intercept=True,
        )  # fmt: skip
        return few.of_quantities([2.0], [offset]).degrees

    np.testing.assert_array_equal(with_offset(0.0), [6.0, 24.0])
    np.testing.assert_allclose(with_offset(1e-4), [6.0, 24.0], rtol=1e-5)
    np.testing.assert_allclose(with_offset(1e4), [6.0, 6.0], rtol=1e-5)
    assert 6.0 < with_offset(1.0)[1] < 24.0
