"""Types that a caller declares: one odd cell in a caller's array or column is refused by type, or costs its own row."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.rows.test_one_reader import ODD_PLACE, replaced, same_but_one

import dpsco
from dpsco import DataError, stream
from dpsco.rows.cells import label_text, number
from dpsco.rows.containers import column_numbers, column_texts, table_numbers
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.file_stream import FileRows, Labels, open_source
from dpsco.rows.ids import rounds_of_ids
from dpsco.rows.layout import Layout
from dpsco.rows.public_columns import PublicColumns

X = np.random.default_rng(2).standard_normal((60, 3))
Y = np.arange(60) % 2
PEOPLE = [2**60 + k for k in range(60)]


# --- ids ------------------------------------------------------------------------------------------------


def float_ids() -> dict[str, Any]:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    series = pd.Series(replaced(PEOPLE, None))
    return {
        "pandas": series,
        "NumPy": series.to_numpy(),
        "nullable": series.astype("Float64"),
        "Arrow": pa.array(series),
        "pandas of Arrow": series.astype("float64[pyarrow]"),
        "polars": pl.Series(series.to_list(), dtype=pl.Float64),
        "complex": np.array(replaced(PEOPLE, 1j)),
        "unsigned beside -1": np.array(replaced([2**63 + k for k in range(60)], -1)),
    }


@pytest.mark.parametrize("kind", list(float_ids()))
def test_ids_in_floating_point_are_refused_by_type(kind: str) -> None:
    ids = float_ids()[kind]
    with pytest.raises(DataError, match="Int64") as caught:
        rounds_of_ids(ids, bytes(32), 4)
    assert "1152921504606846976" not in str(caught.value)
    with pytest.raises(DataError, match="Int64"):
        ContributionCap(1).counted(ids)


def test_one_missing_id_in_a_column_of_exact_ids_costs_its_own_row() -> None:
    pa = pytest.importorskip("pyarrow")
    whole = rounds_of_ids(pd.Series(PEOPLE), bytes(32), 4)
    cells = replaced(PEOPLE, None)
    for ids in (cells, pd.Series(cells, dtype="Int64"), pa.array(cells), pd.Series(cells, dtype="int64[pyarrow]")):
        other = rounds_of_ids(ids, bytes(32), 4)
        assert np.delete(whole, ODD_PLACE).tolist() == np.delete(other, ODD_PLACE).tolist()
        assert other[ODD_PLACE] == -1


def test_ids_of_a_declared_type_cost_their_own_row_where_pandas_would_choose_another(tmp_path: Any) -> None:
    """The remedy of the message: read with dtype="Int64", a column is the same type with and without a missing id."""
    found = []
    for cells in (list(range(60)), replaced(list(range(60)), "")):
        (tmp_path / "ids.csv").write_text("\n".join(["who,a", *(f"{cell},1" for cell in cells)]))
        ids = pd.read_csv(tmp_path / "ids.csv", dtype={"who": "Int64"})["who"]
        assert str(ids.dtype) == "Int64"
        found.append(rounds_of_ids(ids, bytes(32), 4))
    assert np.delete(found[0], ODD_PLACE).tolist() == np.delete(found[1], ODD_PLACE).tolist()
    assert found[1][ODD_PLACE] == -1
    with pytest.raises(DataError, match=r'dtype="Int64"'):
        rounds_of_ids(pd.read_csv(tmp_path / "ids.csv")["who"], bytes(32), 4)


def test_a_parquet_column_of_units_in_floating_point_is_refused(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": X[:, 0], "y": Y, "who": PEOPLE})
    kept = []
    for dtype, cells in (("int64", PEOPLE), ("Int64", replaced(PEOPLE, None)), ("float64", replaced(PEOPLE, None))):
        table["who"] = pd.Series(cells, dtype=dtype)
        table.to_parquet(tmp_path / "rows.parquet")
        label, columns = Labels("y", ("0", "1")), PublicColumns(["a"])
        rows = FileRows(tmp_path / "rows.parquet", label, columns, unit="who", max_rows_per_unit=1)
        if dtype == "float64":
            with pytest.raises(DataError, match="Int64"):
                list(rows)
        else:
            kept.append(np.concatenate([y for _, y in rows]))
    same_but_one(*kept)


# --- arrays that the caller made of rows -----------------------------------------------------------------


def test_booleans_that_numpy_wrote_as_text_stay_booleans(tmp_path: Any) -> None:
    flags = [bool(y) for y in Y]
    odd = np.array(replaced(flags, "x"))
    assert odd.dtype.kind == "U"
    same_but_one(column_numbers(np.array(flags)), column_numbers(odd))
    assert [column_texts(odd)[0][k] for k in column_texts(odd)[1]] == replaced(map(str, Y), "x")
    assert label_text("True") == label_text(True) == "1"
    rows = [[flag, not flag, True] for flag in flags]
    same_but_one(table_numbers(np.array(rows), 3), table_numbers(np.array(replaced(rows, ["x"] * 3)), 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.array([str(flag) for flag in flags]))
    read = list(FileRows(tmp_path / "rows.npz", Labels("y", ("False", "True")), 3))
    assert np.concatenate([y for _, y in read]).tolist() == Y.tolist()


def test_a_true_or_false_cell_of_a_file_is_a_number(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.csv").write_text("a,y\nTrue,True\nFalse,False\n1e-150,False\n")
    rows = FileRows(tmp_path / "rows.csv", Labels("y", ("False", "True")), PublicColumns(["a"]))
    features = np.concatenate([x for x, _ in rows])
    assert features[:2, 0].tolist() == [1.0, 0.0]
    assert np.concatenate([y for _, y in rows]).tolist() == [1.0, 0.0, 0.0]


def test_exponents_of_three_digits_stay_numbers_where_numpy_wrote_text() -> None:
    rows = X.copy()
    rows[:, 0], rows[:, 1] = 1e-150, 1.5e140
    same_but_one(table_numbers(rows, 3), table_numbers(np.array(replaced(rows.tolist(), ["x"] * 3)), 3))
    assert np.isnan(number("1e999"))


def test_arrays_of_times_are_refused_by_type() -> None:
    whole = (X * 5).astype(int).tolist()
    times = np.array(replaced(whole, [np.timedelta64("NaT", "D")] * 3))
    plan = dpsco.plan(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 3), n=60, budget=dpsco.Budget(1.0, 1e-6))
    assert times.dtype.kind == "m"
    for x, y in ((times, Y), (X, times[:, 0]), (np.zeros((60, 3), "M8[s]"), Y)):
        with pytest.raises(DataError, match="holds times"):
            dpsco.train(plan, stream(x, y, non_finite="zero"))
    model = dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], invalid_rows="zero")
    with pytest.raises(DataError, match="holds times"):
        model.fit(X, times[:, 0])


def test_arrow_columns_of_times_are_refused_by_type() -> None:
    """Arrow makes whole numbers into times where the first cell is one: all of them would be zero rows."""
    pa = pytest.importorskip("pyarrow")
    whole = (X * 5).astype(int)[:, 0].tolist()
    plan = dpsco.plan(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 1), n=60, budget=dpsco.Budget(1.0, 1e-6))
    for first in (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.timedelta(1)):
        times = pa.array([first, *whole[1:]])
        assert pa.types.is_temporal(times.type)
        for held in (times, pa.chunked_array([times]), times.dictionary_encode()):
            table = pa.table({"a": held})
            for x, y in ((table, Y), (pa.table({"a": whole}), held), (pa.table({"a": whole}), table)):
                with pytest.raises(DataError, match="holds times"):
                    dpsco.train(plan, stream(x, y, non_finite="zero"))
            with pytest.raises(DataError, match="holds times"):
                column_texts(held, of="id")


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("form", [np.asarray, np.ma.array, np.matrix])
def test_a_letter_that_unicode_does_not_have_costs_its_own_row(form: Any, tmp_path: Any) -> None:
    texts = (X * 5).astype(int).astype("U3")
    odd = texts.copy()
    odd.view(np.uint32).reshape(60, 3, -1)[ODD_PLACE, 1, 0] = 0x7FFFFFFF
    with pytest.raises((SystemError, ValueError)):
        odd.tolist()
    found = table_numbers(form(odd), 3)
    same_but_one(table_numbers(form(texts), 3), found)
    assert np.isnan(found[ODD_PLACE, 1])
    if form is not np.matrix:
        same_but_one(column_numbers(form(texts[:, 1])), column_numbers(form(odd[:, 1])))
    np.savez(tmp_path / "rows.npz", X=odd, y=Y)
    (read,) = list(FileRows(tmp_path / "rows.npz", Labels("y", ("0", "1")), 3))
    assert np.flatnonzero(np.isnan(read[0]).any(axis=1)).tolist() == [ODD_PLACE]


def test_long_numbers_are_numbers_and_labels() -> None:
    for cell in (np.longdouble(1), np.clongdouble(1), np.complex64(1), np.array(1.0)):
        assert number(cell) == 1.0
        assert label_text(cell) == "1"
    rows = list(X.astype(np.longdouble))
    odd = np.array(replaced(rows, [2j, 1, 1]))
    same_but_one(table_numbers(np.array(rows), 3), table_numbers(odd, 3))
    labels = np.array(replaced(Y.tolist(), np.longdouble(0.5)))
    assert [column_texts(labels)[0][k] for k in column_texts(labels)[1]] == replaced(map(str, Y), "0.5")


# --- text files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["x 1:1 2:1", "1 x:1 2:1", "1 1:x", "1 1.5:1", "\xff 1:1", "1 9:1", "1 1:" + "1" * 900])
def test_one_odd_cell_of_a_libsvm_file_makes_its_row_a_zero_row(odd: str, tmp_path: Any) -> None:
    lines = [f"{y} 1:{a!r} 3:{b!r}" for y, (a, b, _) in zip(Y, X.tolist(), strict=True)]
    found = []
    for text in (lines, replaced(lines, odd)):
        (tmp_path / "rows.svm").write_bytes("\n".join(text).encode("latin-1") + b"\n")
        chunks = list(FileRows(tmp_path / "rows.svm", Labels("y", ("0", "1")), 3))
        found.append(np.vstack([np.column_stack([x.toarray(), y]) for x, y in chunks]))
    same_but_one(*found)


@pytest.mark.parametrize("blanks", ["", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("place", [0, ODD_PLACE, len(X) - 1])
@pytest.mark.parametrize("kind", ["rows.csv", "rows.tsv", "rows.svm"])
def test_a_blank_line_is_a_row_and_moves_no_other(kind: str, place: int, end: str, blanks: str, tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    if kind == "rows.svm":
        header, width = [], 3
        lines = [f"{y} 1:{a!r}" for a, y in zip(X[:, 0].tolist(), Y, strict=True)]
    else:
        between, width = "\t" if kind == "rows.tsv" else ",", PublicColumns(["a"])
        header, lines = [f"a{between}y"], [f"{a!r}{between}{y}" for a, y in zip(X[:, 0].tolist(), Y, strict=True)]
    found = []
    for blank in (False, True):
        text = [*header, *lines[:place], blanks if blank else lines[place], *lines[place + 1 :], ""]
        (tmp_path / kind).write_text(end.join(text), newline="")
        chunks = list(FileRows(tmp_path / kind, Labels("y", ("0", "1")), width))
        assert open_source(tmp_path / kind).count() == len(X)
        dense = [(x.toarray() if hasattr(x, "toarray") else x, y) for x, y in chunks]
        found.append(np.vstack([np.column_stack([x, y]) for x, y in dense]))
    assert np.delete(found[0], place, 0).tobytes() == np.delete(found[1], place, 0).tobytes()
    assert np.isnan(found[1][place, -1])


def test_lines_of_blanks_far_apart_cost_their_own_rows_and_a_short_line_stops_the_run(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    size = 400_000  # several blocks
    lines = [f"{k},{k % 2}" for k in range(size)]
    odd = [3, 250_000, 399_998]
    for place in odd:
        lines[place] = " \t"
    (tmp_path / "rows.csv").write_text("\n".join(["a,y", *lines, ""]))
    stated = Labels("y", ("0", "1")), PublicColumns(ranges={"a": (0, 1)})
    labels = np.concatenate([y for _, y in FileRows(tmp_path / "rows.csv", *stated)])
    assert np.flatnonzero(np.isnan(labels)).tolist() == odd
    assert np.array_equal(np.delete(labels, odd), np.delete(np.arange(size) % 2, odd))
    (tmp_path / "rows.csv").write_text("\n".join(["a,y", *lines, "7"]))
    with pytest.raises(DataError, match="another number of cells"):
        list(FileRows(tmp_path / "rows.csv", *stated))


def test_one_long_cell_of_a_csv_file_costs_itself_and_a_longer_one_is_named(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    lines = [f"{a!r},{y}" for a, y in zip(X[:, 0].tolist(), Y, strict=True)]
    found = []
    for text in (lines, replaced(lines, "x" * 3_000_000 + ",1"), replaced(lines, "x" * 20_000_000 + ",1")):
        (tmp_path / "rows.csv").write_text("\n".join(["a,y", *text]) + "\n")
        rows = FileRows(tmp_path / "rows.csv", Labels("y", ("0", "1")), PublicColumns(["a"]))
        if len(found) == 2:
            with pytest.raises(DataError, match="longer than 4 MiB"):
                list(rows)
        else:
            found.append(np.vstack([np.column_stack([x, y]) for x, y in rows]))
    same_but_one(*found, missing=False)


@pytest.mark.parametrize("odd", [[0.1, 0.3], ["0.1", "0.3"], [True, 1], [1, 2], np.array([0.1, 0.3])], ids=repr)
def test_one_row_of_a_list_whose_width_nobody_stated_does_not_decide_on_the_type_of_all(odd: Any) -> None:
    """The array that NumPy makes of such a list is float32 unless one row is not: it only says how long rows are."""
    rows = list(np.tile(np.float32([0.1, 0.3]), (60, 1)))
    unknown = Layout(2, 30, None, None, None, "zero-out", "00" * 32)
    found = []
    for given in (rows, replaced(rows, odd)):
        batches = [np.concatenate([x for x, _ in batch.chunks]) for batch in stream(given, Y).open(unknown)]
        found.append(np.delete(np.concatenate(batches), ODD_PLACE, axis=0))
    assert found[0].dtype == found[1].dtype == np.float64
    assert found[0].tobytes() == found[1].tobytes()
