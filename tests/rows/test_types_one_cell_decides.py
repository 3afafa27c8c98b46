"""Readers find a type for a whole column. One odd cell changes that type, and must change no other cell."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dpsco
from dpsco.errors import DataError
from dpsco.rows.cells import canonical_text, id_text, label_text, number
from dpsco.rows.containers import column_numbers, column_texts
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.ids import rounds_of_ids
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.arrow_columns import arrow_numbers, arrow_text


def pandas_csv(cells: list[str], **more: Any) -> Any:
    return pd.read_csv(io.StringIO("\n".join(["x", *cells]) + "\n"), **more)


def polars_csv(cells: list[str]) -> Any:
    return pl.read_csv(io.StringIO("\n".join(["x", *cells]) + "\n"), infer_schema_length=None)


def dense(features: Any) -> np.ndarray:
    return np.asarray(features.toarray() if hasattr(features, "toarray") else features)


def same_but_first(columns: PublicColumns, clean: Any, odd: Any) -> None:
    """The types differ, the features of all rows but the first do not, and the first row's cell is read when clean."""
    one, two = dense(columns.transform(clean)), dense(columns.transform(odd))
    assert clean["x"].dtype != odd["x"].dtype
    np.testing.assert_array_equal(one[1:], two[1:])
    assert len(np.unique(one, axis=0)) > 1


