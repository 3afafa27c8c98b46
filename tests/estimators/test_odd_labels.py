"""One odd label among good ones costs its own row and nothing else, in lists, arrays and frames."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_predict

import dpsco
from dpsco import DataError, PrivateLinearRegression, PrivateLogisticRegression
from dpsco.estimators.public_facts import class_codes
from dpsco.rows.row_norm import unit_rows

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
Y = RNG.integers(0, 2, 300).tolist()
COMMON = {"epsilon": 1.0, "delta": 1e-5, "rounds": 3, "random_state": 7}


def fitted(model, y) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y).coef_.tobytes()


@pytest.mark.parametrize("wrap", [list, lambda y: np.array(y, dtype=object), lambda y: pd.Series(y, dtype=object)])
@pytest.mark.parametrize("odd", ["high", None, float("nan"), (1, 2), 10**400, b"\xff"])
def test_a_label_of_another_kind_is_a_zero_row(odd, wrap) -> None:
    """The model is the one with an undeclared number in that row's place, bit for bit."""
    model = PrivateLogisticRegression(**COMMON, classes=[0, 1], invalid_rows="zero")
    reference = fitted(model, [*Y[:40], 77, *Y[41:]])
    cells = np.empty(300, dtype=object)
    cells[:] = Y
    cells[40] = odd
    assert fitted(model, wrap(cells.tolist()) if not isinstance(odd, tuple) else cells) == reference


@pytest.mark.parametrize("odd", ["high", None, [1.0], float("inf"), -np.inf])
def test_a_target_that_is_no_number_is_a_zero_row(odd) -> None:
    model = PrivateLinearRegression(**COMMON, label_bound=1.0, invalid_rows="zero")
    targets = X[:, 0].tolist()
    reference = fitted(model, [*targets[:40], float("nan"), *targets[41:]])
    cells = np.empty(300, dtype=object)
    cells[:] = targets
    cells[40] = odd
    assert fitted(model, cells) == reference


def test_by_default_an_odd_label_is_refused_and_not_quoted() -> None:
    with pytest.raises((DataError, dpsco.InvalidArgument, ValueError)) as caught:
        fitted(
            PrivateLogisticRegression(**COMMON, classes=[0, 1]),
            np.array([*Y[:40], "Confidential", *Y[41:]], dtype=object),
        )
    assert "Confidential" not in str(caught.value)


@pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearRegression])
@pytest.mark.parametrize(
    "wrap", [list, np.array, pd.Series, lambda y: np.array([y, y]).T, lambda y: pd.DataFrame({"a": y, "b": y})]
)
@pytest.mark.parametrize("odd", [0.123456789j, 0.123456789, "0.123456789", float("nan")])
def test_no_check_of_labels_quotes_a_cell_or_a_count(model, wrap, odd) -> None:
    facts = {"classes": [0, 1]} if model is PrivateLogisticRegression else {"label_bound": 1.0}
    labels = wrap([*Y[:40], odd, *Y[41:]])
    if model is PrivateLinearRegression and np.ndim(labels) == 1 and odd in (0.123456789, "0.123456789"):
        return  # a target like any other
    with pytest.raises((DataError, dpsco.InvalidArgument)) as caught:
        fitted(model(**COMMON, **facts), labels)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "0.123" not in str(caught.value)
    assert "300" not in str(caught.value)


def test_classes_are_not_guessed_from_a_mixture() -> None:
    with pytest.raises(DataError, match="classes"):
        fitted(PrivateLogisticRegression(**COMMON, invalid_rows="zero"), [*Y[:40], "x", *Y[41:]])


def test_half_precision_rows_keep_their_direction_beyond_255() -> None:
    rows = np.array([[300.0, 400.0], [60000.0, 0.0]], dtype=np.float16)
    np.testing.assert_allclose(unit_rows(rows, 1.0), [[0.6, 0.8], [1.0, 0.0]], rtol=1e-3)


@pytest.mark.parametrize(
    "name",
    ["٣", "３", "৩", "𝟛", "³", "③", "Ⅲ", "-٣", "−3", "0003", "+3", " 3", "3.0", "3e0", "1_0", "-0", "9" * 5_000],
)
def test_the_type_of_labels_does_not_decide_which_class_they_are(name: str) -> None:
    """One missing label makes an array of integers one of float64; the other labels stay what they are."""
    known, labels = np.array([name, "x"]), [3, 0, 10, -3, 3]
    whole = class_codes(np.array(labels), known, unknown="zero")
    for held in (
        np.array([float("nan"), *labels]),
        np.array([None, *labels], dtype=object),
        [None, *labels],
        ["", *map(str, labels)],
        pd.Series([None, *labels], dtype="Int64"),
    ):
        np.testing.assert_array_equal(class_codes(held, known, unknown="zero")[1:], whole)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
@pytest.mark.parametrize("odd", [[], [0], [32_767, 32_768], [99_999]])
def test_codes_of_many_integers_are_those_of_each_by_itself(dtype, odd) -> None:
    """Labels are compared in blocks; a label that is not declared is found in any of them."""
    labels = np.resize([0, 1, 1], 100_000).astype(dtype)
    labels[odd] = 77
    expected = labels.astype(np.float64)
    expected[odd] = np.nan
    assert np.array_equal(class_codes(labels, np.array([0, 1]), unknown="zero"), expected, equal_nan=True)
    if odd:
        with pytest.raises(DataError, match="not among the declared classes"):
            class_codes(labels, np.array([0, 1]), unknown="error")
    else:
        assert np.array_equal(class_codes(labels, np.array([0, 1]), unknown="error"), expected)


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.parametrize("wrap", [list, np.array, pd.Series])
def test_no_warning_says_how_many_of_the_declared_labels_occur(wrap, call) -> None:
    """scikit-learn warns where more than half of the labels differ: one row decides it."""
    classes = [f"c{k:02d}" for k in range(30)]
    half = [classes[k % 25] for k in range(50)]
    seen = []
    for labels in (half, [*half[:-1], classes[25]]):
        model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=classes, survey="none", n=50)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(model, call)(X[:50], wrap(labels))
        seen.append([str(warning.message) for warning in caught])
    assert seen[0] == seen[1]


def test_tools_that_number_the_labels_are_named_and_work_with_numbered_classes() -> None:
    words = np.where(np.array(Y) == 1, "yes", "no")
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, rounds=3, classes=["no", "yes"])
    with pytest.raises(dpsco.InvalidArgument, match=r"classes=\[0, 1"):
        cross_val_predict(model, X, words, cv=2, method="predict_proba")
    found = cross_val_predict(model.set_params(classes=[0, 1]), X, words, cv=2, method="predict_proba")
    assert found.shape == (300, 2)


@pytest.mark.parametrize("classes", [["", "yes"], [" ", "yes"], [float("nan"), 1.0], ["nan", "yes"]])
def test_a_class_that_no_row_can_have_is_refused(classes: list) -> None:
    """Such a label is a missing one: all rows of the class would be zero rows."""
    with pytest.raises(dpsco.InvalidArgument, match="classes that a row can have"):
        dpsco.PrivateLogisticRegression(delta=1e-6, classes=classes, invalid_rows="zero").fit(np.eye(2), classes)
