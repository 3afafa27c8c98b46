"""Sparse rows: the plain and the compiled oracle against dense rows, in any order and with repeated entries."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dpsco
from dpsco import Huber, LinearOracle, Logistic, MulticlassHinge, SmoothedHinge, Softmax, Squared
from dpsco.clipping import CompiledOracle
from dpsco.query import CHUNK_ROWS, SUMMATION_SLACK, Batch, Query
from dpsco.rows.csr import CsrRows

LOSSES = [
    Logistic(),
    Squared(label_bound=5.0),
    Huber(width=0.7),
    SmoothedHinge(width=0.6),
    Softmax(classes=4),
    MulticlassHinge(3, 0.6),
]
IDS = [loss.kind for loss in LOSSES]
ORACLES = {"plain": LinearOracle, "compiled": CompiledOracle}


def sparse_rows(rows: int, width: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    """A third of the entries, some rows empty."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, width)) < 0.3, rng.normal(size=(rows, width)), 0.0)
    dense[::7] = 0.0
    return sp.csr_array(dense.astype(dtype))


def query_of(loss: Any, size: int, *, points: int = 2, intercept: bool = False, **more: Any) -> Query:
    rng = np.random.default_rng(1)
    x = tuple(rng.normal(size=(size + intercept) * loss.outputs) for _ in range(points))
    return Query(3, x, (4.0, -3.0)[:points], more.pop("clip", 0.8), 10_000, **more)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_sparse_rows_answer_as_dense_rows_do(loss: Any, name: str, dtype: Any, intercept: bool) -> None:
    for rows, width, points in ((1, 1, 2), (70, 13, 2), (300, 40, 1)):
        features = sparse_rows(rows, width, dtype)
        labels = np.random.default_rng(2).integers(0, max(2, loss.outputs), rows).astype(float)
        labels[3:4] = 0.5 if loss.kind in ("logistic", "smoothed-hinge", "softmax") else np.nan
        for clip in (0.1, math.inf):
            asked = query_of(loss, width, points=points, intercept=intercept, clip=clip)
            dense = LinearOracle(loss, intercept).answer(asked, Batch(3, [(features.toarray(), labels)]))
            answer = ORACLES[name](loss, intercept).answer(asked, Batch(3, [(features, labels)]))
            # Values stay as they are; only the points are rounded to the type of the rows.
            tolerance = 1e-12 if name == "plain" or dtype is np.float64 else 1e-5
            assert np.linalg.norm(answer.total - dense.total) <= tolerance * max(1.0, rows * min(clip, 10.0))
            assert (answer.rows, answer.zeroed_rows) == (dense.rows, dense.zeroed_rows)


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("name", ORACLES)
def test_order_repetition_and_spoilt_rows(name: str, indices: Any) -> None:
    """Unsorted columns, values stored twice (adding up, cancelling, overflowing), NaN, and columns outside."""
    columns = [[3, 1, 0], [2, 2], [1, 1], [4, 0, 4], [], [1], [0, 9], [-1, 2], [2, 0, 2, 0]]
    values = [
        [1.0, -2.0, 0.5],
        [3.0, 3.0],
        [5.0, -5.0],
        [1e200, 1.0, 1e200],
        [],
        [np.nan],
        [1.0, 1.0],
        [1.0, 1.0],
        [1, 2, 3, 4],
    ]
    ends = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(indices)
    flat = np.concatenate([np.array(row) for row in columns]).astype(indices)
    features = CsrRows(np.concatenate([np.array(row, float) for row in values]), flat, ends, 5)
    dense = np.zeros((9, 5))
    for i in (0, 1, 3, 8):
        np.add.at(dense[i], columns[i], values[i])
    dense[5:8] = np.nan
    labels = np.arange(9) % 2
    for grid in (0.0, 2.0**-16):
        asked = query_of(Logistic(), 5, grid=grid)
        expected = LinearOracle(Logistic()).answer(asked, Batch(3, [(dense, labels)]))
        answer = ORACLES[name](Logistic()).answer(asked, Batch(3, [(features, labels)]))
        np.testing.assert_allclose(answer.total, expected.total, rtol=0, atol=1e-12 if grid == 0.0 else 9 * grid)
        assert (answer.zeroed_rows, answer.clipped_rows) == (4, expected.clipped_rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ORACLES)
