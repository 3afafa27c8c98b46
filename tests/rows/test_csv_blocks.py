"""CSV files in blocks that threads parse: the same cells whatever the size of a block."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from dpsco.errors import DataError, InvalidArgument
from dpsco.rows.cells import canonical_text, number
from dpsco.rows.readers import csv as reader
from dpsco.rows.readers import csv_parse
from dpsco.rows.readers.csv_blocks import WholeRows

CELLS = [
    "1",
    "-2.5",
    "+3",
    "1e-3",
    " 7 ",
    "",
    "?",
    "NA",
    "nan",
    "inf",
    "-Infinity",
    "1e400",
    "true",
    "False",
    "x",
    "1,5",
]
CELLS += ["5.", ".5", ".", "0x10", "12345678901234567890", "1_0", "two\nlines", 'say "hi"', "Lyon", "\u0663", "- 1"]
SIZES = (200, 1000, 4 << 20)


def tables(path: Path, size: int, monkeypatch, numbers=("a",), texts=("b",)) -> tuple[list[float], list[str]]:
    monkeypatch.setattr(reader, "BLOCK_BYTES", size)
    monkeypatch.setattr(csv_parse, "BLOCK_BYTES", size)
    found: tuple[list[float], list[str]] = ([], [])
    for table in reader.CsvSource([path]).read(numbers, texts):
        found[0].extend(table["a"].tolist())
        found[1].extend([*table["b"].values, ""][code] for code in table["b"].codes)
    assert reader.CsvSource([path]).count() == len(found[0])
    return found


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("odd", [0, 2, len(CELLS)])
def test_cells_are_those_of_an_independent_reader(tmp_path, monkeypatch, ending, quoting, odd) -> None:
    rng = np.random.default_rng(odd)
    plain = ["1", "-2.5", "1e-3", "", "NA", "5.", "12345678901234567890"]
    rows = [(str(rng.choice(plain)), str(rng.choice(CELLS))) for _ in range(300)]
    for place in rng.integers(0, 300, odd):
        rows[place] = (str(rng.choice(CELLS)), rows[place][1])
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator=ending).writerows([("a", "b"), *rows])
    path = tmp_path / "rows.csv"
    path.write_bytes(text.getvalue().encode())
    wanted = [number(a) for a, _ in rows], [canonical_text(b) for _, b in rows]
    for size in SIZES:
        found = tables(path, size, monkeypatch)
        np.testing.assert_array_equal(found[0], wanted[0])
        assert found[1] == wanted[1]


@pytest.mark.parametrize("odd", ['5" pipe,x', "7,x\ufeff", "\ufeff7,x", '"7",5" pipe', "   ", "", '"8","a ""b"" c"'])
def test_odd_lines_mean_the_same_wherever_a_block_ends(tmp_path, monkeypatch, odd) -> None:
    path = tmp_path / "rows.csv"
    for place in range(0, 60, 7):
        lines = [f"{k}.5,city {k % 3}" for k in range(60)]
        lines[place] = odd
        path.write_text("\n".join(["a,b", *lines]), "utf-8")
        small, large = (tables(path, size, monkeypatch) for size in (150, 4 << 20))
        np.testing.assert_array_equal(small[0], large[0])
        assert small[1] == large[1]
        others = [k for k in range(60) if k != place]
        np.testing.assert_array_equal(np.array(small[0])[others], np.array(others) + 0.5)


def test_blocks_and_the_rest_are_the_file() -> None:
    rows = b"".join(b'%d,"a ""b""\n c",%d\n' % (k, k) for k in range(500))
    odd = rows + b'1,5" pipe,2\n' + rows
    for text in (rows, odd, rows[:-1], b"", b"a", b'"', b"\n"):
        for size in (64, 100, 5000):
            blocks = WholeRows(io.BytesIO(text), ",", size)
            whole = [bytes(block) for block in blocks]
            left = blocks._raw.read()
            assert (
                b"".join([*whole[:1], *(block[1:] for block in whole[1:])])
                + (blocks.rest[1:] if whole else blocks.rest)
                + left
                == text
            )
            assert all(block.endswith(b"\n") and block.count(b'"') % 2 == 0 for block in whole)
            assert not (left and text != odd)


def test_a_row_longer_than_a_block_stops_the_run(tmp_path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    for row in (f"1,{'x' * 5000}", f'1,"{"x" * 2500}\n{"x" * 2500}"'):
        path.write_text("a,b\n" + "1,x\n" * 20 + f"{row}\n" + "1,x\n" * 20)
        with pytest.raises(DataError, match="longer than"):
            tables(path, 1000, monkeypatch)


@pytest.mark.parametrize("first", ['0,5" pipe', "0,plain"])
def test_a_line_end_of_two_letters_inside_a_cell_stays_whole(tmp_path, monkeypatch, first) -> None:
    path = tmp_path / "rows.csv"
    for width in range(1, 12):
        rows = [f'{k},"{"x" * width}\r\ny"' for k in range(1, 80)]
        path.write_bytes("\r\n".join(["a,b", first, *rows, ""]).encode())
        found = tables(path, 100, monkeypatch)
        assert found[0] == list(range(80))
        assert found[1][1:] == ["x" * width + "\r\ny"] * 79


def values(source: reader.CsvSource) -> list[float]:
    return [value for table in source.read(("x",), ()) for value in np.asarray(table["x"]).tolist()]


def test_a_file_that_is_one_blank_line_is_a_row(tmp_path: Path) -> None:
    """With ``names`` its line is no header; rows of later files keep their places."""
    for k, text in enumerate(("1,a\n", "\n", "3,c\n")):
        (tmp_path / f"{k}.csv").write_text(text)
    source = reader.CsvSource(sorted(tmp_path.iterdir()), names=["x", "t"])
    assert source.count() == 3
    np.testing.assert_array_equal(values(source), [1.0, np.nan, 3.0])


@pytest.mark.parametrize("cell", ["z", 'z"z"z'])
def test_one_mark_of_byte_order_is_left_out_whatever_quotes_a_file_has(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf\xef\xbb\xbf10,a\n" + f"2,{cell}\n".encode())
    np.testing.assert_array_equal(values(reader.CsvSource([path], names=["x", "t"])), [np.nan, 2.0])


def test_a_block_that_ends_between_cr_and_lf_ends_the_cell_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quote in the middle of a cell lets no block be cut where its quotes say."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"t,x,u\r\n" + b'a"b,1.5,"c\nd"\r\n' * 60)
    for size in range(60, 120):
        monkeypatch.setattr(reader, "BLOCK_BYTES", size)
        np.testing.assert_array_equal(values(reader.CsvSource([path])), np.full(60, 1.5))


@pytest.mark.parametrize("before", [5, 60, 95])
def test_a_row_longer_than_a_block_stops_the_run_whatever_stands_before_it(before: int, tmp_path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,t\n" + f"1,{'a' * before}\n" + f"2,{'b' * 150}\n" + "3,c\n" * 50)
    monkeypatch.setattr(reader, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_parse, "BLOCK_BYTES", 100)
    with pytest.raises(DataError, match="longer than"):
        values(reader.CsvSource([path]))


@pytest.mark.parametrize("first", ["c", 'c"c', '"c""c"', '"c\nc"', '"c"c"'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("length", [97, 100, 101, 130, 160, 199])
def test_whether_a_row_is_too_long_depends_on_that_row_alone(
    length: int, end: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows decide where blocks of 100 bytes end, and whether quotes are clean."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_parse, "BLOCK_BYTES", 100)
    path, fates = tmp_path / "rows.csv", []
    long = f"2,{'b' * (length - 2 - len(end))}"
    quoted = f'2,"{"b," * ((length - 4 - len(end)) // 2)}{"b" * (length % 2 != len(end) % 2)}"'
    for row in (long, quoted):
        assert len(row + end) == length
        for before in (0, 1, 30, 57, 80, 93):
            path.write_text(end.join(["x,t", f"1,{first}", f"1,{'a' * before}", row, *["3,c"] * 50, ""]), newline="")
            try:
                fates.append(f"read {values(reader.CsvSource([path]))[2]}")
            except DataError as error:
                fates.append("stopped" if "longer than" in str(error) else "damaged")
    assert set(fates) == {"stopped" if length > 100 else "read 2.0"}


def test_the_length_of_a_row_is_measured_in_one_look() -> None:
    """A cell of many lines crosses the end of a block: to count quotes anew for each line takes hours."""
    calls = []
    for lines in (10, 1000):
        text = b"1,a\n" * 900 + b'1,"' + b"\n" * lines + b'"\n' + b"2,b\n" * 2000
        called, blocks = [0], iter(WholeRows(io.BytesIO(text), ",", 4000))

        def count(frame: object, event: str, _: object, called: list[int] = called) -> None:
            called[0] += event == "c_call"

        sys.setprofile(count)
        try:
            whole = b"".join(bytes(block) for block in blocks)
        finally:
            sys.setprofile(None)
        assert whole.replace(b"\n", b"") == text.replace(b"\n", b"")
        calls.append(called[0])
    assert calls[1] < calls[0] + 100


@pytest.mark.parametrize("delimiter", ["é", "¦", "\0", "", ",,", '"', "\n"])
def test_a_delimiter_that_arrow_does_not_know_is_refused(delimiter: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,t\n1,a\n")
    with pytest.raises(InvalidArgument, match="one ASCII letter"):
        reader.CsvSource([tmp_path / "rows.csv"], delimiter=delimiter)
