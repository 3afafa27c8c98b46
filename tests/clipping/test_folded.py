"""Rounds in the coordinates of a survey without mapped rows: the clip bounds ||P a||, and bits depend on rows alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.clipping.test_compiled_exact import adversarial

from dpsco.clipping import CompiledOracle, LinearOracle, MappedOracle, RowMap
from dpsco.clipping.folded import _Round, can_fold
from dpsco.clipping.leading_directions import CONDITION, leading_directions
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.estimators.permuted_rows import PermutedRows
from dpsco.problem import Logistic, Softmax, Squared
from dpsco.query import Batch, Clipped, Query
from dpsco.rows.gate import Declared, admit
from dpsco.rows.on_demand import RowsOnDemand, Source
from dpsco.rows.random_order import Positions

TYPES = ["float32", "float64"]


def whitening(p: int, *, few: int, condition: float = 20.0, constant: float = 0.5, feature_norm: float = 1.0) -> RowMap:
    """A map with ``few`` small gains and a plateau that is not quite flat."""
    rng = np.random.default_rng(p)
    directions = np.linalg.qr(rng.standard_normal((p, p)))[0]
    gains = condition * rng.uniform(0.85, 1.0, p)
    gains[:few] = np.geomspace(1.0, condition, few)
    return RowMap((directions * gains) @ directions.T, feature_norm, constant)


def factored(p: int, k: int = 5) -> LowRankMap:
    directions = np.linalg.qr(np.random.default_rng(p).standard_normal((p, k)))[0]
    return LowRankMap(np.zeros((p, 0)), 1.0, 0.5, directions, np.geomspace(1.0, 30.0, k), 12.0)


def answer(
    row_map: RowMap, query: Query, features: object, labels: np.ndarray, threads: int = 1, loss: object = Logistic()
) -> Clipped:
    oracle = CompiledOracle(loss, threads=threads)  # type: ignore[arg-type]
    assert can_fold(oracle, row_map, query)
    return MappedOracle(oracle, row_map).answer(query, Batch(1, [(features, labels)]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 7, 40, 70])
def test_no_rows_contribution_is_longer_than_the_clip_in_the_metric(width: int, dtype: str) -> None:
    rng = np.random.default_rng(width)
    maps = [whitening(width + 1, few=min(8, width + 1), condition=c) for c in (1.0, 30.0, 900.0)]
    maps += [whitening(width, few=1, constant=0.0, feature_norm=3.0), factored(width + 1, min(5, width))]
    clipped = 0
    for row_map in maps:
        p = len(row_map.matrix)
        for clip in (1.0, 1e-3, 9.0):
            for row in adversarial(dtype, width, seed=width):
                points = (rng.normal(size=p), rng.normal(size=p))
                query = Query(0, points, (5.0, -4.0), clip, 10_000)
                found = answer(row_map, query, row[None], np.array([0.0]))
                assert np.linalg.norm(found.total.astype(np.longdouble)) <= clip * (1 + 1e-10)
                clipped += found.clipped_rows
    assert clipped > 100


@pytest.mark.parametrize("size", [1e-150, 1e-160, 3e-162, 1e-170, 1e-200])
def test_the_clip_holds_where_the_square_of_a_norm_is_subnormal_and_slopes_are_huge(size: float) -> None:
    """The squared norm of 3e-162 had five bits: the contribution was longer than the clip by 5e-4."""
    rng, clip, bound = np.random.default_rng(1), 1e-100, 1e-90 / size
    directions = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    row_map = RowMap((directions * np.geomspace(1.0, 20.0, 6)) @ directions.T, 1.0, 0.0)
    query = Query(0, (np.zeros(6), np.zeros(6)), (2.0, -1.0), clip, 10_000)
    rows = rng.standard_normal((1, 6)) * size
    found = answer(row_map, query, rows, np.array([bound]), loss=Squared(bound))
    assert 0.999 * clip <= np.linalg.norm(found.total.astype(np.longdouble)) <= clip * (1 + 1e-10)
    assert found.clipped_rows == 1


def collinear(p: int, few: int = 3, steep: float = 300.0) -> tuple[RowMap, np.ndarray]:
    """A map as behind columns of levels that add up to 1, whose large gains meet no row, and rows like that."""
    rng = np.random.default_rng(p)
    directions = np.linalg.qr(rng.standard_normal((p, p)))[0]
    gains = rng.uniform(4.0, 7.0, p)
    gains[0], gains[-few:] = 1.0, steep
    rows = rng.standard_normal((400, p - few)) @ (directions[:, :-few] / gains[:-few]).T
    return RowMap((directions * gains) @ directions.T, float(np.max(np.linalg.norm(rows, axis=1))), 0.0), rows


@pytest.mark.parametrize("steep", [300.0, 1900.0])
@pytest.mark.parametrize("p", [24, 60])
def test_the_clip_holds_in_float32_where_large_gains_meet_what_rounding_leaves(p: int, steep: float) -> None:
    row_map, _ = collinear(p, steep=steep)
    squares, vectors = np.linalg.eigh(row_map.matrix.T @ row_map.matrix)
    whitened = np.random.default_rng(p).standard_normal((400, p))
    whitened[:, 0], whitened[:, -3:] = 10.0, 5.0 * np.sign(whitened[:, -3:])  # long rows, and products that cancel
    features, x = (whitened @ (vectors / np.sqrt(squares)).T).astype(np.float32), np.zeros(p)
    row_map = replace(row_map, feature_norm=float(np.max(np.linalg.norm(features, axis=1))))
    query = Query(0, (x, x), (900.0, -100.0), 5.0, 10_000)  # |c| is 400: every row is clipped
    longest = 0.0
    for row in features:
        found = answer(row_map, query, row[None], np.array([0.0]))
        assert found.clipped_rows == 1
        longest = max(longest, float(np.linalg.norm(found.total.astype(np.longdouble))))
    assert 0.9 * 5.0 < longest <= 5.0 * (1 + 1e-10)


@pytest.mark.parametrize("p", [24, 60, 200])
def test_directions_of_both_ends_are_taken_where_few_gains_are_large(p: int) -> None:
    row_map, rows = collinear(p)
    leading = row_map.leading
    assert leading is not None
    assert leading.everything is not None
    assert leading.directions.shape[1] <= 16 + p // 5
    assert np.sum(leading.gains > 100.0) == 3
    assert leading.rest < 7.1
    t = rows @ leading.directions
    bound = t**2 @ leading.gains**2 + leading.rest**2 * (np.sum(rows * rows, axis=1) - np.sum(t * t, axis=1))
    norms = np.array([np.sum(row_map.turned(row) ** 2) for row in rows])
    assert np.all(bound >= norms * (1 - 1e-9))
    assert np.mean(bound / norms) < 1.6


def test_rounds_behind_levels_that_add_up_to_one_read_float32_rows_where_they_are() -> None:
    row_map, rows = collinear(60)
    points = tuple(np.random.default_rng(1).standard_normal((2, 60)))
    query = Query(1, points, (3.0, -2.0), 8.0, 400)
    asked = _Round(CompiledOracle(Logistic()), row_map, row_map.leading, query, np.dtype(np.float32))
    assert asked.inputs(rows.astype(np.float32)) is not None
    far = Query(1, tuple(1e6 * point for point in points), (3.0, -2.0), 8.0, 400)
    asked = _Round(CompiledOracle(Logistic()), row_map, row_map.leading, far, np.dtype(np.float32))
    assert asked.inputs(rows.astype(np.float32)) is None


@pytest.mark.parametrize("row_map", [whitening(71, few=6), whitening(9, few=9), factored(71)])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 2e-3), ("float64", 1e-9)])
def test_sums_are_those_of_mapped_rows(row_map: RowMap, dtype: str, error: float) -> None:
    rng, p = np.random.default_rng(0), len(row_map.matrix)
    features = (rng.standard_normal((6000, p - 1)) * np.geomspace(0.01, 0.3, p - 1)).astype(dtype)
    labels = rng.integers(0, 2, 6000).astype(float)
    points = tuple(0.1 * rng.standard_normal(p) for _ in range(2))
    typical = float(np.sqrt(np.mean(np.sum(row_map.rows(features.astype(np.float64)) ** 2, axis=1))))
    query = Query(1, points, (3.0, -2.0), typical, 6000)
    found = answer(row_map, query, features, labels)
    wanted = MappedOracle(LinearOracle(Logistic()), row_map).answer(query, Batch(1, [(features, labels)]))
    assert abs(found.clipped_rows - wanted.clipped_rows) <= (30 if dtype == "float32" else 0)
    assert 20 < wanted.clipped_rows < 5000
    assert np.linalg.norm(found.total - wanted.total) <= error * np.linalg.norm(wanted.total)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_read_in_place_give_the_bits_of_gathered_rows_in_any_threads(dtype: str) -> None:
    rng, row_map = np.random.default_rng(1), whitening(31, few=4)
    features, labels = (rng.standard_normal((9000, 30)) / 5).astype(dtype), rng.integers(0, 2, 9000).astype(float)
    order = rng.permutation(9000)
    query = Query(1, tuple(0.1 * rng.standard_normal((2, 31))), (3.0, -2.0), 9.0, 9000, grid=2.0**-14)
    gathered = np.ascontiguousarray(features[order])
    source = RowsOnDemand(
        lambda first, last: features[order[first:last]], features.shape, dtype, Source(features, order, 1.0)
    )
    totals = [answer(row_map, query, rows, labels, threads).total for rows in (gathered, source) for threads in (1, 2)]
    for total in totals[1:]:
        assert np.array_equal(totals[0], total)


def test_rows_of_an_array_of_objects_are_divided_by_the_kernel_too() -> None:
    """Without a grid: not a bit of a sum depends on the type that one odd cell gives to an array."""
    rng, row_map = np.random.default_rng(1), whitening(8, few=4)
    features, labels = rng.standard_normal((900, 7)), rng.integers(0, 2, 900).astype(float)
    query = Query(1, tuple(0.1 * rng.standard_normal((2, 8))), (3.0, -2.0), 9.0, 900)

    def total(array: object) -> np.ndarray:
        stream = PermutedRows(array, labels, Positions(900), 2.0)
        return sum(answer(row_map, query, rows, part).total for rows, part in stream._chunks(0, 900))

    gated = admit(features.astype(object), Declared(7))
    assert total(features).tobytes() == total(gated).tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_an_odd_row_changes_its_own_contribution_only(dtype: str) -> None:
    rng, row_map = np.random.default_rng(2), whitening(31, few=4)
    features, labels = (rng.standard_normal((300, 30)) / 5).astype(dtype), rng.integers(0, 2, 300).astype(float)
    query = Query(1, tuple(0.1 * rng.standard_normal((2, 31))), (3.0, -2.0), 9.0, 300, grid=2.0**-14)
    labels[100] = np.nan
    without = answer(row_map, query, features, labels)
    assert without.zeroed_rows == 1
    for odd in (np.nan, np.inf, -np.inf):
        changed = features.copy()
        changed[100, 3], fine = odd, labels.copy()
        fine[100] = 1.0
        found = answer(row_map, query, changed, fine)
        assert np.array_equal(found.total, without.total)
        assert found.zeroed_rows == 1
    for odd in (1e30, 1e-42, 0.0):
        changed = features.copy()
        changed[100], fine = odd, labels.copy()
        fine[100] = 1.0
        found = answer(row_map, query, changed, fine)
        step = np.linalg.norm(found.total - without.total)
        assert 0 < step <= 9.0 * (1 + 2.0**-10) + np.sqrt(31) * 2.0**-14
        assert found.zeroed_rows == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_is_cut_by_the_same_bits_alone_and_in_any_company(dtype: str) -> None:
    """Row i is the only one with a value in column i, and the map is diagonal: entry i of the sum is its own.

    Rows take the first bound, few directions or all of them, in groups that depend on the rows beside them.
    """
    rng, p = np.random.default_rng(7), 64
    row_map = RowMap(np.diag(np.append(np.geomspace(1.0, 20.0, 8), rng.uniform(19.0, 20.0, p - 8))), 1.0, 0.0)
    features = np.diag(rng.uniform(0.2, 1.0, p)).astype(dtype)
    labels, order = rng.integers(0, 2, p).astype(float), rng.permutation(p)
    query = Query(1, tuple(rng.standard_normal((2, p))), (3.0, -2.0), 6.0, p)
    together = answer(row_map, query, features, labels)
    assert 10 < together.clipped_rows < 50
    assert np.array_equal(together.total, answer(row_map, query, features[order], labels[order]).total)
    for i in range(p):
        alone = answer(row_map, query, features[i : i + 1], labels[i : i + 1])
        assert alone.total[i] == together.total[i] != 0.0


def test_the_first_direction_bounds_the_norm_and_is_the_one_of_least_gain() -> None:
    rng = np.random.default_rng(8)
    for row_map in (whitening(40, few=6), whitening(9, few=9), factored(30)):
        leading, p = row_map.leading, len(row_map.matrix)
        assert leading is not None
        vector, gain = leading.first
        a = rng.standard_normal((300, p))
        t = a @ vector
        bound = leading.norm**2 * (np.sum(a * a, axis=1) - t * t) + gain**2 * t * t
        norms = np.array([np.sum(row_map.turned(row) ** 2) for row in a])
        assert np.all(bound >= norms * (1 - 1e-12))
        assert np.isclose(gain, leading.least)
    none = LowRankMap(np.zeros((5, 0)), 1.0, 0.0, np.zeros((5, 0)), np.zeros(0), 3.0).leading
    assert none is not None
    assert not none.first[0].any()


@pytest.mark.parametrize("p", [3, 20, 90])
def test_few_directions_bound_the_norm_and_all_of_them_give_it(p: int) -> None:
    rng = np.random.default_rng(p)
    for matrix in (rng.standard_normal((p, p)), whitening(p, few=2).matrix, np.eye(p)):
        found, a = leading_directions(*np.linalg.eigh(matrix.T @ matrix)), rng.standard_normal((500, p))
        t = a @ found.directions
        bound = t**2 @ found.gains**2 + found.rest**2 * (np.sum(a * a, axis=1) - np.sum(t * t, axis=1))
        norms = np.sum((a @ matrix.T) ** 2, axis=1)
        assert np.all(bound >= norms * (1 - 1e-9))
        if found.everything is not None:
            directions, gains = found.everything
            assert np.allclose((a @ directions) ** 2 @ gains**2, norms, rtol=1e-9)
            assert np.mean(bound / norms) < 2.0
        else:
            assert np.allclose(bound, norms, rtol=1e-6)


def test_what_is_not_proven_takes_mapped_rows() -> None:
    query = Query(0, (np.zeros(9),), (1.0,), 1.0, 100)
    fits, logistic = whitening(9, few=3), CompiledOracle(Logistic())
    assert can_fold(logistic, fits, query)
    assert not can_fold(logistic, whitening(9, few=3, condition=2 * CONDITION), query)
    assert not can_fold(logistic, RowMap(np.full((9, 9), np.nan), 1.0, 0.5), query)
    assert not can_fold(logistic, RowMap(np.zeros((9, 9)), 1.0, 0.5), query)
    tall = factored(1 << 21, 2)
    assert can_fold(logistic, tall, query)
    assert not can_fold(logistic, replace(tall, rest=0.99 * CONDITION, gains=np.array([1.0, 2.0])), query)
    skew = factored(9)
    assert can_fold(logistic, skew, query)
    assert not can_fold(logistic, replace(skew, directions=skew.directions * (1 + 1e-9)), query)
    assert not can_fold(LinearOracle(Logistic()), fits, query)
    assert not can_fold(CompiledOracle(Softmax(3)), fits, query)
    assert not can_fold(CompiledOracle(Logistic(), slope=lambda score, label: score - label), fits, query)
    assert not can_fold(logistic, fits, Query(0, (np.zeros(9),), (1.0,), 1.0, 100, rowwise=True))


def test_neighbouring_sums_of_squared_losses_keep_the_contract() -> None:
    rng, row_map = np.random.default_rng(5), whitening(41, few=5, condition=500.0)
    features = (rng.standard_normal((4096, 40)) / 4).astype(np.float32)
    labels = rng.uniform(-3, 3, 4096)
    query = Query(1, tuple(rng.standard_normal((2, 41))), (6.0, -5.0), 2.0, 4096, grid=2.0**-20)
    total = answer(row_map, query, features, labels, loss=Squared(5.0)).total
    for k in (0, 63, 64, 4095):
        other = labels.copy()
        other[k] = np.nan
        apart = np.linalg.norm(total - answer(row_map, query, features, other, loss=Squared(5.0)).total)
        assert apart <= 2.0 * (1 + 2.0**-10) + np.sqrt(41) * 2.0**-20
