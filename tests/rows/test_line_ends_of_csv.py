"""Rows of a CSV file end in LF, also behind a CR: no cell makes a row of its own."""

from __future__ import annotations

import csv
import gzip
import io
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpsco.rows.readers.csv as reader
from dpsco import DataError, PublicColumns
from dpsco.rows.cells import canonical_text
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.readers import csv_parse
from dpsco.rows.readers.csv_quotes import blank_of

ENDS = {"LF": "\n", "CRLF": "\r\n"}
SIZES = (100, 1000, 4 << 20)


def texts(path: Any, size: int, monkeypatch: Any, **more: Any) -> list[list[str]]:
    monkeypatch.setattr(reader, "BLOCK_BYTES", size)
    monkeypatch.setattr(csv_parse, "BLOCK_BYTES", size)
    source = reader.CsvSource([path], **more)
    found: list[list[str]] = []
    for table in source.read((), source.names):
        columns = [[[*column.values, ""][code] for code in column.codes.tolist()] for column in table.values()]
        found += [list(row) for row in zip(*columns, strict=True)]
    assert source.count() == len(found)
    return found


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("quoted", [False, True], ids=["no quotes", "other cells quoted"])
@pytest.mark.parametrize("cell", ["{}", "{0}{0}{0}x", "x{}", "x{0}y{0}z", "{}{}", '{}"', '5"{}'])
def test_a_line_end_of_another_kind_is_a_letter(
    cell: str, quoted: bool, end: str, tmp_path: Any, monkeypatch: Any
) -> None:
    """Writers quote the line end that they write, not always the others."""
    odd = cell.format("\r", "\r")
    lines = [f'{k}.5,"n, ""{k}""\r\n{k}",{k % 2}' if quoted else f"{k}.5,n{k},{k % 2}" for k in range(60)]
    wanted = [[f"{k}.5", f'n, "{k}"\r\n{k}' if quoted else f"n{k}", str(k % 2)] for k in range(60)]
    for place in (0, 7, 31, 59):
        for row, read in ((f"1.5,{odd},1", ["1.5", odd, "1"]), (f"{odd},a,1", [odd, "a", "1"])):
            path = tmp_path / "rows.csv"
            text = ENDS[end].join(["a,b,y", *lines[:place], row, *lines[place + 1 :], ""])
            path.write_bytes(text.encode())
            own = [canonical_text(each.replace("\r", "\v")) for each in read]
            for size in SIZES:
                found = texts(path, size, monkeypatch)
                assert found == [*wanted[:place], own, *wanted[place + 1 :]]


@pytest.mark.parametrize("writer", ["pandas", "csv.writer", "csv.writer, all quoted", "gzip"])
def test_files_of_writers_that_leave_a_carriage_return_unquoted(writer: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"note": [f"n{k}" for k in range(500)], "x": rng.uniform(size=500), "y": np.arange(500) % 2})
    other = frame.copy()
    other.loc[100, "note"] = "\r" * 300 + "hello"
    rows = []
    for each in (frame, other):
        path = tmp_path / ("rows.csv.gz" if writer == "gzip" else "rows.csv")
        if writer.startswith("csv.writer"):
            text, quoting = io.StringIO(), csv.QUOTE_ALL if "all" in writer else csv.QUOTE_MINIMAL
            made = csv.writer(text, lineterminator="\n", quoting=quoting)
            made.writerows([each.columns, *each.itertuples(index=False)])
            path.write_bytes(text.getvalue().encode())
        elif writer == "gzip":
            path.write_bytes(gzip.compress(each.to_csv(index=False).encode()))
        else:
            each.to_csv(path, index=False)
        columns = PublicColumns(ranges={"x": (0, 1)})
        chunks = list(FileRows(path, Labels("y", classes=("0", "1")), columns))
        rows.append(np.vstack([np.column_stack([x, y]) for x, y in chunks]))
    assert rows[0].tobytes() == rows[1].tobytes()


def reference(text: str, width: int) -> list[list[str]] | None:
    """Rows letter by letter; None where the run must stop."""
    rows, place = [], 0
    while place < len(text):
        row, line = [], place
        while True:
            cell = ""
            if text[place : place + 1] == '"':
                body, place = "", place + 1
                while True:
                    if place >= len(text):
                        return None  # never closed
                    if text[place] != '"':
                        body, place = body + text[place], place + 1
                    elif text[place : place + 2] == '""':
                        body, place = body + '"', place + 2
                    else:
                        break
                place += 1
                if "\n" in body and not text.startswith((",", "\n", "\r\n"), place) and place < len(text):
                    return None
                cell = body
            while place < len(text) and not text.startswith((",", "\n", "\r\n"), place):
                cell, place = cell + ("\v" if text[place] == "\r" else text[place]), place + 1
            row.append(cell)
            if text[place : place + 1] != ",":
                break
            place += 1
        if len(row) != width:
            if text[line:place].strip():
                return None
            row = [""] * width
        rows.append([canonical_text(cell) for cell in row])
        place += 2 if text.startswith("\r\n", place) else 1
    return rows