def test_a_repeated_column_is_clipped_by_the_norm_of_its_sum(name: str, dtype: Any) -> None:
    """Stored as k equal parts, the parts have a norm sqrt(k) too small; the contribution is still within the clip."""
    for parts in (1, 2, 9, 100):
        features = CsrRows(np.ones(parts, dtype), np.full(parts, 2, np.int32), np.array([0, parts], np.int32), 4)
        asked = Query(0, (np.zeros(4),), (1e6,), 0.7, 10_000)
        total = ORACLES[name](Logistic()).answer(asked, Batch(0, [(features, np.zeros(1))])).total
        assert abs(Fraction(float(total[2]))) <= Fraction(0.7)
        assert total[2] == pytest.approx(0.7)


def test_bits_depend_neither_on_threads_nor_on_chunks() -> None:
    """Few or many stored values for the width, with a grid and without."""
    size = 2 * CHUNK_ROWS + 100
    for width in (10, 300_000):
        rng = np.random.default_rng(3)
        columns = np.sort(rng.integers(0, width, (size, 3)), axis=1).astype(np.int32)
        features = CsrRows(rng.normal(size=3 * size), columns.ravel(), np.arange(0, 3 * size + 1, 3), width)
        labels = rng.integers(0, 2, size)
        for grid in (0.0, 2.0**-20):
            asked = query_of(Logistic(), width, grid=grid)
            answers = set()
            for threads, edges in (
                (1, [0, size]),
                (2, [0, CHUNK_ROWS, size]),
                (5, [0, CHUNK_ROWS, 2 * CHUNK_ROWS, size]),
            ):
                chunks: Any = [(features[a:b], labels[a:b]) for a, b in pairwise(edges)]
                answers.add(CompiledOracle(Logistic(), threads=threads).answer(asked, Batch(3, chunks)).total.tobytes())
            assert len(answers) == 1
            plain = LinearOracle(Logistic()).answer(asked, Batch(3, [(features, labels)])).total
            np.testing.assert_allclose(np.frombuffer(answers.pop()), plain, rtol=0, atol=1e-11 + 4 * grid)


def test_products_far_below_the_grid_are_summed_and_not_lost() -> None:
    """Each of 8192 equal contributions is a 64th of a step of the grid; their sum is 128 steps, to one."""
    size, grid = 2 * CHUNK_ROWS, 2.0**-10
    columns, ends = np.zeros(size, np.int32), np.arange(size + 1, dtype=np.int32)
    features = CsrRows(np.full(size, grid / 64), columns, ends, 3)
    asked = Query(0, (np.zeros(3),), (2.0,), 1.0, size, grid=grid)  # slope 1/2 - 0 at score 0, times 2
    total = CompiledOracle(Logistic()).answer(asked, Batch(0, [(features, np.zeros(size))])).total
    np.testing.assert_array_equal(total, [128 * grid, 0.0, 0.0])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_is_bit_for_bit_the_sum_of_what_each_row_adds_alone(dtype: Any, intercept: bool) -> None:
    """Values that are odd multiples of the grid, times a slope of 1/2, lie exactly between two points of the grid.

    Rounded as they are, they would go up or down by the parity of the sum they meet.
    """
    from dpsco.clipping.kernels.sparse_rows import finest

    width, size, clip = 40, 5000, 1.0
    grid, rng = finest(size, clip), np.random.default_rng(5)
    values = (2.0 * rng.integers(0, 2**20, (120, width)) + 1.0) * grid * rng.choice([1.0, 2.0, 0.5], (120, width))
    values[:40] = rng.normal(size=(40, width)) * 10.0 ** rng.integers(-12, 3, (40, 1))
    rows = sp.csr_array(np.where(rng.random((120, width)) < 0.4, values, 0.0).astype(dtype))
    points = (np.zeros(width + intercept),) if dtype is np.float32 else (rng.normal(size=width + intercept),)
    asked, labels = Query(0, points, (1.0,), clip, size, grid=grid), rng.integers(0, 2, 120).astype(float)
    oracle = CompiledOracle(Logistic(), intercept)
    alone = [oracle.answer(asked, Batch(0, [(rows[[k]], labels[[k]])])).total for k in range(120)]
    exact = np.array([float(sum(map(Fraction, column))) for column in np.transpose(alone)])
    for order in (np.arange(120), rng.permutation(120), np.arange(120)[::-1]):
        total = oracle.answer(asked, Batch(0, [(rows[order], labels[order])])).total
        assert np.array_equal(total, exact)


