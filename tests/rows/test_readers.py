"""Every reader gives the declared rows, in order; damaged files are refused by name and without their content."""

from __future__ import annotations

import gzip
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsco
from dpsco.rows.file_stream import FileRows, Labels, open_source
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers import source

from .conftest import COLUMNS, LABELS, ROWS, expected, table, write, write_matrix

TABLES = ["csv", "tsv", "parquet", "arrow", "stream.arrow", "folder"]
MATRICES = ["npz", "npz compressed", "libsvm"]


def gathered(rows: FileRows) -> tuple[np.ndarray, np.ndarray]:
    features, labels = zip(*rows, strict=True)
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in features]
    return np.concatenate(dense), np.concatenate(labels)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_gives_its_rows_in_order(kind, tmp_path) -> None:
    path = write(tmp_path, kind)
    x, y = gathered(FileRows(path, LABELS, COLUMNS))
    wanted_x, wanted_y = expected(table())
    np.testing.assert_allclose(x, wanted_x, rtol=3e-7, atol=1e-7)
    np.testing.assert_array_equal(y, wanted_y)
    assert open_source(path).count() == ROWS


def test_without_pyarrow_a_table_says_what_to_install(tmp_path, monkeypatch) -> None:
    path = write(tmp_path, "csv")
    source.arrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    try:
        with pytest.raises(dpsco.ExtraMissing, match=r"dpsco\[files\]"):
            list(FileRows(path, LABELS, COLUMNS))
    finally:
        source.arrow.cache_clear()


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_gives_its_rows_in_order(kind, dtype, tmp_path) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((700, 9)) * (rng.random((700, 9)) < 0.5)).astype(dtype), rng.integers(0, 2, 700)
    path = write_matrix(tmp_path, kind, x, y)
    got_x, got_y = gathered(FileRows(path, Labels("y", ("0", "1")), 9, feature_norm=2.0))
    np.testing.assert_allclose(got_x, x / np.maximum(2.0, np.linalg.norm(x, axis=1))[:, None], rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(got_y, y)
    assert open_source(path).count() == 700
    bounded = gathered(FileRows(path, Labels("y", bound=4.0), 9))[1]
    np.testing.assert_allclose(bounded, y / 4.0)


def test_a_glob_and_a_folder_are_read_in_the_order_of_names(tmp_path) -> None:
    folder = write(tmp_path, "folder")
    a, b = gathered(FileRows(folder, LABELS, COLUMNS)), gathered(FileRows(f"{folder}/*.parquet", LABELS, COLUMNS))
    np.testing.assert_array_equal(a[0], b[0])
    one = gathered(FileRows(f"{folder}/part-1.parquet", LABELS, COLUMNS))
    np.testing.assert_array_equal(a[0][1_500:3_000], one[0])


# --- damage ---------------------------------------------------------------------------------------------


def outcome(path: Path, labels: Labels, columns: PublicColumns | int) -> str:
    """What reading comes to: "read", or the message of a DataError; anything else fails the test."""
    try:
        for _ in FileRows(path, labels, columns):
            pass
    except dpsco.DataError as error:
        refused = error
    else:
        return "read"
    assert path.name in str(refused)
    assert refused.__cause__ is None
    # What the library underneath said is not shown: it may quote data.
    assert refused.__suppress_context__ or refused.__context__ is None
    return str(refused)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "stream.arrow"])
def test_a_table_cut_anywhere_is_refused_or_shorter_and_never_crashes(kind, tmp_path) -> None:
    path = write(tmp_path, kind)
    whole = path.read_bytes()
    rng = np.random.default_rng(2)
    refused = 0
    for cut in [0, 1, 7, len(whole) - 1, *rng.integers(8, len(whole), 25).tolist()]:
        path.write_bytes(whole[:cut])
        refused += outcome(path, LABELS, COLUMNS) != "read"
    assert refused >= (10 if kind == "csv" else 27)