@pytest.mark.parametrize("end", ENDS)
def test_random_text_is_read_as_letter_by_letter(end: str, tmp_path: Any, monkeypatch: Any) -> None:
    rng, stopped = random.Random(end), 0  # noqa: S311 - text for a test
    cells = ["a", "", "7", "\r", "\n", "x\ry", "x\ny", '"p"', '"p\rq"', '"p\nq"', '"p,\r\nq"', '""', '"a""b"', "\r\r"]
    odd = ['5"', '"p"q', '"p\r"q', '5" "', '"', '"p\nq"r', '\r"p"', '"p"\r', '""""', 'a""', '""a', "\ufeff", '"p"\n']
    for _ in range(250):
        drawn = cells + (odd if rng.random() < 0.6 else [])
        lines = [",".join(rng.choices(drawn, k=2)) for _ in range(rng.randint(1, 30))]
        lines = [line if "\n" not in line or '"' in line else "a,b" for line in lines]
        text = rng.choice(["", "\ufeff"]) + ENDS[end].join(["a,b", *lines, *rng.choice([[], [""]])])
        (tmp_path / "rows.csv").write_bytes(text.encode())
        wanted = reference(text.removeprefix("\ufeff"), 2)
        for size in (64, 100, 333, 1 << 20):
            if wanted is None:
                with pytest.raises(DataError):
                    texts(tmp_path / "rows.csv", size, monkeypatch)
            else:
                assert texts(tmp_path / "rows.csv", size, monkeypatch) == wanted[1:]
        stopped += wanted is None
    assert 25 < stopped < 225


def test_where_blocks_end_decides_nothing_about_quotes_inside_of_cells(tmp_path: Any, monkeypatch: Any) -> None:
    """Arrow's own search for the end of a row makes one row more of some of these, or none, at some sizes."""
    rng, path = random.Random(0), tmp_path / "rows.csv"  # noqa: S311 - text for a test
    odd = ['"\r,\ta\r\x00\xe9\xe9"', '\x0bnan""\x1c\udcff', '"\n\r"']
    found = set()
    for _ in range(60):
        lines = [[rng.choice(["1.5", "", '"4"']), rng.choice(["Lyon", '"Ly""on"', '"a,b"']), "a"] for _ in range(22)]
        lines[20] = odd
        text = "\n".join(["x,city,y", *(",".join(cells) for cells in lines), ""])
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        for size in (97, 128, *rng.choices(range(60, 400), k=12), 4 << 20):
            found.add(len(texts(path, size, monkeypatch)))
    assert found == {22}


@pytest.mark.parametrize("first", ["1,a", "\n1,a", '"1\n",a'])
def test_a_header_that_ends_in_a_carriage_return_alone_is_refused(first: str, tmp_path: Any) -> None:
    """A first row that begins with LF would make it one of CR LF, so such a file is never read."""
    path = tmp_path / "rows.csv"
    path.write_bytes(f"a,b\r{first}\r2,b\r".encode())
    with pytest.raises(DataError, match=r"ends in CR alone|another number of cells"):
        reader.CsvSource([path]).count()


def test_without_a_header_no_row_says_how_lines_end(tmp_path: Any, monkeypatch: Any) -> None:
    path = tmp_path / "rows.csv"
    for first in ("1,a", "1,\r", "\r1,a", '1,"\r"', "1,a\rb"):
        path.write_bytes(f"{first}\n2,b\n3,c\r\n".encode())
        assert texts(path, 4 << 20, monkeypatch, names=("a", "b"))[1:] == [["2", "b"], ["3", "c"]]
    path.write_bytes(b"1,a\r2,b\r")
    with pytest.raises(DataError, match="another number of cells"):
        texts(path, 4 << 20, monkeypatch, names=("a", "b"))


@pytest.mark.parametrize("delimiter", ["\v", "\f", " ", "\t", ";"])
def test_a_line_end_in_a_cell_is_no_delimiter(delimiter: str, tmp_path: Any, monkeypatch: Any) -> None:
    assert blank_of(delimiter).isspace()
    path = tmp_path / "rows.csv"
    path.write_bytes(delimiter.join("ab").encode() + b"\n" + delimiter.join(("x\ry", "1")).encode() + b"\n")
    (row,) = texts(path, 4 << 20, monkeypatch, delimiter=delimiter)
    assert row == [f"x{blank_of(delimiter).decode()}y", "1"]


@pytest.mark.parametrize(
    "odd", ['0.5,5" pipe,"x,1', '0.5,a"b","x,1', '0.5,"a"b","x,1', '0.5,"",",1', '0.5,5"","x",",1']
)
def test_two_quotes_on_a_line_that_were_not_escaped_join_no_rows(odd: str, tmp_path: Any, monkeypatch: Any) -> None:
    """An even number of quotes on each line says nothing about where a quoted cell ends."""
    lines = [f"{k / 100},k,word{k},1" for k in range(90)]
    lines[60], lines[10] = '0.5,k,"3"" pipe",1', odd
    (tmp_path / "rows.csv").write_text("\n".join(["x,t,u,y", *lines, ""]))
    for size in SIZES[1:]:
        with pytest.raises(DataError, match="unclosed quote"):
            texts(tmp_path / "rows.csv", size, monkeypatch)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("place", [0, 50, 89])
def test_a_quote_that_is_never_closed_stops_the_run(place: int, end: str, tmp_path: Any, monkeypatch: Any) -> None:
    """No other quote is in the file: Arrow would make one cell of all rows behind it."""
    lines = [f"{k / 100},1,word{k}" for k in range(90)]
    lines[place] = '0.5,1,"x'
    for tail in ([], [""]):
        (tmp_path / "rows.csv").write_bytes(ENDS[end].join(["x,y,u", *lines, *tail]).encode())
        for size in (400, 4 << 20):
            with pytest.raises(DataError):
                texts(tmp_path / "rows.csv", size, monkeypatch)
