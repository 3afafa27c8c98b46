"""Rows whose columns are scaled one by one: the map, its kernel for sparse rows, and the survey of sparse rows."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

import dpsco
from dpsco.clipping import CompiledOracle, LinearOracle, MappedOracle, RowMap
from dpsco.clipping.diagonal_map import DiagonalMap, diagonal_map
from dpsco.clipping.low_rank_map import map_from_dict
from dpsco.clipping.scaled import can_scale
from dpsco.clipping.survey import SurveyOracle, joint_bounds
from dpsco.errors import InvalidArgument
from dpsco.methods.surveyed import moment_of
from dpsco.problem import Logistic, Softmax, Squared
from dpsco.problem.mapped_ball import MatrixBall
from dpsco.query import CHUNK_ROWS, SUMMATION_SLACK, Batch, Clipped, Query
from dpsco.rows.csr import CsrRows

TYPES = ["float32", "float64"]
INDICES = [np.int32, np.int64]
GRID = 2.0**-14


def the_map(p: int, constant: float = 0.5, feature_norm: float = 1.3) -> DiagonalMap:
    return diagonal_map(np.random.default_rng(p).permutation(np.geomspace(0.3, 40.0, p)), feature_norm, constant)


def sparse(n: int, width: int, dtype: str, seed: int = 0, index: type = np.int32, stored: float = 0.2) -> csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, width)) * (rng.random((n, width)) < stored)
    made = csr_array(dense.astype(dtype))
    return csr_array((made.data, made.indices.astype(index), made.indptr.astype(index)), shape=made.shape)


def asked(p: int, n: int, clip: float = 8.0, grid: float = GRID, seed: int = 3, **options: object) -> Query:
    rng = np.random.default_rng(seed)
    return Query(1, tuple(0.1 * rng.standard_normal((2, p))), (3.0, -2.0), clip, n, grid=grid, **options)  # type: ignore[arg-type]


def answer(row_map: RowMap, query: Query, rows: object, labels: np.ndarray, threads: int = 1) -> Clipped:
    oracle = CompiledOracle(Logistic(), threads=threads)
    assert isinstance(row_map, DiagonalMap)
    assert can_scale(oracle, row_map, query)
    return MappedOracle(oracle, row_map).answer(query, Batch(1, [(rows, labels)]))


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_the_map_is_that_of_a_diagonal_matrix(constant: float) -> None:
    rng, p, k = np.random.default_rng(0), 9, 2
    diagonal = the_map(p, constant)
    full = RowMap(np.diag(diagonal.scales), 1.3, constant)
    rows = rng.standard_normal((70, p - (constant > 0))) * (rng.random((70, p - (constant > 0))) < 0.5)
    rows[3], rows[4, 0] = 0.0, np.nan
    for mapped in (diagonal.rows(rows), diagonal.rows_one_by_one(rows), diagonal.rows(csr_array(rows)).dense()):
        held = np.isfinite(full.rows(rows)[:, 0])
        np.testing.assert_allclose(mapped[held], full.rows(rows)[held], rtol=1e-13, atol=1e-15)
        assert np.array_equal(np.isfinite(mapped).all(axis=1), held)
    x = rng.standard_normal(p * k)
    np.testing.assert_allclose(diagonal.start(x), full.start(x), rtol=1e-9)
    np.testing.assert_allclose(diagonal.parameters(x), full.parameters(x), rtol=1e-12)
    np.testing.assert_allclose(diagonal.turned(x[:p]), full.turned(x[:p]), rtol=1e-12)
    np.testing.assert_allclose(diagonal.turned_back(x[:p]), full.turned_back(x[:p]), rtol=1e-12)
    np.testing.assert_allclose(diagonal.sides, full.sides, rtol=1e-12)
    assert diagonal.norm == pytest.approx(full.norm)
    assert diagonal.diagonal
    ball, exact = diagonal.ball(1.5), MatrixBall(full.own.T, 1.5)
    for u in (x, 0.01 * x, 30 * x):
        np.testing.assert_allclose(ball.project(u), exact.project(u), rtol=1e-6, atol=1e-9)
        assert np.linalg.norm(diagonal.parameters(ball.project(u))) <= 1.5 * (1 + 1e-9)
    assert ball.radius_in(p) == pytest.approx(exact.radius_in(p))


def test_a_map_in_json_is_itself_again_and_broken_ones_are_refused() -> None:
    made = the_map(5)
    again = map_from_dict(made.to_dict())
    assert isinstance(again, DiagonalMap)
    assert again == made
    assert hash(again) == hash(made)
    assert again != the_map(5, feature_norm=2.0)
    for scales in (np.zeros(5), np.full(5, np.nan), np.full(5, -1.0), np.full(5, 1e-300), np.ones((5, 2))):
        broken = {**made.to_dict(), "scales": RowMap(np.atleast_2d(scales), 1.0, 0.0).to_dict()["matrix"]}
        with pytest.raises(InvalidArgument):
            map_from_dict(broken)
    for change in ({"feature_norm": 0.0}, {"constant": -1.0}, {"more": 1}):
        with pytest.raises(InvalidArgument):
            map_from_dict({**made.to_dict(), **change})
    with pytest.raises(InvalidArgument, match="sides"):
        _ = made.own
    assert np.array_equal(made.scales, made.scales.astype(np.float32))  # float32 kernels hold them exactly


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_sums_are_those_of_mapped_rows(constant: float, dtype: str, index: type) -> None:
    n, width = 9000, 60
    rows, labels = sparse(n, width, dtype, index=index), np.resize([0.0, 1.0, 1.0, np.nan], n)
    row_map, query = the_map(width + (constant > 0), constant), asked(width + (constant > 0), n)
    found = answer(row_map, query, rows, labels)
    for other in (row_map, RowMap(np.diag(row_map.scales), 1.3, constant)):
        wanted = MappedOracle(LinearOracle(Logistic()), other).answer(query, Batch(1, [(rows, labels)]))
        assert (found.clipped_rows, found.zeroed_rows) == (wanted.clipped_rows, wanted.zeroed_rows)
        assert 500 < wanted.clipped_rows < 6500
        rough = 1e-5 if dtype == "float32" else 1e-9  # scores of float32 rows are sums of float32
        np.testing.assert_allclose(found.total, wanted.total, rtol=rough, atol=3 * GRID + rough * np.sqrt(n))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_no_rows_contribution_is_longer_than_the_clip_in_the_metric(constant: float, dtype: str) -> None:
    """One row per round, on the finest grid that the kernel allows."""
    rng, width, clipped = np.random.default_rng(5), 40, 0
    big = 1e30 if dtype == "float32" else 1e140
    for trial in range(60):
        row_map = the_map(width + (constant > 0), constant, float(rng.choice([0.01, 1.0, 30.0])))
        clip = float(rng.choice([1e-3, 1.0, 9.0]))
        size = 2.0 ** rng.uniform(-20, 20) if trial % 3 else float(rng.choice([big, 1 / big, 1.0]))
        rows = sparse(1, width, dtype, seed=trial, stored=0.5)
        rows.data *= np.array(size, dtype=dtype)
        if trial % 4 == 1:  # columns that fall
            rows = CsrRows(rows.data[::-1].copy(), rows.indices[::-1].copy(), rows.indptr, width)
        grid = 2.0 ** (math.frexp(CHUNK_ROWS * clip)[1] - 48)
        query = asked(row_map.columns, CHUNK_ROWS, clip, grid, seed=trial)
        found = answer(row_map, query, rows, np.array([0.0]))
        square = sum((Fraction(float(value)) ** 2 for value in found.total), Fraction(0))
        assert square <= Fraction(clip + math.sqrt(width + 1) * grid) ** 2
        clipped += found.clipped_rows
    assert clipped > 20


@pytest.mark.parametrize("size", [1e-150, 1e-160, 3e-162, 1e-170, 1e-200])
def test_the_clip_holds_where_the_square_of_a_norm_is_subnormal_and_slopes_are_huge(size: float) -> None:
    """The squared norm of 3e-162 had a few bits: contributions were longer than the clip by up to 5e-4."""
    clip, bound = 1e-100, 1e-90 / size
    grid = 2.0 ** (math.frexp(CHUNK_ROWS * clip)[1] - 48)
    query = Query(0, (np.zeros(6), np.zeros(6)), (2.0, -1.0), clip, CHUNK_ROWS, grid=grid)
    oracle, row_map = CompiledOracle(Squared(bound), threads=1), the_map(6, 0.0, 1.0)
    assert can_scale(oracle, row_map, query)
    for seed in range(20):  # the error has either sign
        rows = np.random.default_rng(seed).standard_normal((1, 6)) * size
        found = MappedOracle(oracle, row_map).answer(query, Batch(0, [(csr_array(rows), np.array([bound]))]))
        square = sum((Fraction(float(value)) ** 2 for value in found.total), Fraction(0))
        assert Fraction(0.999 * clip) ** 2 <= square <= Fraction(clip + math.sqrt(7) * grid) ** 2
        assert found.clipped_rows == 1


def test_bits_depend_neither_on_threads_nor_on_chunks_nor_on_the_order_of_rows() -> None:
    n, width = 3 * CHUNK_ROWS, 70
    rows, labels, row_map = sparse(n, width, "float32"), np.resize([0.0, 1.0, 1.0], n), the_map(71)
    query = asked(71, n)
    whole = answer(row_map, query, rows, labels).total
    order = np.random.default_rng(0).permutation(n)
    assert np.array_equal(whole, answer(row_map, query, rows, labels, threads=2).total)
    assert np.array_equal(whole, answer(row_map, query, rows[order], labels[order]).total)
    pieces = [(rows[i : i + CHUNK_ROWS], labels[i : i + CHUNK_ROWS]) for i in range(0, n, CHUNK_ROWS)]
    cut = MappedOracle(CompiledOracle(Logistic(), threads=2), row_map).answer(query, Batch(1, pieces))
    assert np.array_equal(whole, cut.total)


ODD = {
    "nan": ([np.nan, 1.0], [0, 3]),
    "infinite": ([np.inf, 1.0], [0, 3]),
    "huge": ([1e30, -1e30], [0, 3]),
    "tiny": ([1e-42, 0.0], [0, 3]),
    "empty": ([], []),
    "stored zeros": ([0.0, 0.0], [2, 3]),
    "one place twice": ([0.7, 0.6], [3, 3]),
    "one place thrice, huge and opposite": ([1e30, -1e30, 0.5], [3, 3, 3]),
    "columns that fall": ([0.7, 0.6], [5, 2]),
    "a column outside": ([0.7, 0.6], [5, 400]),
    "a negative column": ([0.7, 0.6], [-1, 5]),
    "ordinary": ([0.7, 0.6], [2, 5]),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_row_changes_its_own_contribution_only(name: str, compiled: bool, index: type) -> None:
    n, width = CHUNK_ROWS, 30
    rows, labels, row_map = sparse(n, width, "float32", index=index), np.resize([0.0, 1.0, 1.0], n), the_map(31)
    query = asked(31, n, clip=1.5)
    kind = CompiledOracle if compiled else LinearOracle
    oracle = MappedOracle(kind(Logistic()), row_map)
    place, (values, columns) = 100, ODD[name]
    lo, hi = rows.indptr[place], rows.indptr[place + 1]
    data = np.concatenate([rows.data[:lo], np.array(values, dtype=np.float32), rows.data[hi:]])
    indices = np.concatenate([rows.indices[:lo], np.array(columns, dtype=index), rows.indices[hi:]]).astype(index)
    ends = rows.indptr.copy()
    ends[place + 1 :] += index(len(values) - (hi - lo))
    changed = CsrRows(data, indices, ends, width)
    gone = labels.copy()
    gone[place] = np.nan  # zero-out: the neighbour without the row
    without = oracle.answer(query, Batch(1, [(rows, gone)]))
    found = oracle.answer(query, Batch(1, [(changed, labels)]))
    step = np.linalg.norm(found.total - without.total)
    if name in ("nan", "infinite", "a column outside", "a negative column"):
        assert found.zeroed_rows == 1
        assert step == 0.0
    else:
        assert found.zeroed_rows == 0
        assert 0 < step <= 1.5 * (1 + SUMMATION_SLACK) + math.sqrt(31) * GRID
    if "twice" in name:  # the same row with its values merged
        merged = oracle.answer(query, Batch(1, [(CsrRows(data, indices, ends, width).to_scipy(), labels)]))
        assert np.array_equal(merged.total, found.total)
        data[lo : lo + 2] = np.float32(1.3), 0.0
        indices[lo : lo + 2] = 3, 7
        alone = oracle.answer(query, Batch(1, [(CsrRows(data, indices, ends, width), labels)]))
        np.testing.assert_allclose(alone.total, found.total, atol=2 * GRID)


def test_an_oracle_that_went_to_another_process_answers_to_the_same_bits() -> None:
    n, width = CHUNK_ROWS, 30
    rows, labels, query = sparse(n, width, "float32"), np.resize([0.0, 1.0, 1.0], n), asked(31, n)
    oracle = MappedOracle(CompiledOracle(Logistic()), the_map(31))
    sent = pickle.loads(pickle.dumps(oracle))  # noqa: S301
    found, wanted = (one.answer(query, Batch(1, [(rows, labels)])).total for one in (sent, oracle))
    assert np.array_equal(found, wanted)


def test_under_add_remove_no_rows_place_matters() -> None:
    n, width = 500, 30
    rows, labels, row_map = sparse(n, width, "float64"), np.resize([0.0, 1.0, 1.0], n), the_map(31)
    query = asked(31, n, rowwise=True)
    oracle = MappedOracle(CompiledOracle(Logistic()), row_map)
    whole = oracle.answer(query, Batch(1, [(rows, labels)])).total
    keep = np.delete(np.arange(n), 17)
    without = oracle.answer(query, Batch(1, [(rows[keep], labels[keep])])).total
    alone = oracle.answer(query, Batch(1, [(rows[[17]], labels[[17]])])).total
    assert np.array_equal(whole - without, alone)
    dense = oracle.answer(query, Batch(1, [(rows.toarray(), labels)])).total
    np.testing.assert_allclose(dense, whole, atol=n * GRID)


def test_softmax_and_dense_rows_take_mapped_rows() -> None:
    n, width = CHUNK_ROWS, 30
    rows, row_map = sparse(n, width, "float64"), the_map(31)
    full = RowMap(np.diag(row_map.scales), 1.3, 0.5)
    for loss, labels, size in ((Softmax(3), np.resize([0, 1, 2], n), 93), (Logistic(), np.resize([0.0, 1.0], n), 31)):
        query = asked(size, n)
        wanted = MappedOracle(LinearOracle(loss), full).answer(query, Batch(1, [(rows, labels)])).total
        for form in (rows, rows.toarray()):
            for inner in (LinearOracle(loss), CompiledOracle(loss)):
                found = MappedOracle(inner, row_map).answer(query, Batch(1, [(form, labels)])).total
                np.testing.assert_allclose(found, wanted, atol=8 * GRID)


def test_what_is_not_proven_takes_mapped_rows() -> None:
    query, fits, oracle = asked(9, CHUNK_ROWS), the_map(9), CompiledOracle(Logistic())
    assert can_scale(oracle, fits, query)
    assert not can_scale(LinearOracle(Logistic()), fits, query)
    assert not can_scale(CompiledOracle(Softmax(3)), fits, query)
    assert not can_scale(CompiledOracle(Logistic(), slope=lambda score, label: score), fits, query)
    for other in (
        asked(9, CHUNK_ROWS, rowwise=True),
        asked(9, CHUNK_ROWS, grid=0.0),
        asked(9, CHUNK_ROWS, clip=math.inf),
        asked(9, CHUNK_ROWS, grid=2.0 ** (math.frexp(CHUNK_ROWS * 8.0)[1] - 50)),
        asked(9, CHUNK_ROWS, squares=0.5, radius=1.0),
    ):
        assert not can_scale(oracle, fits, other)
    for scales in (np.full(9, 2.0**-61), np.full(9, 2.0**61), np.append(np.ones(8), np.inf)):
        assert not can_scale(oracle, diagonal_map(scales, 1.0, 0.5), query)
    assert not can_scale(oracle, diagonal_map(np.ones(9), 1e120, 0.5), query)


# --- the survey ---------------------------------------------------------------------------------------------------

PROBLEMS = {
    "logistic": dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 30, feature_norm=0.8, intercept=True),
    "no intercept": dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 30, feature_norm=0.8),
    "softmax": dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(5.0), 30, intercept=True),
    "squared": dpsco.Problem(dpsco.Squared(label_bound=3.0), dpsco.L2Ball(5.0), 30, intercept=True),
    "weighted": dpsco.Problem(dpsco.Logistic(weights=(1.0, 0.25)), dpsco.L2Ball(5.0), 30, intercept=True),
}


def surveyed(problem: dpsco.Problem, rows: object, labels: np.ndarray, *, grid: float = 0.0, rowwise: bool = False):
    moment = moment_of(problem, "diagonal")
    clip = joint_bounds(moment)[0]
    start = (np.zeros(problem.parameters),)
    query = Query(0, start, (moment.omega,), clip, len(labels), grid=grid, rowwise=rowwise, moment=moment)
    return SurveyOracle(problem.loss, problem.intercept).answer(query, Batch(0, [(rows, labels)]))


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_survey_of_sparse_rows_is_that_of_the_same_rows_made_dense(name: str, rowwise: bool) -> None:
    problem, n = PROBLEMS[name], 6000 if not rowwise else 300
    rows, labels = sparse(n, 30, "float64", stored=0.05), np.resize([0.0, 1.0, 1.0], n)
    labels = labels.astype(np.int64) if name == "softmax" else labels
    rows.data[5], labels[9] = np.nan, 77
    grid = 2.0**-30 if rowwise else 0.0
    found = surveyed(problem, rows, labels, grid=grid, rowwise=rowwise)
    wanted = surveyed(problem, rows.toarray(), labels, grid=grid, rowwise=rowwise)
    np.testing.assert_allclose(found.total, wanted.total, rtol=1e-10, atol=1e-10 + n * grid)
    assert found.zeroed_rows == wanted.zeroed_rows == 2


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_sparse_row_moves_the_survey_by_more_than_its_bound(name: str) -> None:
    problem = PROBLEMS[name]
    clip, apart = joint_bounds(moment_of(problem, "diagonal"))
    label = np.array([0], dtype=np.int64 if name == "softmax" else np.float64)
    totals = []
    for values, columns in ODD.values():
        ends = np.array([0, len(values)])
        row = CsrRows(np.array(values), np.array(columns, dtype=np.int64), ends, 30)
        totals.append(surveyed(problem, row, label).total)
        square = sum((Fraction(float(value)) ** 2 for value in totals[-1]), Fraction(0))
        assert square <= Fraction(clip) ** 2 * (1 + Fraction(1, 10**12))
    far = max(float(np.linalg.norm(a - b)) for a in totals for b in totals)
    assert far <= apart * (1 + 1e-12)
    assert far > 0.5 * clip


def test_a_row_of_a_survey_by_id_has_the_same_bits_in_any_place() -> None:
    problem, rows = PROBLEMS["logistic"], sparse(400, 30, "float32")
    labels = np.resize([0.0, 1.0, 1.0], 400)
    whole = surveyed(problem, rows, labels, grid=2.0**-30, rowwise=True).total
    keep = np.delete(np.arange(400), 11)
    without = surveyed(problem, rows[keep], labels[keep], grid=2.0**-30, rowwise=True).total
    alone = surveyed(problem, rows[[11]], labels[[11]], grid=2.0**-30, rowwise=True).total
    assert np.array_equal(whole - without, alone)
