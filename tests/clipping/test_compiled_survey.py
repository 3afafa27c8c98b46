"""The compiled survey: the sum of the plain one within the contract, whatever type, order and neighbours are."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.clipping.test_compiled_exact import adversarial

from dpsco.clipping import CompiledSurveyOracle, SurveyOracle
from dpsco.clipping.survey import joint_bounds
from dpsco.problem import Logistic, Softmax, Squared
from dpsco.query import Batch, Moment, Query
from dpsco.rows.on_demand import RowsOnDemand, Source

TYPES = ["float32", "float64"]
CASES = [
    (Logistic(), 2, 0.5, 1.0),
    (replace(Logistic(), weights=(0.25, 1.0)), 2, 0.5, 1.0),
    (Softmax(3), 3, 0.5, 2.0),
    (Squared(2.0), 0, 0.0, 2.0),
]


def asked(loss: Any, classes: int, constant: float, slope: float, width: int, feature_norm: float = 1.0) -> Query:
    moment = Moment("full", feature_norm, constant, loss.outputs, classes, slope, gradient=0.5, health=0.1)
    size = loss.outputs * (width + (constant > 0))
    return Query(0, (np.zeros(size),), (1.0,), joint_bounds(moment)[0], 1000, grid=2.0**-20, moment=moment)


def rows_and_labels(loss: Any, n: int, width: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + width)
    features = (rng.standard_normal((n, width)) / np.sqrt(width)).astype(dtype)
    labels = rng.uniform(-2, 2, n) if isinstance(loss, Squared) else rng.integers(0, max(2, loss.outputs), n)
    return features, labels.astype(float)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("width", [1, 16, 37])
def test_the_sum_is_that_of_the_plain_survey(case: Any, dtype: str, error: float, width: int) -> None:
    query, (features, labels) = asked(*case, width, feature_norm=1.3), rows_and_labels(case[0], 5000, width, dtype)
    features[7], features[8, 0], features[9], features[10], labels[11] = 0.0, np.nan, 1e30, 1e-38, np.nan
    chunks = [(features[:4096], labels[:4096]), (features[4096:], labels[4096:])]
    plain = SurveyOracle(case[0], case[2] > 0).answer(query, Batch(0, chunks))
    found = CompiledSurveyOracle(case[0], case[2] > 0).answer(query, Batch(0, [(features, labels)]))
    assert np.linalg.norm(found.total - plain.total) <= error * np.linalg.norm(plain.total)
    assert (found.rows, found.zeroed_rows) == (plain.rows, plain.zeroed_rows)
    assert np.array_equal(found.total, CompiledSurveyOracle(case[0], case[2] > 0).answer(query, Batch(0, chunks)).total)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 7, 40])
def test_one_row_keeps_the_bound(dtype: str, width: int) -> None:
    query = replace(asked(*CASES[0], width), grid=0.0)
    longest = 0.0
    for row in adversarial(dtype, width, seed=width):
        total = CompiledSurveyOracle(Logistic(), True).answer(query, Batch(0, [(row[None], np.ones(1))])).total
        longest = max(longest, float(np.linalg.norm(total)))
    assert 0.9 * query.clip < longest <= query.clip * (1 + 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
def test_neighbouring_sums_keep_the_contract(dtype: str) -> None:
    query, (features, labels) = asked(*CASES[0], 30), rows_and_labels(Logistic(), 2000, 30, dtype)
    oracle = CompiledSurveyOracle(Logistic(), True)
    total = oracle.answer(query, Batch(0, [(features, labels)])).total
    for k in (0, 63, 64, 1999):
        other = labels.copy()
        other[k] = np.nan
        apart = np.linalg.norm(total - oracle.answer(query, Batch(0, [(features, other)])).total)
        assert apart <= query.clip * (1 + 2.0**-10) + np.sqrt(total.size) * query.grid


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_in_place_are_those_that_are_made(dtype: str) -> None:
    query, (features, labels) = asked(*CASES[0], 30), rows_and_labels(Logistic(), 9000, 30, dtype)
    features *= 0.9 / np.max(np.linalg.norm(features, axis=1))  # none is shortened, in either way
    order = np.random.default_rng(0).permutation(9000)
    source = RowsOnDemand(lambda a, b: features[order[a:b]], features.shape, dtype, Source(features, order, 1.0))
    made = RowsOnDemand(lambda a, b: features[order[a:b]], features.shape, dtype)
    oracle = CompiledSurveyOracle(Logistic(), True)
    first, second = (oracle.answer(query, Batch(0, [(rows, labels)])).total for rows in (source, made))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("case", CASES)
def test_sparse_rows_have_the_sum_of_the_plain_survey(case: Any) -> None:
    query, (features, labels) = asked(*case, 37, feature_norm=1.3), rows_and_labels(case[0], 20_000, 37, "float64")
    features[:, ::3], features[8, 1], labels[11] = 0.0, np.nan, np.nan
    sparse = csr_array(features)
    plain = SurveyOracle(case[0], case[2] > 0).answer(query, Batch(0, [(sparse, labels)]))
    found = in_time(lambda: CompiledSurveyOracle(case[0], case[2] > 0).answer(query, Batch(0, [(sparse, labels)])))
    assert np.array_equal(found.total, plain.total)
    assert (found.rows, found.zeroed_rows) == (plain.rows, plain.zeroed_rows)


def in_time(work: Any) -> Any:
    """Return the result of ``work()``; fail if its threads wait for each other."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert found
    return found[0]
