"""Columns, cells, units, order and read-ahead: each row by itself, by public rules."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import dpsco
from dpsco.rows import cells as one_cell
from dpsco.rows.category_columns import Category, Hashed
from dpsco.rows.cells import canonical_text, coded
from dpsco.rows.column_kinds import Number
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.prefetch import prefetched
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.arrow_columns import arrow_numbers, arrow_text
from dpsco.rows.row_norm import unit_rows
from dpsco.rows.shuffle import shuffled

from .conftest import COLUMNS, LABELS, ROWS, table, write

CELLS = ["1", " 2.5 ", ".5", "1.", "-1e5", "3E-02", "+1", "nan", "inf", "1e999", "", "1_0", "0x10", "١", "1" * 26, "-"]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(CELLS), st.text("0123456789.eE+- x", max_size=9), st.floats().map(repr))))
def test_a_cell_means_the_same_in_python_and_in_arrow_and_whatever_is_beside_it(cells) -> None:
    together = arrow_numbers(pa.array(cells, pa.string()))
    np.testing.assert_array_equal(together, [one_cell.number(cell) for cell in cells])
    alone = [arrow_numbers(pa.array([cell], pa.string()))[0] for cell in cells]
    np.testing.assert_array_equal(together, np.array(alone, dtype=float))
    assert np.all(np.isfinite(together) | np.isnan(together))


def test_levels_meet_whatever_type_they_are_stored_in() -> None:
    column = Category("c", levels=("3", "1", "x"))
    for values in (["3", " 1", "7", "x"], ["3.0", "1.00", "", "x "]):
        assert column.places(arrow_text(pa.array(values))).tolist() == [0, 1, -1, 2]
    for array in (pa.array([3, 1, None]), pa.array([3.0, 1.0, float("nan")]), pa.array([3, 1, 9]).dictionary_encode()):
        assert column.places(arrow_text(array)).tolist() == [0, 1, -1]
    assert canonical_text(True) == "1"
    np.testing.assert_array_equal(arrow_numbers(pa.array([True, False, None])), [1, 0, np.nan])


def test_numbers_are_clamped_scaled_and_filled_with_public_constants() -> None:
    column = np.array([-5.0, 0.0, 30.0, 40.0, np.inf, np.nan])
    for number, wanted in [
        (Number("a", low=0, high=40), [0, 0, 0.75, 1, 0.5, 0.5]),
        (Number("a", low=0, high=40, centered=True), [-1, -1, 0.5, 1, 0, 0]),
        (Number("a"), [-5, 0, 30, 40, 0, 0]),
    ]:
        ((place, value),) = number.entries(column)
        assert place == 0
        np.testing.assert_array_equal(value, wanted)


def test_many_levels_make_sparse_rows_with_the_same_features(monkeypatch, tmp_path) -> None:
    wide = PublicColumns(["height"], categories={"city": ["Lyon", "Paris"]}, hashed={"code": 500})
    assert wide.sparse
    assert not COLUMNS.sparse
    path = write(tmp_path, "parquet")
    sparse = [(x.toarray(), y) for x, y in FileRows(path, LABELS, wide, shuffle=1_000)]
    monkeypatch.setattr("dpsco.rows.public_columns.SPARSE_FROM", 10**9)
    dense = list(FileRows(path, LABELS, wide, shuffle=1_000))
    for k in (0, 1):
        both = [np.concatenate([part[k] for part in rows]) for rows in (sparse, dense)]
        np.testing.assert_allclose(*both, rtol=3e-7)


def test_a_schema_survives_json_and_refuses_what_it_does_not_know() -> None:
    assert PublicColumns.from_dict(COLUMNS.to_dict()) == COLUMNS
    assert len(COLUMNS.feature_names) == COLUMNS.width == 7
    good = COLUMNS.to_dict()
    for damage in (
        {"columns": [{**good["columns"][0], "more": 1}]},
        {"columns": [{"kind": "category", "name": "a"}]},
        {"columns": [{**good["columns"][0], "kind": "magic"}]},
        {"columns": []},
        {},
        {**good, "extra": 1},
        None,
    ):
        with pytest.raises(dpsco.InvalidArgument):
            PublicColumns.from_dict(damage)
    for wrong in (
        lambda: Number("a", low=1, high=1),
        lambda: Number("a", low=1),
        lambda: Category("a", levels=("x", " x")),
        lambda: Category("a"),
        lambda: Hashed("a", buckets=0),
        lambda: PublicColumns(["a"], categories={"a": ["x"]}),
        lambda: Labels("y"),
        lambda: Labels("y", ("1", "1.0")),
        lambda: Labels("y", bound=-1.0),
    ):
        with pytest.raises(dpsco.InvalidArgument):
            wrong()


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 3), st.integers(1, 7))
def test_the_cap_counts_the_first_rows_of_each_unit_over_all_calls(ids, limit, piece) -> None:
    cap = ContributionCap(limit)
    got = [
        flag
        for k in range(0, len(ids), piece)
        for flag in cap.counted(np.array(ids[k : k + piece], dtype=int)).tolist()
    ]
    assert got == [ids[:k].count(unit) < limit for k, unit in enumerate(ids)]


def test_a_unit_column_caps_rows_of_a_file(tmp_path) -> None:
    path = write(tmp_path, "parquet")
    labels = np.concatenate([y for _, y in FileRows(path, LABELS, COLUMNS, unit="person", max_rows_per_unit=2)])
    people = table()["person"]
    counted = [people[:k].count(person) < 2 for k, person in enumerate(people)]
    np.testing.assert_array_equal(np.isfinite(labels), counted)


def test_the_order_is_mixed_within_blocks_and_does_not_depend_on_chunks_or_values() -> None:
    rows = np.arange(1_000.0)[:, None]

    def mixed(piece: int, values: np.ndarray = rows, seed: int = 0) -> np.ndarray:
        chunks = ((values[k : k + piece], np.arange(k, min(k + piece, 1_000))) for k in range(0, 1_000, piece))
        return np.concatenate([y for _, y in shuffled(chunks, 300, seed)])

    order = mixed(1_000)
    for block in range(4):
        part = order[300 * block : 300 * (block + 1)]
        assert sorted(part) == list(range(300 * block, min(300 * (block + 1), 1_000)))
        assert list(part) != sorted(part)
    np.testing.assert_array_equal(order, mixed(7))
    np.testing.assert_array_equal(order, mixed(450, -(rows**2)))
    assert not np.array_equal(order, mixed(7, seed=1))


def test_a_shuffled_file_holds_the_same_rows(tmp_path) -> None:
    path = write(tmp_path, "csv")
    plain, mixed = (
        np.concatenate([x for x, _ in FileRows(path, LABELS, COLUMNS, shuffle=block)]) for block in (0, ROWS)
    )
    assert not np.array_equal(plain, mixed)
    np.testing.assert_array_equal(np.sort(plain, axis=0), np.sort(mixed, axis=0))


def test_reading_ahead_keeps_order_hands_on_errors_and_ends() -> None:
    def source():
        yield from range(10)
        raise dpsco.DataError("broken")

    items = prefetched(source())
    assert [next(items) for _ in range(10)] == list(range(10))
    with pytest.raises(dpsco.DataError, match="broken"):
        next(items)
    endless = prefetched(iter(int, 1))
    next(endless)
    endless.close()
    deadline = time.monotonic() + 5
    while any(t.name == "dpsco-prefetch" for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(t.name == "dpsco-prefetch" for t in threading.enumerate())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_come_into_the_unit_ball_each_by_itself(order, dtype) -> None:
    rng = np.random.default_rng(0)
    rows = np.array(rng.standard_normal((300, 7)) * rng.uniform(0, 10, (300, 1)), dtype=dtype, order=order)
    rows[3], rows[4, 2] = 0.0, np.nan
    scaled = unit_rows(rows, 2.0)
    with np.errstate(invalid="ignore"):
        wanted = rows / np.maximum(2.0, np.linalg.norm(rows.astype(float), axis=1))[:, None]
    np.testing.assert_allclose(scaled, wanted, rtol=4 * np.finfo(dtype).eps * 7)
    assert scaled.flags.c_contiguous
    assert scaled.dtype == dtype
    from scipy.sparse import csr_matrix

    np.testing.assert_allclose(unit_rows(csr_matrix(rows), 2.0).toarray(), scaled, rtol=1e-5, atol=1e-12)


def test_labels_are_codes_of_declared_classes_or_clamped_numbers() -> None:
    labels = Labels("y", ("low", "high"))
    np.testing.assert_array_equal(
        labels.encode(coded(["high", "low", "odd"], np.array([0, 1, 2, -1]))), [1, 0, np.nan, np.nan]
    )
    np.testing.assert_array_equal(Labels("y", ("-1", "1")).encode(np.array([-1.0, 1.0, np.nan])), [0, 1, np.nan])
    np.testing.assert_array_equal(Labels("y", bound=2.0).encode(np.array([1.0, -9.0, np.nan])), [0.5, -1.0, np.nan])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sparse_row_is_scaled_to_the_same_bits_whatever_order_another_is_stored_in(dtype: type) -> None:
    rng = np.random.default_rng(0)
    columns = np.sort([rng.choice(200, 30, replace=False) for _ in range(500)], axis=1).astype(np.int32)
    values, ends = rng.normal(size=(500, 30)).astype(dtype), np.arange(0, 500 * 30 + 1, 30)
    turned = columns.copy()
    turned[0] = turned[0][::-1]
    rows = [csr_array((values.ravel(), c.ravel(), ends), shape=(500, 200)) for c in (columns, turned)]
    a, b = (unit_rows(matrix, 1.0).toarray()[1:] for matrix in rows)
    assert a.tobytes() == b.tobytes()
    assert a.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(a, axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "second", [[1, 2, 3, "x"], [1, 2, 3, None], np.array([1, 2, 3], dtype=object), ["1", "2", "3"]]
)
def test_no_id_changes_what_another_counts_for(second) -> None:
    cap = ContributionCap(1)
    assert cap.counted([1, 2, 3]).all()
    assert not cap.counted(second)[:3].any()


def test_rows_whose_id_has_lost_digits_or_is_missing_never_count() -> None:
    """Float64 holds several ids beyond 2^53 as one number; a column of ids becomes float64 where one is missing."""
    ids = [2.0**60, np.nan, 7.0, 8.0]
    assert ContributionCap(1).counted(ids).tolist() == [False, False, True, True]
    with pytest.raises(dpsco.DataError, match="Int64"):
        ContributionCap(1).counted(np.array(ids))