KINDS = {
    "ranges": PublicColumns(ranges={"x": (-2, 2)}),
    "categories": PublicColumns(categories={"x": ["0", "1"]}),
    "booleans": PublicColumns(booleans=["x"]),
    "hashed": PublicColumns(hashed={"x": 512}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", [("false", "true"), ("FALSE", "TRUE"), ("False", "True"), ("+0", "+1"), ("0", "1")])
@pytest.mark.parametrize("read", [pandas_csv, polars_csv])
def test_booleans_and_signs_in_text(read: Any, words: tuple[str, str], kind: str) -> None:
    cells = [words[k % 2] for k in range(8)]
    odd = read(["maybe", *cells[1:]])
    clean = read(cells)
    if clean["x"].dtype == odd["x"].dtype:
        pytest.skip("this reader makes text of these cells in every case")
    same_but_first(KINDS[kind], clean, odd)


def test_labels_that_are_booleans_in_text(tmp_path: Any) -> None:
    cells = ["true", "false", "TRUE", "False"]
    clean, odd = pandas_csv(cells)["x"], pandas_csv(["maybe", *cells[1:]])["x"]
    labels = Labels("x", classes=("False", "True"))
    assert labels.encode(clean).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert labels.encode(odd).tolist()[1:] == [0.0, 1.0, 0.0]
    for column, name in ((clean, "clean"), (odd, "odd")):
        pd.DataFrame({"x": column, "a": 0.5}).to_parquet(tmp_path / f"{name}.parquet")
        rows = FileRows(tmp_path / f"{name}.parquet", labels, PublicColumns(ranges={"a": (0, 1)}))
        assert np.concatenate([y for _, y in rows])[1:].tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(dpsco.InvalidArgument, match="different classes"):
        Labels("x", classes=("true", "True"))


def test_numbers_of_any_length_are_numbers() -> None:
    cells = ["+1", "1" * 40, "0." + "3" * 40, "1e0005", "+.5", "1e-400", "1e400", "9" * 5000, "1e" + "9" * 30]
    found = [number(cell) for cell in cells]
    np.testing.assert_array_equal(arrow_numbers(pa.array(cells)), found)
    np.testing.assert_array_equal(found[:6], [1.0, float("1" * 40), 1 / 3, 1e5, 0.5, 0.0])
    assert np.isnan(found[6:]).all()
    long = ["0." + "3" * 40] * 3
    same_but_first(KINDS["ranges"], pandas_csv([*long, "0.5"]), pandas_csv(["x", *long[1:], "0.5"]))
    assert [label_text(cell) for cell in cells[6:]] == ["", "", ""]
    assert arrow_text(pa.array(cells[6:])).codes.shape == (3,)
    assert canonical_text("1e-" + "9" * 30) == "0.0"


def test_ids_with_a_sign_are_the_ids_that_a_reader_makes_numbers_of() -> None:
    ids = [f"+49{k:09d}" for k in range(50)]
    clean, odd = pandas_csv(ids)["x"], pandas_csv(["unknown", *ids[1:]])["x"]
    one, two = (rounds_of_ids(column, b"s" * 32, 20) for column in (clean, odd))
    assert one[1:].tolist() == two[1:].tolist()


LARGE = [2**60 + 7919 * k for k in range(1, 40)]


@pytest.mark.parametrize("columns", [KINDS["hashed"], PublicColumns(categories={"x": [LARGE[5], LARGE[6]]})])
def test_whole_numbers_beyond_2_to_53_in_categories(columns: PublicColumns, tmp_path: Any) -> None:
    clean = pd.DataFrame({"x": LARGE, "y": 0})
    odd = clean.copy()
    odd["x"] = odd["x"].astype(float).where(odd.index > 0)
    same_but_first(columns, clean, odd)
    objects = clean.astype({"x": object})
    objects.loc[0, "x"] = "unknown"
    same_but_first(columns, clean, objects)
    read = []
    for name, frame in (("clean", clean), ("odd", odd)):
        frame.to_parquet(tmp_path / f"{name}.parquet")
        rows = FileRows(tmp_path / f"{name}.parquet", Labels("y", classes=("0", "1")), columns)
        read.append(np.concatenate([dense(x) for x, _ in rows])[1:])
    np.testing.assert_array_equal(*read)
    assert id_text(LARGE[0]) != id_text(LARGE[0] + 1)


def test_texts_that_are_no_finite_number_are_missing_as_the_number_is() -> None:
    cells = ["1.5", "NaN", "inf", "-Infinity", "0.9999999999999999999999", "9007199254740993.5"]
    # Unless told otherwise, pandas before 3 rounds numbers of many digits roughly where a column holds no text.
    exact = {"float_precision": "round_trip"} if int(pd.__version__.partition(".")[0]) < 3 else {}
    clean, odd = (pandas_csv([first, *cells[1:]], **exact) for first in (cells[0], "x"))
    same_but_first(KINDS["hashed"], clean, odd)


def test_a_lone_surrogate_is_hashed_by_itself() -> None:
    one, two = (dense(KINDS["hashed"].transform({"x": cells})) for cells in (["a", "b"], ["\ud800", "b"]))
    np.testing.assert_array_equal(one[1], two[1])


class _Ratio(Fraction):
    """A number that raises about itself, with the cell in the message."""

    def __float__(self) -> float:
        raise RuntimeError(f"secret {self!s}")


class _Array:
    def __array__(self, *args: Any, **more: Any) -> Any:
        raise RuntimeError("secret")


class _Class:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("secret")


@pytest.mark.parametrize("kind", ["number", "array", "class"])
def test_a_cell_that_raises_about_itself_is_missing(kind: str) -> None:
    cell = {"number": _Ratio(3, 2), "array": _Array(), "class": _Class()}[kind]
    assert label_text(cell) == id_text(cell) == ""
    np.testing.assert_array_equal(column_numbers([cell, 1.0]), [np.nan, 1.0])
    np.testing.assert_array_equal(
        dense(KINDS["hashed"].transform({"x": ["b", cell]}))[0], dense(KINDS["hashed"].transform({"x": ["b", "c"]}))[0]
    )


# --- dates ----------------------------------------------------------------------------------------------

DATES = PublicColumns(dates={"x": ("1990-01-01", "2030-01-01")})
DAYS = pd.Series(pd.to_datetime(["2001-02-03", "2002-10-01", "2003-12-31", "2001-02-03"]))


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_categories_that_are_dates(zone: str | None) -> None:
    days = DAYS.dt.tz_localize(zone)
    objects = days.astype(object)
    objects[0] = "unknown"
    clean, odd = (pd.DataFrame({"x": column.astype("category")}) for column in (days, objects))
    same_but_first(DATES, clean, odd)
    wanted = DATES.transform(pd.DataFrame({"x": days}))
    np.testing.assert_array_equal(DATES.transform(clean), wanted)
    np.testing.assert_array_equal(DATES.transform(pa.table({"x": pa.array(days).dictionary_encode()})), wanted)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%Y-%m", "%Y.%m.%d", "%Y"])
@pytest.mark.parametrize("parsed", [True, False])
def test_dates_that_a_reader_parses(form: str, parsed: bool) -> None:
    cells = DAYS.dt.strftime(form).tolist()
    more: dict[str, Any] = {"parse_dates": ["x"], "date_format": form} if parsed else {}
    clean, odd = pandas_csv(cells, **more), pandas_csv(["unknown", *cells[1:]], **more)
    assert pd.api.types.is_datetime64_any_dtype(clean["x"]) == parsed
    np.testing.assert_array_equal(DATES.transform(clean)[1:], DATES.transform(odd)[1:])
    assert len(np.unique(DATES.transform(clean))) == 3


def test_a_local_time_that_its_type_cannot_hold_is_missing_by_itself() -> None:
    times = DAYS.astype("datetime64[ns]")
    odd = pd.Series([pd.Timestamp.min, *times[1:]], dtype="datetime64[ns]")
    days, odd = (column.dt.tz_localize("UTC").dt.tz_convert("America/New_York") for column in (times, odd))
    one, two = (DATES.transform(pd.DataFrame({"x": column})) for column in (days, odd))
    np.testing.assert_array_equal(one[1:], two[1:])


@pytest.mark.parametrize("columns", [KINDS["ranges"], KINDS["hashed"], KINDS["categories"]])
def test_times_that_a_reader_of_pandas_made_are_refused_where_numbers_or_text_were_declared(columns: Any) -> None:
    """One cell that is no time leaves all of them as text: read as missing, every row would change with that one."""
    cells = ["2001-02-03", "2002-10-01", "2003-12-31"]
    clean = pandas_csv(cells, parse_dates=["x"])
    assert clean["x"].dtype.kind == "M"
    zone = clean.assign(x=clean["x"].dt.tz_localize("Asia/Tokyo"))
    arrow = clean.astype({"x": pd.ArrowDtype(pa.timestamp("us"))})
    spans = clean.assign(x=clean["x"] - clean["x"])
    for frame in (clean, zone, arrow, spans, clean.assign(x=clean["x"].dt.to_period("D")), clean.astype("category")):
        with pytest.raises(DataError, match="'x' holds times"):
            columns.transform(frame)
    objects = dense(columns.transform(clean.astype({"x": object})))  # no type says what they are: each is missing
    np.testing.assert_array_equal(objects, dense(columns.transform(pd.DataFrame({"x": [None] * 3}, dtype=object))))


@pytest.mark.parametrize("odd", [float("nan"), 2.5])
def test_dates_that_polars_makes_into_numbers_beside_a_nan_are_refused(odd: float) -> None:
    """All dates were missing where one cell was a NaN."""
    days = [{"x": datetime.datetime(2020, 1, day)} for day in range(1, 6)]
    assert len(np.unique(DATES.transform(pl.from_dicts(days)))) == 5
    lost = pl.from_dicts([*days, {"x": odd}], infer_schema_length=None)
    assert lost["x"].dtype == pl.Float64
    with pytest.raises(DataError, match="the dates are lost"):
        DATES.transform(lost)


# --- columns without a value ------------------------------------------------------------------------------


def test_a_parquet_column_without_a_value_is_a_column_of_missing_cells(tmp_path: Any) -> None:
    columns = PublicColumns(
        ranges={"a": (0, 1)}, categories={"c": ["x", "y"]}, dates={"d": ("1990-01-01", "2030-01-01")}
    )
    read = []
    for name, first in (("none", (None, None, None)), ("one", (0.25, "x", "2001-01-01"))):
        table = {key: pd.Series([cell, None, None], dtype=object) for key, cell in zip("acd", first, strict=True)}
        pd.DataFrame(table | {"y": ["0", "1", "0"]}).to_parquet(tmp_path / f"{name}.parquet")
        rows = FileRows(tmp_path / f"{name}.parquet", Labels("y", classes=("0", "1")), columns)
        read.append(np.concatenate([dense(x) for x, _ in rows]))
    np.testing.assert_array_equal(read[0][1:], read[1][1:])
    assert not np.array_equal(read[0][0], read[1][0])


# --- arrays that NumPy joins ------------------------------------------------------------------------------


def test_a_stated_dtype_holds_where_numpy_lets_one_row_decide_and_reports_assume_that_types_are_public() -> None:
    rows, labels = np.random.default_rng(0).random((60, 2), np.float32), np.arange(60.0) % 2
    joined = np.concatenate([np.full((1, 2), np.nan), rows[1:]])
    assert joined.dtype != rows.dtype
    plan = dpsco.plan(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2), n=60, budget=dpsco.Budget(1.0, 1e-6))
    for dtype in ("float32", "float64"):
        typed = []
        for x in (rows, joined):
            source = dpsco.stream(x, labels, non_finite="zero", dtype=dtype)
            typed.append([a for batch in source.open(plan.layout) for a, _ in batch.chunks])
        one, two = (np.concatenate(parts) for parts in typed)
        assert one.dtype == two.dtype == dtype
        assert one[1:].tobytes() == two[1:].tobytes()
    report = dpsco.train(plan, dpsco.stream(rows, labels)).report
    assert any("the type of arrays (float32 or float64)" in text for text in report.assumptions)


# --- categories -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [True, Fraction(1), 1.0, Decimal(1), 1 + 0j, np.bool_(True)], ids=repr)
@pytest.mark.parametrize(
    "make", [pd.Categorical, pd.CategoricalIndex, lambda cells: pd.Series(cells).astype("category")]
)
def test_an_odd_cell_that_is_equal_to_others_does_not_rename_them_in_a_category(make: Any, odd: Any) -> None:
    """pandas keeps one category for equal cells, the first that it meets."""
    cells = ["a", 1, 1, 4, "b"]
    beside = make(cells), make([odd, *cells[1:]])
    for of in ("id", "label"):
        one, other = ([texts[code] for code in codes[1:]] for texts, codes in (column_texts(c, of=of) for c in beside))
        assert one == other == ["1", "1", "4", "b"]
    assert column_numbers(beside[1])[1:4].tolist() == [1.0, 1.0, 4.0]


@pytest.mark.parametrize("odd", [2.0**60, complex(2**60), np.float64(2**60), Fraction(2**60)], ids=repr)
def test_a_float_beyond_2_to_53_takes_no_id_away_from_the_unit_it_is_equal_to(odd: Any) -> None:
    cells = ["a", 2**60, 2**60, 2**60 + 1, "b"]
    for made in (pd.Categorical(cells), pd.Categorical([odd, *cells[1:]])):
        texts, codes = column_texts(made, of="id")
        assert [texts[code] for code in codes[1:]] == [str(2**60), str(2**60), str(2**60 + 1), "b"]


def test_a_fraction_is_the_level_that_its_number_is() -> None:
    assert [label_text(cell) for cell in (Fraction(3), Fraction(1, 2), Fraction(10**400))] == ["3", "0.5", ""]


# --- levels of Arrow ------------------------------------------------------------------------------------


def levels_in_two_chunks(last: str) -> pa.ChunkedArray:
    """128 rows in two chunks of levels with an index of one byte, which counts 127 of them."""
    chunks = [range(100), range(100, 127)]
    levels = [pa.array([*map(str, chunk), *([last] if chunk[0] else [])]) for chunk in chunks]
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(pa.array(range(len(each)), pa.int8()), each) for each in levels]
    )


