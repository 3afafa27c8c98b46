"""A source that fills one buffer again and again: each row counts once, as it was when it was handed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpsco

N, P, SIZE = 6000, 3, 500
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P)
ROWS = np.random.default_rng(0).standard_normal((N, P))
LABELS = (ROWS[:, 0] > 0).astype(float)


def one_buffer(sparse: bool, shuffled: bool = False) -> Iterator[tuple[Any, Any]]:
    rows, labels = np.empty((SIZE, P)), np.empty(SIZE)
    matrix = csr_array((np.empty(SIZE * P), np.tile(np.arange(P), SIZE), np.arange(SIZE + 1) * P), shape=(SIZE, P))
    for start in range(0, N, SIZE):
        rows[:], labels[:] = ROWS[start : start + SIZE], LABELS[start : start + SIZE]
        columns = np.arange(P) if not shuffled else np.roll(np.arange(P), start // SIZE)
        matrix.indices[:], matrix.data[:] = np.tile(columns, SIZE), rows[:, columns].ravel()
        yield (matrix, labels) if sparse else (rows, labels)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("survey", ["none", "full"])
def test_a_stream_of_one_buffer_is_the_stream_of_its_rows(survey: str, sparse: bool) -> None:
    plan = dpsco.plan(PROBLEM, n=N, budget=dpsco.Budget(1.0, 1e-6), rounds=4, survey=survey)
    key = bytes(32)
    again = dpsco.train(plan, dpsco.stream(one_buffer(sparse), sparse=sparse), key=key)
    fresh = csr_array(ROWS) if sparse else ROWS
    whole = dpsco.train(plan, dpsco.stream(((fresh, LABELS) for _ in [0]), sparse=sparse), key=key)
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)


@pytest.mark.filterwarnings("ignore:.*random_state")
@pytest.mark.parametrize("sparse", [False, True])
def test_pushed_rows_may_be_overwritten_after_the_call(sparse: bool) -> None:
    def model() -> Any:
        return dpsco.PrivateLinearRegression(epsilon=1.0, delta=1e-6, n=N, label_bound=1.0, rounds=4, random_state=0)

    reused, fresh = model(), model()
    for rows, labels in one_buffer(sparse, shuffled=True):
        reused.partial_fit(rows, labels)
        fresh.partial_fit(rows.copy(), labels.copy())
    np.testing.assert_array_equal(reused.coef_, fresh.coef_)
