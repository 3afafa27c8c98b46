"""Lines of a CSV file: one odd line costs its own row, however lines end and wherever blocks end."""

from __future__ import annotations

import csv
import io
import itertools
import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsco.rows.readers.csv as reader
from dpsco import DataError, PublicColumns
from dpsco.rows.cells import canonical_text
from dpsco.rows.file_stream import FileRows, Labels, open_source
from dpsco.rows.readers.arrow_columns import arrow_numbers
from dpsco.rows.readers.csv_quotes import OpenQuotes

ENDS = {"LF": "\n", "CRLF": "\r\n"}
CLASSES = Labels("y", classes=("0", "1"))


def read(path: Any, columns: PublicColumns) -> Any:
    chunks = list(FileRows(path, CLASSES, columns))
    return np.vstack([np.column_stack([x.toarray() if hasattr(x, "toarray") else x, y]) for x, y in chunks])


def texts(path: Any) -> list[list[str]]:
    source = open_source(path)
    found: list[list[str]] = []
    for table in source.read((), source.names):
        columns = [[[*column.values, ""][code] for code in column.codes.tolist()] for column in table.values()]
        found += [list(row) for row in zip(*columns, strict=True)]
    return found


@pytest.mark.parametrize("end", ENDS)
def test_a_line_of_blanks_far_behind_costs_its_own_row(end: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 4096)
    lines = [f"0.{k:04d},{k % 2}" for k in range(4000)]
    columns = PublicColumns(ranges={"a": (0, 1)})
    (tmp_path / "rows.csv").write_text(ENDS[end].join(["a,y", *lines, ""]), newline="")
    clean = read(tmp_path / "rows.csv", columns)
    lines[3000] = "   "
    (tmp_path / "rows.csv").write_text(ENDS[end].join(["a,y", *lines, ""]), newline="")
    odd = read(tmp_path / "rows.csv", columns)
    assert np.isnan(odd[3000, 1])
    assert np.delete(odd, 3000, 0).tobytes() == np.delete(clean, 3000, 0).tobytes()
    lines[3000] = "0.1,1,2"
    (tmp_path / "rows.csv").write_text(ENDS[end].join(["a,y", *lines, ""]), newline="")
    with pytest.raises(DataError, match="another number of cells"):
        read(tmp_path / "rows.csv", columns)


@pytest.mark.parametrize("end", ENDS)
def test_a_line_of_blanks_leaves_quoted_cells_of_other_rows_as_they_are(end: str, tmp_path: Any) -> None:
    columns = PublicColumns(ranges={"x": (0, 1)}, hashed={"note": 16})
    quoted = [f'0.5,"one {k}\n  \ntwo\r\n\r\nthree",{k % 2}' for k in range(40)]
    found = []
    for line in ("0.3,a,1", "   ", " ", ""):
        (tmp_path / "rows.csv").write_text(ENDS[end].join(["x,note,y", line, *quoted, ""]), newline="")
        found.append(read(tmp_path / "rows.csv", columns))
        assert len(found[-1]) == 41
        assert found[-1][1:].tobytes() == found[0][1:].tobytes()


def test_where_a_block_ends_decides_nothing(tmp_path: Any, monkeypatch: Any) -> None:
    """Against the rows that were written: blanks, empty lines, breaks in quotes, every kind of line end."""
    draw = random.Random(1)  # noqa: S311
    cells = ["1", "", "a b", "q,1", "x\n\n  \ny", "p\r\n\r\nq", " ", 'a"b']
    for _ in range(300):
        width, end = draw.choice([2, 3]), draw.choice(list(ENDS.values()))
        rows = [draw.choices(cells, k=width) if draw.random() < 0.7 else None for _ in range(draw.randint(0, 40))]
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            file.write(",".join("abc"[:width]) + end)
            for row in rows:
                if row is None:
                    file.write(draw.choice(["", " ", "  \t"]) + end)
                else:
                    csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL).writerow(row)
        monkeypatch.setattr(reader, "BLOCK_BYTES", draw.choice([80, 100, 173, 1 << 20]))
        wanted = [[""] * width if row is None else [canonical_text(cell) for cell in row] for row in rows]
        assert texts(tmp_path / "rows.csv") == wanted


def test_files_of_a_header_or_of_blanks(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 64)
    for text, rows in (
        ("a,y", 0),
        ("a,y\n", 0),
        ("a,y\r\n", 0),
        ("a,y\n\n", 1),
        ("a,y\n ", 1),
        ("a,y\n" + "  \n" * 100, 100),
    ):
        (tmp_path / "rows.csv").write_text(text, newline="")
        assert open_source(tmp_path / "rows.csv").count() == rows
        assert texts(tmp_path / "rows.csv") == [["", ""]] * rows


def test_a_line_that_stops_the_run_prints_none_of_its_bytes(tmp_path: Any, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    (tmp_path / "rows.csv").write_bytes(b"a,y\n1,2\n\xfe\n3,4\n")
    with pytest.raises(DataError, match="another number of cells"):
        texts(tmp_path / "rows.csv")
    assert seen == []


@pytest.mark.parametrize("cell", [b"+\xff1", b"+\xe2\x28\xa1", b"\xff5", b"5\xff", b"+", b"++5"])
def test_one_cell_that_is_not_utf8_stops_no_column_of_numbers(cell: bytes) -> None:
    for kind, binary in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        column = pa.array([b"+0.5", cell, b"+5", b"-5"], binary).view(kind)
        np.testing.assert_array_equal(arrow_numbers(column), [0.5, np.nan, 5.0, -5.0])


def in_order(text: bytes, cuts: Any) -> bool:
    """Whether no quoted cell of ``text``, cut into blocks, ends in the middle of another."""
    quotes, rows = OpenQuotes(","), b""
    try:
        for first, last in itertools.pairwise([0, *cuts, len(text)]):
            rows += quotes.rows(text[first:last])
        rows += quotes.rest()
    except OSError:
        return False
    assert len(rows) == len(text)
    return True


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_quote_that_was_not_escaped_joins_no_rows(end: str, block: int, tmp_path: Any, monkeypatch: Any) -> None:
    """It opens a cell that ends at the next quote, rows later: Arrow would read one row for all of them."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 4096)
    columns, path = PublicColumns(ranges={"a": (0, 1)}, hashed={"note": 16}), tmp_path / "rows.csv"
    lines = [f"0.5,n{k},{k % 2}" for k in range(60)]
    lines[30] = '0.5,"x y",1'
    for odd, fits in (('"oops', False), ('"', False), ('oo"ps', True), ('"oops"x', True), ('"o""ps"', True)):
        text = ENDS[end].join(["a,note,y", *lines[:20], f"0.5,{odd},0", *lines[21:], ""])
        path.write_text(text, newline="")
        if fits:
            assert len(read(path, columns)) == 60
        else:
            with pytest.raises(DataError, match="unclosed quote"):
                read(path, columns)
        assert in_order(text.encode(), range(0, len(text), block)) == fits


def test_cells_of_several_lines_that_a_writer_quoted_are_in_order_wherever_blocks_end() -> None:
    rng = random.Random(0)  # noqa: S311 - text for a test
    letters = ["a", "b", '"', "\n", "\r\n", ",", " "]
    for _ in range(300):
        out = io.StringIO(newline="")
        rows = [["".join(rng.choices(letters, k=rng.randrange(6))) for _ in range(3)] for _ in range(6)]
        csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"])).writerows(rows)
        text = out.getvalue().encode()
        assert in_order(text, sorted(rng.choices(range(len(text) + 1), k=4)))
