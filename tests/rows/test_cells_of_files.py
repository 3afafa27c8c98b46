"""One odd cell of a file, read here or by a worker of a cluster: every other row keeps its bits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.rows.combinations import EXHAUSTIVE, PLACES, Tally, in_share
from tests.rows.containers_under_test import ROWS, Unmakeable

from dpsco import DataError

NAMES = ("number", "ranged", "level", "hashed", "who", "y")
TEXT_CELLS: dict[str, bytes] = {
    "text": b"x",
    "nothing": b"",
    "nan": b"nan",
    "inf": b"-inf",
    "too large": b"1e999",
    "10**400": str(10**400).encode(),
    "complex": b"1+2j",
    "a comma": b'"1,5"',
    "a line break": b'"a\nb"',
    "not UTF-8": b"\xff\xfe",
    "blanks": b"  ",
    "another alphabet": "١".encode(),
    "a zero byte": b"a\0b",
    "another label": b"7",
}
ARROW_CELLS: dict[str, Any] = {
    "null": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "text": "x",
    "empty text": "",
    "10**400": str(10**400),
    "not UTF-8": b"\xff\xfe",
    "another label": "7",
}


def file_columns() -> Any:
    from dpsco.rows.public_columns import PublicColumns

    return PublicColumns(["number"], ranges={"ranged": (0, 9)}, categories={"level": ["0", "1"]}, hashed={"hashed": 4})


def file_cells() -> list[list[Any]]:
    return [[k % 5, k % 9, k % 2, f"h{k % 3}", k // 2, k % 2] for k in range(ROWS)]


def write_csv(path: Any, place: int, column: int, odd: bytes | None) -> None:
    cells = [[str(cell).encode() for cell in row] for row in file_cells()]
    if odd is not None:
        cells[place][column] = odd
    path.write_bytes(",".join(NAMES).encode() + b"\n" + b"\n".join(b",".join(row) for row in cells) + b"\n")


def write_arrow(path: Any, place: int, column: int, odd: Any) -> None:
    """Each column in the type that holds its cells; text with an odd cell that is no UTF-8 as such bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = []
    for k in range(len(NAMES)):
        cells: list[Any] = [row[k] for row in file_cells()]
        if k == column and odd is not Unmakeable:
            cells[place] = odd
        if k == column and isinstance(odd, float) and k != 3:
            arrays.append(pa.array(cells, pa.float64()))
        elif k == column and isinstance(odd, (str, bytes)):
            raw = [c if isinstance(c, bytes) or c is None else str(c).encode() for c in cells]
            binary = pa.array(raw, pa.binary())
            arrays.append(pa.Array.from_buffers(pa.string(), len(binary), binary.buffers()))
        elif isinstance(cells[1], str):
            arrays.append(pa.array([c if isinstance(c, str) else None for c in cells], pa.string()))
        else:
            arrays.append(pa.array(cells))
    table = pa.table(dict(zip(NAMES, arrays, strict=True)))
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)


def file_rows(chunks: Any) -> list[bytes]:
    rows = []
    for features, labels in chunks:
        assert (features.dtype, labels.dtype) == (np.float32, np.float64)
        rows += [features[k].tobytes() + labels[k].tobytes() for k in range(len(labels))]
    return rows


def read_here(path: Any) -> list[bytes]:
    from dpsco.rows.file_stream import FileRows, Labels

    labels = Labels("y", ("0", "1"))
    return file_rows(FileRows(path, labels, file_columns(), unit="who", max_rows_per_unit=2))


def read_by_a_worker(path: Any) -> list[bytes]:
    pytest.importorskip("distributed")
    from dpsco.engines.dask.stream import ParquetRows
    from dpsco.engines.dask.tasks import load
    from dpsco.rows.file_stream import Labels

    rows = ParquetRows(path, Labels("y", ("0", "1")), file_columns())
    return [row for shard in rows.shards for row in file_rows(load(shard, rows.form, "stop", 0).chunks)]


FILES: dict[str, Any] = {
    "CSV": (".csv", write_csv, TEXT_CELLS, read_here),
    "Parquet": (".parquet", write_arrow, ARROW_CELLS, read_here),
    "Arrow": (".arrow", write_arrow, ARROW_CELLS, read_here),
    "shards": (".parquet", write_arrow, ARROW_CELLS, read_by_a_worker),
}


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("kind", FILES)
def test_one_odd_cell_of_a_file_leaves_every_other_row_as_it_is(
    kind: str, every: bool, tmp_path: Any, record_property: Any
) -> None:
    suffix, write, odd_cells, read = FILES[kind]
    path, tally = tmp_path / f"rows{suffix}", Tally()
    write(path, 0, 0, None if kind == "CSV" else Unmakeable)
    clean = read(path)
    for column, odd, place in itertools.product(range(len(NAMES)), odd_cells, PLACES):
        if NAMES[column] == "who" and odd == "another label":
            continue  # the id of another unit: ContributionCap says what is covered
        if not every and not in_share(kind, column, odd, place):
            continue

        def body(column: int = column, odd: str = odd, place: int = place) -> None:
            write(path, place, column, odd_cells[odd])
            if NAMES[column] == "who" and isinstance(odd_cells[odd], float) and read is read_here:
                with pytest.raises(DataError, match="double"):  # ids in floating point are refused by their type
                    read(path)
                return
            other = read(path)
            assert len(other) == len(clean)
            assert [k for k in range(ROWS) if other[k] != clean[k]] in ([], [place])

        tally.run(f"{odd} in {NAMES[column]} of row {place}", body)
    tally.done(record_property, 140 if every else 8)
