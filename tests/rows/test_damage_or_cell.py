"""An odd cell of an Arrow file is a cell of its own row, not damage that stops the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsco import PublicColumns
from dpsco.errors import DataError
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.readers import arrow_columns
from dpsco.rows.readers.parquet import ParquetSource

DAY = 86_400_000
CLASSES = Labels("y", classes=("0", "1"))


def written(path: Any, column: Any) -> Any:
    table = pa.table({"x": column, "y": pa.array([0, 1, 0, 1])})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    return path


def read(path: Any, columns: PublicColumns) -> Any:
    return np.concatenate([x for x, _ in FileRows(path, CLASSES, columns)])[:, 0]


def test_a_day_with_a_time_of_day_is_its_day(tmp_path: Any) -> None:
    columns, found = PublicColumns(dates={"x": ("1970-01-01", "1970-01-11")}), []
    for odd in (3 * DAY, 3 * DAY + 1):
        cells = np.array([0, DAY, odd, 5 * DAY], dtype=np.int64)
        column = pa.Array.from_buffers(pa.date64(), 4, [None, pa.py_buffer(cells)])
        found.append(read(written(tmp_path / "rows.arrow", column), columns))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", [pa.decimal128(3, 0), pa.decimal256(3, 0)])
def test_a_decimal_beyond_its_precision_is_read(kind: Any, tmp_path: Any) -> None:
    columns, found = PublicColumns(ranges={"x": (0, 10)}), []
    for odd in (9, 99_999):
        cells = np.zeros((4, kind.byte_width // 8), dtype=np.int64)
        cells[:, 0] = [1, 2, odd, 4]
        column = pa.Array.from_buffers(kind, 4, [None, pa.py_buffer(cells)])
        for each in (column, column.dictionary_encode()):
            found.append(read(written(tmp_path / "rows.arrow", each), columns))
    for other in found[1:]:
        np.testing.assert_array_equal(np.delete(other, 2), np.delete(found[0], 2))
    assert found[-1][2] == found[-2][2] == 1.0


def test_what_arrow_says_while_cells_are_made_numbers_is_not_shown(tmp_path: Any, monkeypatch: Any) -> None:
    def refuses(column: Any) -> Any:
        raise pa.ArrowInvalid("secret 41.5")

    monkeypatch.setattr(arrow_columns, "arrow_numbers", refuses)
    pq.write_table(pa.table({"x": [0.5], "y": [1]}), tmp_path / "rows.parquet")
    source = ParquetSource([tmp_path / "rows.parquet"])
    for tables in (source.read(["x"], []), source.read_groups(tmp_path / "rows.parquet", [0], ["x"], [])):
        with pytest.raises(DataError) as caught:
            list(tables)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_a_target_that_is_not_finite_is_a_zero_row(odd: float, tmp_path: Any) -> None:
    pq.write_table(pa.table({"x": [0.5] * 3, "y": [1.0, odd, -9.0]}), tmp_path / "rows.parquet")
    rows = FileRows(tmp_path / "rows.parquet", Labels("y", bound=2.0), PublicColumns(ranges={"x": (0, 1)}))
    np.testing.assert_array_equal(np.concatenate([y for _, y in rows]), [0.5, np.nan, -1.0])