@pytest.mark.parametrize("kind", [*KINDS, "dates"])
@pytest.mark.parametrize("pandas", [False, True], ids=["arrow", "pandas"])
def test_one_level_more_than_an_index_of_arrow_counts_stops_no_call(kind: str, pandas: bool) -> None:
    """Arrow joins two chunks of levels only if all of them fit into one index: one row decided whether a call ended."""
    known, more = (levels_in_two_chunks(last) for last in ("5", "x"))
    assert len(known.combine_chunks()) == 128
    with pytest.raises(pa.ArrowInvalid):
        more.combine_chunks()
    one, other = (pd.Series(pd.arrays.ArrowExtensionArray(c)) if pandas else c for c in (known, more))
    columns = {**KINDS, "dates": PublicColumns(dates={"x": ("1900-01-01", "2100-01-01")})}[kind]
    found = [dense(columns.transform({"x": held})) for held in (one, other)]
    np.testing.assert_array_equal(found[0][:-1], found[1][:-1])
    for of in ("id", "label"):
        texts = [[names[code] for code in codes] for names, codes in (column_texts(c, of=of) for c in (one, other))]
        assert texts[0][:-1] == texts[1][:-1] == [str(place) for place in range(127)]
    assert column_numbers(other)[:-1].tolist() == list(range(127))


