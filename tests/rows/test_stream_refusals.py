"""Streams: bad input is refused by name before anything is spent, and later rows that do not fit are zero rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tests.rows.numbered_rows import P, plan, rows

from dpsco import (
    DataError,
    Diagnostics,
    InvalidArgument,
    Logistic,
    Softmax,
    Squared,
    stream,
    train,
)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove"])
def test_arrays_that_are_not_finite_are_refused_up_front(
    value: float, where: str, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is spent: no release is made, the error names the argument, the remedy and no value."""
    from dpsco.release.releaser import Releaser

    monkeypatch.setattr(Releaser, "release", None)
    features, labels = rows(60)
    labels = labels.astype(float)
    (features if where == "X" else labels)[41] = value
    ids = {"ids": range(60)} if adjacency == "add-remove" else {}
    with pytest.raises(DataError, match=rf"{where} .*non_finite='zero'"):
        train(plan(adjacency=adjacency), stream(features, labels, **ids))


def test_of_a_large_table_the_first_round_is_checked_and_later_rows_that_do_not_fit_are_zero_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["dpsco.rows.stream"], "CHECKED_WHOLE", 1)
    features, labels = rows(60)
    first = plan().batch_size
    assert first < 41
    for bad, argument in ((0, "X"), (first - 1, "y")):
        changed, targets = features.copy(), labels.astype(float)
        (changed if argument == "X" else targets)[bad] = np.nan
        with pytest.raises(DataError, match=rf"{argument} .*non_finite='zero'"):
            train(plan(), stream(changed, targets))
    changed, zeroed = features.copy(), features.copy()
    changed[41, 1], zeroed[41] = np.nan, 0.0
    one = train(plan(), stream(changed, labels), key=bytes(32)).model.coef
    two = train(plan(), stream(zeroed, labels), key=bytes(32)).model.coef
    assert np.array_equal(one, two)


def test_non_finite_zero_trains_on_the_same_arrays() -> None:
    features, labels = rows(60)
    features[41, 1] = np.nan
    zeroed = features.copy()
    zeroed[41] = 0.0
    key = bytes(32)
    one = train(plan(), stream(features, labels, non_finite="zero"), key=key).model.coef
    two = train(plan(), stream(zeroed, labels), key=key).model.coef
    assert np.array_equal(one, two)


@pytest.mark.parametrize("source", ["chunks", "single rows"])
def test_rows_met_mid_stream_that_are_not_finite_count_as_zero_rows_and_are_tallied(source: str) -> None:
    features, labels = rows(60)
    labels = labels.astype(float)
    features[20, 1], features[21, 2], labels[50], labels[51] = np.nan, -np.inf, np.nan, 7.0
    pairs = zip(features, labels, strict=True)
    data = stream([(features, labels)]) if source == "chunks" else stream(pairs, items="rows")
    tally = Diagnostics()
    report = train(plan(), data, diagnostics=tally).report
    assert tally.rows == [15, 15, 15, 15]
    assert tally.zeroed_rows == [0, 2, 0, 2]
    assert report.rows_missing == 0
    assert "zeroed" not in report.to_json()
    assert repr(tally) == "Diagnostics(<not private>)"


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (Logistic(), 2.0),
        (Logistic(), -1.0),
        (Squared(label_bound=1.0), 1.5),
        (Softmax(classes=3), 3.0),
        (Softmax(classes=3), 0.5),
    ],
)
def test_labels_the_loss_cannot_take_are_refused_up_front_without_echoing_them(loss: Any, label: float) -> None:
    features, labels = rows(60)
    labels = labels.astype(float)
    labels[3] = label
    with pytest.raises(DataError, match=r"y .*expected") as caught:
        train(plan(loss=loss), stream(features, labels))
    assert str(label) not in str(caught.value)


@pytest.mark.parametrize("source", ["arrays", "chunks", "ids"])
def test_another_width_is_refused(source: str) -> None:
    features, labels = rows(60, 5)
    data = {
        "arrays": lambda: stream(features, labels),
        "chunks": lambda: stream([(features, labels)]),
        "ids": lambda: stream(features, labels, ids=range(60)),
    }[source]()
    with pytest.raises(DataError, match="dimension"):
        train(plan(adjacency="add-remove" if source == "ids" else "zero-out"), data)


@pytest.mark.parametrize(
    "make",
    [lambda: stream(np.empty((0, P)), np.empty(0)), lambda: stream([]), lambda: stream(iter([(np.empty((0, P)), [])]))],
)
def test_an_empty_stream_is_refused(make: Any) -> None:
    with pytest.raises(DataError, match="empty"):
        train(plan(), make())


@pytest.mark.parametrize(
    "make",
    [
        lambda: stream(np.zeros(60), np.zeros(60)),
        lambda: stream(np.zeros((60, P)), np.zeros(59)),
        lambda: stream(np.zeros((60, P)), np.zeros((60, 2))),
        lambda: stream(np.full((60, P), "a"), np.zeros(60)),
        lambda: stream(np.zeros((60, P)), ["a"] * 60),
        lambda: stream(np.zeros((60, P), dtype=complex), np.zeros(60)),
        lambda: stream(np.full((60, P), None), np.zeros(60)),
        lambda: stream([[1.0], [1.0, 2.0]], [0, 1]),
    ],
)
def test_data_of_another_shape_or_kind_is_refused(make: Any) -> None:
    with pytest.raises(DataError):
        train(plan(), make())


@pytest.mark.parametrize(
    "item",
    [
        np.zeros(P),
        (np.zeros(P), None),
        (np.zeros(P), "a"),
        ([None] * P, 0),
        5,
        (np.zeros(P), 2**70),
    ],
)
def test_a_malformed_item_is_a_data_error_that_echoes_nothing(item: Any) -> None:
    features, labels = rows(60)
    with pytest.raises(DataError) as caught:
        train(plan(), stream([(features[:20], labels[:20]), item]))
    assert str(2**70) not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: stream(*rows(60), non_finite="ignore"), "non_finite"),
        (lambda: train(plan(), stream(*rows(60)), start=np.zeros(2)), "start"),
        (lambda: train(plan(), stream(*rows(60)), start=np.full(P, np.nan)), "start"),
        (lambda: train(plan(), stream(*rows(60)), key=b"short"), "key"),
        (lambda: train(None, stream(*rows(60))), "plan"),
    ],
)
def test_bad_arguments_are_named(call: Any, name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        call()
