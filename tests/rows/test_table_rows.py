"""Rows that the compiled kernel makes of columns have the bits of those that NumPy makes, at their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco.rows.table_rows as under_test
from dpsco.errors import DataError
from dpsco.rows.cells import coded
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers import parquet
from dpsco.rows.shuffle import shuffled
from dpsco.rows.table_rows import TableRows, table_rows

COLUMNS = PublicColumns(
    ["a", "b", "whole"],
    ranges={"c": (0, 100), "d": (-3, 5), "e": (1, 1e4), "f": (-1, 2)},
    log=["e"],
    centered=["d"],
    booleans=["t"],
    categories={"k": ["u", "v", "w"], "l": ["x", "y"], "m": ["p", "q"]},
    hashed={"h": 7},
    missing=["a", "f", "l"],
    other=["k"],
)


def numbers(rng: np.random.Generator, rows: int, dtype: str) -> Any:
    """Numbers of all sizes, some of them not finite."""
    cells = rng.standard_normal(rows) * rng.choice([1e-42, 1e-3, 1.0, 60.0, 1e19, 1e38], rows)
    cells[rng.random(rows) < 0.05] = np.nan
    cells[rng.random(rows) < 0.02] = np.inf
    cells[rng.random(rows) < 0.02] = -np.inf
    with np.errstate(over="ignore"):
        return cells.astype(dtype)


def table(rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    texts = {"t": ["yes", "no", "?"], "k": ["u", "v", "w", "z"], "l": ["x", "y", "-"], "m": ["q"], "h": [*"abcdefghij"]}
    cells = {name: numbers(rng, rows, "float32" if name in "ad" else "float64") for name in "abcdef"}
    held = {name: coded(words, rng.integers(-1, len(words), rows).astype(np.int32)) for name, words in texts.items()}
    return {**cells, "whole": rng.integers(-9, 9, rows), **held}


@pytest.fixture
def kernel() -> Any:
    """The kernel, loaded."""
    assert under_test._KERNEL(under_test.COMPILED_FROM) is not None
    return under_test._KERNEL


def by_numpy(monkeypatch: pytest.MonkeyPatch, make: Any, *args: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(under_test, "_KERNEL", lambda numbers: None)
        return make(*args)


@pytest.mark.parametrize("norm", [1.0, 5.0, 1e-3])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 1000])
def test_the_kernel_and_numpy_give_the_same_bits(
    rows: int, norm: float, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = table(rows)
    found, wanted = table_rows(COLUMNS, cells, norm), by_numpy(monkeypatch, table_rows, COLUMNS, cells, norm)
    assert found.tobytes() == wanted.tobytes()
    assert np.isfinite(found).all()


def test_rows_are_the_encoded_features_over_their_norm(kernel: Any) -> None:
    cells = table(500)
    features = COLUMNS.encode(cells).astype(np.float64)
    divisor = np.maximum(np.sqrt(np.sum(features**2, axis=1)), 2.0)
    np.testing.assert_allclose(table_rows(COLUMNS, cells, 2.0), features / divisor[:, None], rtol=1e-6, atol=1e-37)


def test_each_row_goes_to_its_place_and_no_other_is_touched(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, places = table(300), np.random.default_rng(1).permutation(1000)[:300]
    wanted = table_rows(COLUMNS, cells, 1.0)
    given = COLUMNS, cells, 1.0, np.arange(300.0)
    for rows in (TableRows(*given), by_numpy(monkeypatch, TableRows, *given)):
        out, labels = np.full((1000, COLUMNS.width), 7.0, np.float32), np.full(1000, -1.0)
        for start, stop in ((130, 300), (0, 1), (1, 130)):
            rows.write(start, stop, out, labels, places[start:stop])
        assert out[places].tobytes() == wanted.tobytes()
        assert np.all(np.delete(out, places, axis=0) == 7.0)
        assert np.array_equal(labels[places], np.arange(300.0))
        assert np.all(np.delete(labels, places) == -1.0)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 50])
def test_rows_of_any_width_and_number_are_turned_and_no_memory_behind_them_is_used(width: int, kernel: Any) -> None:
    """What lies behind the cells of a column is not finite: it would show."""
    rng, names = np.random.default_rng(width), [f"x{j}" for j in range(width)]
    columns = PublicColumns(names)
    for rows in (1, 63, 64, 65, 200):
        held = np.full((width, rows + 64), np.nan, np.float32)
        held[:, :rows] = rng.standard_normal((width, rows))
        made = TableRows(columns, {name: held[j, :rows] for j, name in enumerate(names)}, 0.5)
        features = held[:, :rows].T
        longest = np.maximum(np.sqrt(np.sum(features.astype(float) ** 2, axis=1)), 0.5)
        out = np.full((rows + 1, width), 7.0, np.float32)
        made.write(0, rows, out)
        np.testing.assert_allclose(out[:rows], features / longest[:, None], rtol=1e-6)
        assert np.all(out[rows] == 7.0)


def test_rows_that_are_not_there_are_refused(kernel: Any) -> None:
    """The kernel follows addresses."""
    made, out = TableRows(COLUMNS, table(20), 1.0), np.zeros((40, COLUMNS.width), np.float32)
    for start, stop, count in ((0, 21, 21), (-1, 3, 4), (4, 2, 2), (0, 9, 8)):
        with pytest.raises(ValueError, match="rows"):
            made.write(start, stop, out, places=np.arange(count))


@pytest.mark.parametrize("odd", [np.nan, np.inf, 3e38, 0.0])
def test_one_odd_cell_changes_its_own_row_alone(odd: float, kernel: Any) -> None:
    cells = table(200)
    before = table_rows(COLUMNS, cells, 1.0)
    cells["b"][77] = odd
    after = table_rows(COLUMNS, cells, 1.0)
    assert np.delete(after, 77, axis=0).tobytes() == np.delete(before, 77, axis=0).tobytes()


def test_columns_of_different_lengths_are_refused(kernel: Any) -> None:
    cells = table(20)
    with pytest.raises(DataError, match="different numbers of rows"):
        table_rows(COLUMNS, {**cells, "k": cells["k"][:19]}, 1.0)


def write_file(path: Path, rows: int, group: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(5)
    made = {"x": rng.standard_normal(rows).astype(np.float32), "k": rng.choice(["u", "v", "other"], rows)}
    pq.write_table(pa.table({**made, "y": rng.integers(0, 2, rows)}), path, row_group_size=group)


@pytest.mark.parametrize("shuffle", [1, 100, 1000, 1001, 5000])
@pytest.mark.parametrize("group_bytes", [64 << 20, 1 << 10])
def test_rows_written_at_their_places_are_those_that_are_shuffled(
    shuffle: int, group_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", group_bytes)
    write_file(tmp_path / "rows.parquet", 2503, 700)
    columns, labels = PublicColumns(["x"], categories={"k": ["u", "v"]}), Labels("y", ("0", "1"))
    plain = FileRows(tmp_path / "rows.parquet", labels, columns)
    mixed = FileRows(tmp_path / "rows.parquet", labels, columns, shuffle=shuffle, seed=3)
    wanted, found = list(shuffled(plain, shuffle, 3)), list(mixed)
    for part in (0, 1):
        assert (
            np.concatenate([chunk[part] for chunk in found]).tobytes()
            == np.concatenate([chunk[part] for chunk in wanted]).tobytes()
        )


def test_a_block_is_filled_again_only_if_nothing_refers_to_it(tmp_path: Path) -> None:
    write_file(tmp_path / "rows.parquet", 20_000, 700)
    columns, labels = PublicColumns(["x"], categories={"k": ["u", "v"]}), Labels("y", ("0", "1"))

    def rows() -> FileRows:
        return FileRows(tmp_path / "rows.parquet", labels, columns, shuffle=500, seed=3)

    wanted = np.concatenate([features.copy() for features, _ in rows()])
    kept, addresses = [], set()
    for k, (features, _) in enumerate(rows()):
        kept.append(features[100:200].reshape(-1) if k % 3 == 0 else None)  # a view of a view, of one block in three
        addresses.add(features.__array_interface__["data"][0])
    assert 14 <= len(addresses) < 40
    for k, held in enumerate(kept):
        if held is not None:
            assert held.tobytes() == wanted[500 * k + 100 : 500 * k + 200].tobytes()


def test_a_file_that_grew_after_it_was_counted_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "rows.parquet", 900, 300)
    rows = FileRows(tmp_path / "rows.parquet", Labels("y", ("0", "1")), PublicColumns(["x"]), shuffle=256)
    for counted in (899, 901):
        monkeypatch.setattr(parquet.ParquetSource, "count", lambda self, counted=counted: counted)
        with pytest.raises(DataError, match="another number of rows"):
            list(rows)