# --- types of Arrow -------------------------------------------------------------------------------------


def features_of(path: Any, columns: PublicColumns) -> np.ndarray:
    return np.concatenate([chunk for chunk, _ in FileRows(path, None, columns, feature_norm=1e9)])


@pytest.mark.parametrize("digits", ["1", "0.00000000001", "1e-20", "0.1234567890123456789012345"])
def test_the_digits_of_one_decimal_change_no_other_number_of_a_file(digits: str, tmp_path: Any) -> None:
    """Arrow multiplied by a power of ten that the longest cell of the column decides on."""
    cells = [Decimal(text) for text in ("459.310892", "34124.8829", "230.770222", "0.1", "-7.25")]
    for name, first in (("one", Decimal("1.5")), ("other", Decimal(digits))):
        pq.write_table(pa.table({"x": pa.array([first, *cells])}), tmp_path / f"{name}.parquet")
    for column in (pa.array([first, *cells]) for first in (Decimal("1.5"), Decimal(digits))):
        assert arrow_numbers(column)[1:].tolist() == [float(cell) for cell in cells]
    declared = PublicColumns(numbers=["x"])
    one, other = (features_of(tmp_path / f"{name}.parquet", declared) for name in ("one", "other"))
    assert one[1:].tobytes() == other[1:].tobytes()


