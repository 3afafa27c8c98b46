"""The list of containers and types that are read: everything else is refused by its type, and no cell is shown."""

from __future__ import annotations

import array
import collections
import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import scipy.sparse as sp

import dpsco
from dpsco.errors import DataError
from dpsco.rows.column_types import form_of
from dpsco.rows.containers import column_cells, column_numbers, column_texts, plain_column
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.gate import container
from dpsco.rows.protocols import family

CELL = "5417"
DAY = datetime.datetime(2020, 5, 4)
ONE = [5417, 1]


class _Sub(np.ndarray):
    """An array of another package."""


class _Foreign:
    """A table of another package: NumPy can make an array of it."""

    columns, shape, dtype = ("a",), (2, 1), np.dtype(float)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([[5417.0], [1.0]])

    def __len__(self) -> int:
        return 2


class _Handed:
    """An array of another package."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([[5417.0], [1.0]])


FAMILIES = {
    "list": ([1], (1,), range(3), collections.deque([1]), collections.UserList([1])),
    "array": (
        np.ones(2),
        np.ma.ones(2),
        np.ones((2, 1)).view(np.matrix),
        np.ones(2).view(np.memmap),
        np.zeros(2, [("a", float)]).view(np.recarray),
    ),
    "sparse": tuple(
        getattr(sp, f"{f}_{k}")((2, 2))
        for f in ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"]
        for k in ("matrix", "array")
    ),
    "pandas table": (pd.DataFrame({"a": ONE}),),
    "pandas column": (pd.Series(ONE), pd.Index(ONE), pd.array(ONE), pd.Categorical(ONE), pd.DatetimeIndex([DAY])),
    "polars table": (pl.DataFrame({"a": ONE}),),
    "polars lazy": (pl.LazyFrame({"a": ONE}),),
    "polars column": (pl.Series(ONE),),
    "arrow table": (pa.table({"a": ONE}), pa.record_batch({"a": ONE})),
    "arrow column": (pa.array(ONE), pa.chunked_array([ONE])),
    "memory": (array.array("d", [1.0]), memoryview(b"ab"), _Handed()),
    "": (
        *("text", b"bytes", bytearray(2), {"a": ONE}, {1, 2}, iter(ONE), 5, None, 1.5, object()),
        *(_Foreign(), np.ones(2).view(_Sub), pd.MultiIndex.from_tuples([(5417, 1)]), pa.scalar(5417)),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_kind_of_container_is_known_by_its_type_or_refused(name: str) -> None:
    for data in FAMILIES[name]:
        assert family(data) == name, type(data)
        if name in ("", "polars lazy"):
            for read in (container, plain_column, column_numbers, column_texts):
                with pytest.raises(DataError, match=type(data).__name__) as told:
                    read(data)
                assert CELL not in str(told.value)


def _dictionary(kind: pa.DataType) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, None], kind))


NUMPY = {
    "numbers": [*"?bBhHiIlLqQefdg", ">f8", ">i4"],
    "cells": ["F", "D", "G", "S4", "U4", "O"],
    "dates": ["M8[D]", "M8[ns]"],
    "times": ["m8[s]"],
    "records": ["V8", [("a", "f8")], [("a", "f8"), ("b", "i4")]],
}
PANDAS = {
    "numbers": [
        *["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "boolean"],
        *(pd.SparseDtype(kind) for kind in ("int64", "float64", "float32", "bool")),
        *(pd.ArrowDtype(kind) for kind in (pa.int8(), pa.float32(), pa.float64(), pa.bool_())),
    ],
    "cells": ["category", "string", object, complex, pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.decimal128(9))],
    "dates": ["M8[us]", "datetime64[ns, Asia/Tokyo]", pd.ArrowDtype(pa.timestamp("us")), pd.ArrowDtype(pa.date32())],
    "times": ["m8[ns]", "period[D]", pd.ArrowDtype(pa.duration("s")), pd.ArrowDtype(pa.time64("us"))],
    "records": [pd.ArrowDtype(pa.list_(pa.int64())), pd.ArrowDtype(pa.struct([("a", pa.int64())]))],
    "intervals": [pd.IntervalDtype("float64", "right")],
}
POLARS = {
    "numbers": [
        "Boolean",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Float16",
        "Float32",
        "Float64",
    ],
    "cells": ["Int128", "UInt128", "Decimal", "String", "Binary", "Categorical", "Enum", "Null", "Object"],
    "dates": ["Date", "Datetime"],
    "times": ["Time", "Duration"],
}
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
ARROW = {
    "numbers": [*_INTEGERS, pa.float16(), pa.float32(), pa.float64(), pa.bool_()],
    "cells": [
        *(pa.decimal128(9, 2), pa.decimal256(40, 2), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.null()),
    ],
    "dates": [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "Asia/Tokyo")],
    "times": [pa.time32("s"), pa.time64("ns"), pa.duration("us"), pa.month_day_nano_interval()],
    "records": [
        *(pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.list_view(pa.int64())),
        *(pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.binary(4)),
        *(pa.dense_union([pa.field("a", pa.int64())]), pa.sparse_union([pa.field("a", pa.int64())])),
        pa.fixed_shape_tensor(pa.int64(), (2,)),
        *(getattr(pa, name)() for name in ("json_", "bool8", "uuid") if hasattr(pa, name)),
    ],
}


def check(column: Any, form: str) -> None:
    """The form is the one of the table, every reader reads what it allows, and refuses anything else by its type."""
    plain = plain_column(column)
    assert form_of(plain) == form, type(plain)
    readers = (column_numbers, column_texts, column_cells, lambda held: column_texts(held, "id"))
    if form in ("numbers", "cells"):
        assert len(column_numbers(column)) == len(column_cells(column)) == len(column_texts(column)[1]) == len(column)
    else:
        for read in readers:
            with pytest.raises(DataError, match=f"holds {'times' if form == 'dates' else form}, by its type") as told:
                read(column)
            assert CELL not in str(told.value)
    days = dpsco.PublicColumns(dates={"x": ("2000-01-01", "2030-01-01")})
    if isinstance(column, pl.Series) and column.dtype.is_float():
        with pytest.raises(DataError, match="'x' was declared as dates and holds numbers"):
            days.transform({"x": column})
    elif form in ("numbers", "cells", "dates"):
        assert np.all(np.isfinite(np.asarray(days.transform({"x": column}))))
    else:
        with pytest.raises(DataError, match=f"'x' holds {form}"):
            days.transform({"x": column})


@pytest.mark.parametrize("form", NUMPY)
def test_types_of_numpy(form: str) -> None:
    for kind in NUMPY[form]:
        made = np.zeros(2, dtype=kind)
        check(made, form)
        if kind != "O":
            check(np.ma.MaskedArray(made, mask=[False, True]), form)
        if form not in ("numbers", "cells"):  # as a table, too
            with pytest.raises(DataError, match="X holds"):
                dpsco.stream(np.zeros((2, 2), dtype=kind), [0, 1], non_finite="zero").open(_layout())
    every = {np.dtype(kind).char for kinds in NUMPY.values() for kind in kinds}
    assert every >= set(np.typecodes["All"]) - {"p", "P", "n", "N", "c"}


def test_types_of_ml_dtypes_are_numbers() -> None:
    types = pytest.importorskip("ml_dtypes")
    for kind in (types.bfloat16, types.float8_e4m3fn, types.int4):
        check(np.array([1, 2], dtype=kind), "numbers")
        assert column_numbers(np.array([1, 2], dtype=kind)).tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="2\\^53"):
        column_texts(np.array([1, 2], dtype=types.bfloat16), "id")


def _layout() -> Any:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    return dpsco.plan(problem, n=2, budget=dpsco.Budget(1.0, 1e-6)).layout


@pytest.mark.parametrize("form", PANDAS)
def test_types_of_pandas(form: str) -> None:
    for kind in PANDAS[form]:
        column = pd.Series([None, None], dtype=kind) if form not in ("numbers",) else pd.Series([0, 1]).astype(kind)
        for made in (column, pd.Index(column) if "Sparse" not in str(kind) else column, column.array):
            check(made, form)
        if form not in ("numbers", "cells"):
            with pytest.raises(DataError, match="'a' of X holds"):
                dpsco.stream(pd.DataFrame({"a": column, "b": [0, 1]}), [0, 1], non_finite="zero").open(_layout())
    for levels, found in (([DAY], "dates"), ([pd.Timedelta(1)], "times"), ([pd.Period("2020")], "times")):
        check(pd.Series(levels * 2, dtype="category"), found)
    named = {name for name in dir(pd) if name.endswith("Dtype")}
    covered = {type(pd.Series([], dtype=kind).dtype).__name__ for kinds in PANDAS.values() for kind in kinds}
    assert named - covered == set()  # a new type needs a line in the table


@pytest.mark.parametrize("form", [*POLARS, "records"])
def test_types_of_polars(form: str) -> None:
    options = {"Decimal": (9, 2), "Enum": (["a"],), "Datetime": ("us", "Asia/Tokyo"), "Duration": ("us",)}
    for name in POLARS.get(form, ()):
        if hasattr(pl, name):
            kind = getattr(pl, name)(*options.get(name, ()))
            check(pl.Series([None, None], dtype=kind), form)
    if form == "records":
        kinds = [pl.List(pl.Int64), pl.Array(pl.Int64, 2), pl.Struct({"a": pl.Int64})]
        for kind in kinds:
            check(pl.Series([None, None], dtype=kind), form)
        known = {name for names in POLARS.values() for name in names} | {"List", "Array", "Struct", "Utf8"}
        others = {
            name
            for name in dir(pl)
            if isinstance(getattr(pl, name), type) and issubclass(getattr(pl, name), pl.DataType)
        }
        assert others - known <= {"DataType", "BaseExtension", "Extension", "Map", "Unknown"}  # refused: of no list


@pytest.mark.parametrize("form", ARROW)
def test_types_of_arrow(form: str) -> None:
    for kind in ARROW[form]:
        plain = pa.nulls(2, kind)
        check(plain, form)
        check(pa.chunked_array([plain, plain]), form)
        if form in ("numbers", "dates") or kind in (pa.string(), pa.large_string(), pa.binary()):
            check(_dictionary(kind), "cells" if form == "numbers" else form)
        if form in ("numbers", "dates") and kind != pa.float16():
            check(pc.run_end_encode(pa.nulls(2, kind)), form)


def test_a_list_is_read_cell_by_cell() -> None:
    cells = [True, 5, 2.5, "3", b"4", Decimal("0.5"), None, DAY, [1], {}, object(), np.float32(0.1), 1j]
    numbers = [1.0, 5.0, 2.5, 3.0, 4.0, 0.5, *[np.nan] * 5, float(np.float32(0.1)), np.nan]
    for make in (list, tuple, collections.deque, collections.UserList):
        np.testing.assert_array_equal(column_numbers(make(cells)), numbers)


def test_a_column_is_one_column() -> None:
    for two in (np.ones((2, 2)), pd.DataFrame({"a": ONE, "b": ONE}), pl.DataFrame({"a": ONE, "b": ONE}), sp.eye(2)):
        for read in (column_numbers, column_texts, lambda held: column_texts(held, "id")):
            with pytest.raises(DataError, match="one column"):
                read(two)
    for one in (np.ones((2, 1)), np.ones((2, 1)).view(np.matrix), pd.DataFrame({"a": [1, 1]}), pa.table({"a": [1, 1]})):
        assert column_numbers(one).tolist() == [1.0, 1.0]


def test_a_file_with_whole_numbers_of_128_bits_is_refused_by_its_type_and_not_called_damaged(tmp_path: Any) -> None:
    if not hasattr(pl, "Int128"):
        pytest.skip("this polars has no type of 128 bits")
    pl.DataFrame({"x": [1, 2**70], "y": ["0", "1"]}, schema_overrides={"x": pl.Int128}).write_parquet(
        tmp_path / "x.parquet"
    )
    with pytest.raises(DataError, match="a type that Arrow does not read"):
        list(FileRows(tmp_path / "x.parquet", Labels("y", classes=("0", "1")), dpsco.PublicColumns(numbers=["x"])))