def test_a_matrix_whose_row_ends_fall_or_leave_the_values_is_refused() -> None:
    for ends, stored in (([0, 40, 0], 40), ([0, 20, 41], 40), ([-1, 20, 40], 40)):
        matrix = sp.csr_array((2, 3))
        matrix.data, matrix.indices = np.ones(stored), np.zeros(stored, np.int32)
        matrix.indptr = np.array(ends, np.int32)
        with pytest.raises(dpsco.DataError, match="indptr"):
            dpsco.stream(matrix, np.zeros(2))


@pytest.mark.parametrize("threads", [1, 2])
def test_dense_and_sparse_chunks_of_one_batch_are_all_counted(threads: int) -> None:
    dense, sparse = np.random.default_rng(0).normal(size=(600, 30)), sparse_rows(500, 30)
    asked, y = Query(0, (np.zeros(30),), (1.0,), math.inf, 1100), np.zeros(600)
    chunks = [(dense, y), (sparse, y[:500]), (dense, y)]
    answer = CompiledOracle(Logistic(), threads=threads).answer(asked, Batch(0, chunks))
    expected = LinearOracle(Logistic()).answer(asked, Batch(0, chunks))
    assert answer.rows == 1700
    assert np.allclose(answer.total, expected.total, rtol=1e-12, atol=1e-12)


def test_more_rows_than_the_public_number_are_summed_by_the_plain_oracle() -> None:
    """Beyond it the compiled sums might leave the range in which they are exact."""
    rows, labels = sparse_rows(CHUNK_ROWS + 70, 9), np.zeros(CHUNK_ROWS + 70)
    asked = Query(0, (np.zeros(9),), (1.0,), 1.0, CHUNK_ROWS, grid=2.0**-30)
    compiled, plain = (
        kind(Logistic()).answer(asked, Batch(0, [(rows, labels)])) for kind in (CompiledOracle, LinearOracle)
    )
    assert np.array_equal(compiled.total, plain.total)


def test_row_by_row_a_rows_bits_depend_on_it_alone() -> None:
    """Add-remove: the same row first, last and among rows whose contributions are exactly zero."""
    for loss in LOSSES:
        row = sparse_rows(2, 50, seed=5)[1:2]
        asked = query_of(loss, 50, grid=2.0**-200, rowwise=True)
        alone = LinearOracle(loss).answer(asked, Batch(3, [(row, np.ones(1))])).total
        assert alone.any()
        for rows, place in ((2, 0), (2, 1), (300, 77), (5000, 4999)):
            parts = [sp.csr_array((place, 50)), row, sp.csr_array((rows - place - 1, 50))]
            crowd = sp.csr_array(sp.vstack([part for part in parts if part.shape[0]]))
            total = CompiledOracle(loss).answer(asked, Batch(3, [(crowd, np.ones(rows))])).total
            assert total.tobytes() == alone.tobytes()