@pytest.mark.parametrize("odd", [b"a", b"\xff", b"2"], ids=repr)
def test_one_cell_of_bytes_in_a_column_of_text_of_a_file_changes_no_other_row(odd: bytes, tmp_path: Any) -> None:
    declared = PublicColumns(numbers=["n"], categories={"c": ["a", "b"]})
    found = []
    for first in ("b", odd):
        table = pa.table({"c": pa.array([first, "a", "b", None]), "n": pa.array([first, "1.5", " 2", "x"])})
        pq.write_table(table, tmp_path / "rows.parquet")
        found.append(features_of(tmp_path / "rows.parquet", declared))
    assert pa.types.is_binary(table["c"].type)
    assert found[0][1:].tobytes() == found[1][1:].tobytes()


@pytest.mark.parametrize("what", ["category", "label"])
def test_a_column_of_times_of_a_file_is_refused_where_text_was_declared(what: str, tmp_path: Any) -> None:
    """pandas writes whole numbers beside one time as times: the labels of all other rows would be lost."""
    cells = [pd.Timestamp("2020-01-01"), *([0, 1] * 10)]
    other = [0, 1] * 10 + [1]
    named = {"c": cells, "y": other} if what == "category" else {"c": other, "y": cells}
    pd.DataFrame(named).to_parquet(tmp_path / "rows.parquet")
    rows = FileRows(tmp_path / "rows.parquet", Labels(classes=("0", "1")), PublicColumns(categories={"c": ["0", "1"]}))
    with pytest.raises(DataError, match="holds times"):
        list(rows)


def test_run_end_encoded_columns_are_read_as_the_columns_that_they_stand_for() -> None:
    declared = PublicColumns(numbers=["n"], categories={"c": ["a", "b"]}, dates={"d": ("2020-01-01", "2021-01-01")})
    plain = {
        "n": pa.array([1.5, 1.5, 2.0, None]),
        "c": pa.array(["a", "a", "b", None]),
        "d": pa.array([datetime.date(2020, 5, 1)] * 3 + [None]),
    }
    encoded = {name: pc.run_end_encode(column) for name, column in plain.items()}
    for made in (encoded, pa.table(encoded)):
        np.testing.assert_array_equal(np.asarray(declared.transform(made)), np.asarray(declared.transform(plain)))