@pytest.mark.parametrize("kind", MATRICES)
def test_a_matrix_cut_anywhere_is_refused_or_shorter_and_never_crashes(kind, tmp_path) -> None:
    rng = np.random.default_rng(0)
    path = write_matrix(tmp_path, kind, rng.standard_normal((500, 4)), rng.integers(0, 2, 500))
    whole = path.read_bytes()
    refused = 0
    for cut in [0, 1, len(whole) - 1, *rng.integers(2, len(whole), 25).tolist()]:
        path.write_bytes(whole[:cut])
        refused += outcome(path, Labels("y", ("0", "1")), 4) != "read"
    assert refused >= (3 if kind == "libsvm" else 28)  # text cut inside its last number looks whole


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_flipped_bytes_never_crash_and_never_show(kind, tmp_path) -> None:
    path = write(tmp_path, kind)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(3)
    for _ in range(30):
        damaged = whole.copy()
        for place in rng.integers(0, len(whole), 3):
            damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        outcome(path, LABELS, COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "a,y\n1,0\nSECRET\n",
        "a,y\n1,0\n1,2,SECRET\n",
        'a,y\n"SECRET,0\n1,1\n',
        "a,a\n1,0\n",
        "",
        "a\xff\xfeSECRET,y\n1,1\n",
    ],
)
def test_a_garbled_csv_says_so_without_its_content(text, tmp_path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(text.encode("latin-1"))
    message = outcome(path, Labels("y", ("0", "1")), PublicColumns(["a"]))
    assert message != "read"
    assert "SECRET" not in message
    assert any(word in message for word in ("Repair", "Add one", "Check"))


def test_one_file_under_two_names_is_refused_since_its_rows_would_count_twice(tmp_path) -> None:
    for name, copy in (("link.csv", Path.symlink_to), ("hard.csv", Path.hardlink_to)):
        folder = tmp_path / f"with {name[:4]}"
        folder.mkdir()
        (folder / "a.csv").write_text("x,y\n1,0\n")
        copy(folder / name, folder / "a.csv")
        for path in (folder, folder / "*.csv"):
            with pytest.raises(dpsco.DataError, match="under two names"):
                open_source(path)
        assert open_source(folder / name).count() == 1
    (tmp_path / "b.csv").write_text("x,y\n1,0\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "b.csv").read_bytes()))
    with pytest.raises(dpsco.DataError, match="compressed copy"):
        open_source(tmp_path / "b.*")
    (tmp_path / "c.csv").write_text("x,y\n1,0\n")
    assert open_source(tmp_path / "*.csv").count() == 2


def test_a_cell_that_is_no_number_costs_its_own_row_nothing_else(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b,y\n0.5,1,1\nwhat,2,0\n,"3",1\n1e-1,nan,0\n.25,1e2,maybe\n')
    columns = PublicColumns(["a"], ranges={"b": (0, 4)})
    x, y = gathered(FileRows(path, Labels("y", ("0", "1")), columns))
    np.testing.assert_allclose(
        x, [[0.5, 0.25], [0, 0.5], [0, 0.75], [0.1, 0.5], [0.25 / 1.0307764, 1 / 1.0307764]], rtol=1e-6
    )
    np.testing.assert_array_equal(y, [1, 0, 1, 0, np.nan])


def test_headers_without_rows_and_empty_sources(tmp_path) -> None:
    (tmp_path / "empty.csv").write_text("a,y\n")
    assert list(FileRows(tmp_path / "empty.csv", Labels("y", ("0", "1")), PublicColumns(["a"]))) == []
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 1)
    plan = dpsco.Plan(problem, 10, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0))
    with pytest.raises(dpsco.DataError, match="empty"):
        dpsco.train(plan, dpsco.stream(FileRows(tmp_path / "empty.csv", Labels("y", ("0", "1")), PublicColumns(["a"]))))


def test_what_is_not_there_is_said_by_name(tmp_path) -> None:
    path = write(tmp_path, "parquet")
    shutil.copy(write(tmp_path, "csv"), tmp_path / "more.csv")
    for wrong, words in [
        (lambda: FileRows(tmp_path / "none.csv", LABELS, COLUMNS), "none.csv"),
        (lambda: FileRows(tmp_path / "*.none", LABELS, COLUMNS), "No data file"),
        (lambda: FileRows(tmp_path, LABELS, COLUMNS), "several kinds"),
        (lambda: FileRows(path, Labels("y", ("0", "1")), COLUMNS), "no column 'y'"),
        (lambda: FileRows(path, LABELS, PublicColumns(["weight"])), "no column 'weight'"),
        (lambda: FileRows(path, LABELS, PublicColumns(["bought"])), "among the features"),
        (lambda: FileRows(path, LABELS, 3), "Tables need PublicColumns"),
        (lambda: FileRows(path, LABELS, COLUMNS, unit="person"), "go together"),
        (lambda: open_source(__file__), "Cannot tell"),
    ]:
        with pytest.raises((dpsco.DataError, dpsco.InvalidArgument), match=words):
            list(wrong())


def test_unsupported_types_are_named_before_a_row_is_used(tmp_path) -> None:
    import datetime

    import pyarrow.parquet as pq

    days = [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)] * 3
    pq.write_table(pa.table({"when": days, "y": [0, 1, 0]}), tmp_path / "t.parquet")
    with pytest.raises(dpsco.DataError, match=r"'when'.*timestamp"):
        list(FileRows(tmp_path / "t.parquet", Labels("y", ("0", "1")), PublicColumns(["when"])))