@pytest.mark.parametrize("name", ORACLES)
def test_a_changed_row_moves_the_sum_by_no_more_than_the_clip(name: str) -> None:
    features, labels = sparse_rows(500, 20), np.random.default_rng(6).integers(0, 2, 500)
    asked = query_of(Logistic(), 20, grid=2.0**-14, clip=0.5)
    before = ORACLES[name](Logistic()).answer(asked, Batch(3, [(features, labels)])).total
    for place in (1, 100, 499):
        other = features.copy()
        other.data[other.indptr[place] : other.indptr[place + 1]] = 0.0
        change = before - ORACLES[name](Logistic()).answer(asked, Batch(3, [(other, labels)])).total
        assert 0 < np.linalg.norm(change) <= 0.5 * (1 + SUMMATION_SLACK) + math.sqrt(20) * 2.0**-14


def test_the_order_of_one_row_in_coo_decides_no_other_row() -> None:
    """SciPy sorts all rows if one is not sorted, and values of one place change their order: 1e16 + 1 - 1e16."""
    values, places = np.r_[1e16, np.ones(28), -1e16, np.full(10, 0.5)], np.r_[np.zeros(30), np.arange(1, 11)]

    def rows(last: list[int]) -> np.ndarray:
        row, column = np.r_[np.repeat(np.arange(20), 40), 20, 20], np.r_[np.tile(places, 20), last].astype(int)
        matrix = sp.coo_matrix((np.r_[np.tile(values, 20), 0.1, 0.2], (row, column)), shape=(22, 11))
        return CsrRows.of(matrix).dense()

    sorted_, mixed = rows([0, 1]), rows([1, 0])
    assert np.array_equal(sorted_[:20], mixed[:20])
    assert np.array_equal(sorted_[20:, :2], [[0.1, 0.2], [0.0, 0.0]])
    assert np.array_equal(mixed[20:, :2], [[0.2, 0.1], [0.0, 0.0]])


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_fit_on_sparse_rows_is_the_fit_on_dense_rows(layout: str) -> None:
    features, labels = sparse_rows(4000, 12), np.random.default_rng(7).integers(0, 2, 4000)
    problem = dpsco.Problem(Logistic(), dpsco.L2Ball(3.0), dimension=12)
    for adjacency, ids in (("zero-out", None), ("add-remove", range(4000))):
        plan = dpsco.Plan(
            problem,
            4000,
            dpsco.Budget(1.0, 1e-6, adjacency=adjacency),
            dpsco.AcceleratedSRGD(rounds=4, beta=0.3, clip=1.0),
        )
        key = bytes(32)
        dense = dpsco.train(plan, dpsco.stream(features.toarray(), labels, ids=ids), key=key).model.coef
        sparse = dpsco.train(plan, dpsco.stream(features.asformat(layout), labels, ids=ids), key=key).model.coef
        np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-3 * np.linalg.norm(dense))
    pieces = ((features[start : start + 300], labels[start : start + 300]) for start in range(0, 4000, 300))
    plan = dpsco.Plan(problem, 4000, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=4, beta=0.3, clip=1.0))
    whole = dpsco.train(plan, dpsco.stream(features, labels), key=key).model.coef
    assert np.array_equal(dpsco.train(plan, dpsco.stream(pieces, sparse=True), key=key).model.coef, whole)


def test_sparse_values_are_checked_before_anything_is_spent() -> None:
    features = sparse_rows(100, 5)
    features.data[3] = np.nan
    plan = dpsco.Plan(
        dpsco.Problem(Logistic(), dpsco.L2Ball(3.0), dimension=5),
        100,
        dpsco.Budget(1.0, 1e-6),
        dpsco.AcceleratedSRGD(rounds=2, beta=0.3, clip=1.0),
    )
    with pytest.raises(dpsco.DataError, match="NaN"):
        dpsco.train(plan, dpsco.stream(features, np.zeros(100)))
