"""Rows in the coordinates of a survey: one row, one result, whatever the type, the piece and the neighbours are."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.clipping import CompiledOracle, LinearOracle, MappedOracle, RowMap
from dpsco.problem import Logistic
from dpsco.query import Batch, Query
from dpsco.rows.on_demand import RowsOnDemand


def the_map(p: int, feature_norm: float = 1.0, constant: float = 0.5) -> RowMap:
    rng = np.random.default_rng(1)
    return RowMap(rng.standard_normal((p, p)) * np.geomspace(0.1, 30, p), feature_norm, constant)


def exact(row_map: RowMap, features: np.ndarray) -> np.ndarray:
    a = features.astype(np.float64)
    a = a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), row_map.feature_norm)
    return np.column_stack([a, np.full(len(a), row_map.constant)]) @ row_map.matrix.T


@pytest.mark.parametrize(("dtype", "error"), [("float32", 3e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("feature_norm", [0.3, 5.0])
def test_a_row_is_shortened_and_mapped(dtype: str, error: float, feature_norm: float) -> None:
    row_map, features = the_map(7, feature_norm), np.random.default_rng(2).standard_normal((201, 6)).astype(dtype)
    b, wanted = row_map.rows(features), exact(row_map, features)
    assert b.dtype == dtype
    assert np.max(np.abs(b - wanted)) <= error * np.max(np.abs(wanted))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_rows_change_no_other_row(dtype: str) -> None:
    row_map, features = the_map(7), np.random.default_rng(3).standard_normal((257, 6)).astype(dtype)
    before = row_map.rows(features)
    for odd in (np.nan, np.inf, -np.inf, 1e30, 1e-42, 0.0, float(np.finfo("float32").max)):
        changed = features.copy()
        changed[100] = odd
        after = row_map.rows(changed)
        others = np.arange(257) != 100
        assert np.array_equal(before[others], after[others])
        assert np.all(np.isfinite(after[100])) == np.isfinite(odd)


def test_a_long_row_is_shortened_and_not_lost() -> None:
    row_map = the_map(3)
    for dtype, length in (("float32", 1e30), ("float64", 1e140)):
        b = row_map.rows(np.array([[length, 0.0]], dtype))
        assert np.allclose(b, exact(row_map, np.array([[1.0, 0.0]])), rtol=1e-5)


@pytest.mark.parametrize("feature_norm", [1e-30, 1e-140, 1e30, 1e120])
def test_extreme_feature_norms(feature_norm: float) -> None:
    row_map = the_map(3, feature_norm)
    for scale in (0.25, 1.0, 4.0):
        b = row_map.rows(np.array([[scale * feature_norm, 0.0]]))
        wanted = exact(the_map(3, 1.0), np.array([[scale, 0.0]]))
        assert np.allclose(b, wanted, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_threads_or_pieces(dtype: str) -> None:
    rng = np.random.default_rng(4)
    features, labels = rng.standard_normal((20_000, 30)).astype(dtype), rng.integers(0, 2, 20_000).astype(float)
    points = rng.standard_normal(31), rng.standard_normal(31)
    query = Query(1, points, (2.0, -1.0), 1.5, 20_000, grid=2.0**-16)
    row_map = the_map(31)
    totals = [
        MappedOracle(inner, row_map).answer(query, Batch(1, chunks)).total
        for inner in (CompiledOracle(Logistic(), threads=1), CompiledOracle(Logistic(), threads=2))
        for chunks in (
            [(features, labels)],
            [(features[:8192], labels[:8192]), (features[8192:], labels[8192:])],
            [(RowsOnDemand(lambda a, b: features[a:b], features.shape, dtype), labels)],
        )
    ]
    for total in totals[1:]:
        assert np.array_equal(totals[0], total)
    plain = MappedOracle(LinearOracle(Logistic()), row_map).answer(query, Batch(1, [(features, labels)])).total
    assert np.max(np.abs(plain - totals[0])) < (0.05 if dtype == "float32" else 1e-2)


def test_rows_on_demand_are_an_array_to_whoever_wants_one() -> None:
    array = np.arange(12.0).reshape(4, 3)
    rows = RowsOnDemand(lambda first, last: array[first:last].copy(), array.shape, array.dtype)
    assert np.array_equal(np.asarray(rows), array)
    assert np.array_equal(rows[1:3], array[1:3])
    assert rows[4:9].shape == (0, 3)


@pytest.mark.parametrize("p", [1, 6, 40])
def test_the_directions_that_a_map_was_made_of_are_those_of_its_decomposition(p: int, monkeypatch) -> None:
    rng = np.random.default_rng(p)
    gains, directions = rng.uniform(0.5, 9.0, p), np.linalg.qr(rng.standard_normal((p, p)))[0]
    matrix = (directions * gains) @ directions.T
    found = RowMap(matrix, 1.0, 0.0)._spectrum
    decompose = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda _: pytest.fail("the directions were known"))
    squares, vectors = RowMap(matrix, 1.0, 0.0, made_of=(gains, directions))._spectrum
    np.testing.assert_allclose(squares, found[0], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(vectors * found[1], axis=0)), 1.0, rtol=1e-9)
    monkeypatch.setattr(np.linalg, "eigh", decompose)
    for wrong in ((1.001 * gains, directions), (gains, 1.001 * directions), (gains * np.nan, directions)):
        again = RowMap(matrix, 1.0, 0.0, made_of=wrong)._spectrum  # what does not fit P is not believed
        np.testing.assert_array_equal(again[0], found[0])