def test_a_file_that_has_gone_is_not_called_damaged(tmp_path: Path) -> None:
    """A file may vanish between planning and training; what to do is another thing than for a damaged one."""
    import pyarrow.parquet as pq

    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"a": [0.1, 0.2], "y": [0, 1]}), path)
    found = open_source(tmp_path, label="y")
    path.unlink()
    with pytest.raises(dpsco.DataError, match="not there any more"):
        found.count()
    path.write_bytes(b"PAR1")
    with pytest.raises(dpsco.DataError, match="damaged"):
        open_source(tmp_path, label="y").count()


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("distinct", [3, 100_000])
def test_text_gives_the_same_rows_however_a_parquet_file_was_written(encoding, distinct, tmp_path) -> None:
    """Columns that are declared as text are read as codes, except where Arrow cannot: the same cells either way."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    texts = [None if k == 1 else f"level{k}" for k in rng.integers(0, distinct, 3000)]
    table = pa.table({"k": texts, "x": rng.standard_normal(3000), "y": rng.choice(["yes", "no"], 3000)})
    how = {} if encoding == "dictionary" else {"use_dictionary": False, "column_encoding": {"k": encoding}}
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700, dictionary_pagesize_limit=2000, **how)
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as out:
        out.write_table(table)
    columns = PublicColumns(["x"], categories={"k": ["level0", "level2", "level77"]}, other=["k"], missing=["k"])

    def rows(name: str, **options: int) -> list[bytes]:
        chunks = list(FileRows(tmp_path / name, Labels("y", ("no", "yes")), columns, **options))
        return [np.concatenate([chunk[part] for chunk in chunks]).tobytes() for part in (0, 1)]

    assert rows("rows.parquet") == rows("rows.arrow")
    assert rows("rows.parquet", shuffle=512) == rows("rows.arrow", shuffle=512)


@pytest.mark.parametrize("batches", [0, 1, 4])
def test_an_arrow_stream_that_was_cut_between_two_batches_is_refused(batches: int, tmp_path: Path) -> None:
    """Arrow takes the end of the file for the end of the stream. Each batch has zeros at its end."""
    batch, sink = pa.record_batch({"x": np.zeros(8), "y": np.array(["0"] * 8)}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        ends = [sink.tell()]
        for _ in range(4):
            out.write_batch(batch)
            ends.append(sink.tell())
    text, path = sink.getvalue().to_pybytes(), tmp_path / "rows.arrow"
    path.write_bytes(text)
    assert open_source(path).count() == 32
    path.write_bytes(text[: ends[batches] or ends[1]])
    for read in (
        lambda: open_source(path).count(),
        lambda: list(FileRows(path, Labels("y", ("0", "1")), PublicColumns({"x": (0, 1)}))),
    ):
        with pytest.raises(dpsco.DataError, match="cut short"):
            read()


def test_a_file_with_the_letters_of_a_glob_in_its_name_is_that_file(tmp_path: Path) -> None:
    for name, rows in (("people[1].csv", 3), ("people1.csv", 5)):
        (tmp_path / name).write_text("a,y\n" + "1,0\n" * rows)
    assert open_source(str(tmp_path / "people[1].csv")).count() == 3
    (tmp_path / "people[1].csv").unlink()
    assert open_source(str(tmp_path / "people[1].csv")).count() == 5
