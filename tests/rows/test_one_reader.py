"""One reader for every list, column and file: each break that was found by an odd cell beside clean ones, as a test."""

from __future__ import annotations

import array
import collections
import sqlite3
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.rows.test_one_odd_row import plan_of, typed

import dpsco
from dpsco import DataError, stream
from dpsco.rows.containers import column_numbers, column_texts, table_numbers
from dpsco.rows.row_norm import unit_rows

RNG = np.random.default_rng(1)
X = RNG.standard_normal((60, 3))
Y = RNG.integers(0, 2, 60)
ODD_PLACE = 7


def replaced(cells: Any, odd: Any) -> list[Any]:
    other = list(cells)
    other[ODD_PLACE] = odd
    return other


def same_but_one(one: Any, two: Any, *, missing: bool = True) -> None:
    """All rows but one are equal in every bit and count; the one has a NaN."""
    one, two = np.asarray(one), np.asarray(two)
    assert np.delete(one, ODD_PLACE, 0).tobytes() == np.delete(two, ODD_PLACE, 0).tobytes()
    assert np.all(np.isfinite(one))
    assert not missing or np.any(np.isnan(two[ODD_PLACE]))


# --- lists ----------------------------------------------------------------------------------------------


def sqlite_rows(cells: list[list[float]]) -> list[Any]:
    base = sqlite3.connect(":memory:")
    base.row_factory = sqlite3.Row
    base.execute("create table t(a, b, c)")
    base.executemany("insert into t values (?, ?, ?)", cells)
    return base.execute("select * from t").fetchall()


def tensor_cells(cells: list[list[float]]) -> list[Any]:
    torch = pytest.importorskip("torch")
    return [list(row) for row in torch.tensor(cells, dtype=torch.float64)]


ROW_KINDS: dict[str, Any] = {
    "list": list,
    "tuple": lambda rows: list(map(tuple, rows)),
    "ndarray": lambda rows: list(np.array(rows)),
    "array.array": lambda rows: [array.array("d", row) for row in rows],
    "memoryview": lambda rows: [memoryview(array.array("d", row)) for row in rows],
    "deque": lambda rows: list(map(collections.deque, rows)),
    "UserList": lambda rows: list(map(collections.UserList, rows)),
    "sqlite3.Row": sqlite_rows,
    "0-d tensors": tensor_cells,
    "longdouble": lambda rows: [list(map(np.longdouble, row)) for row in rows],
}


class Raises:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise KeyError("secret")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> Any:
        raise KeyError("secret")


ODD_ROWS: list[Any] = [
    [None] * 3,
    None,
    "abc",
    [np.ma.masked, 1.0, 1.0],
    [Raises(), 1.0, 1.0],
    Raises(),
    [10**400, 1, 1],
    [1.0],
    np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False]),
    np.array(["NaT"] * 3, dtype="m8[s]"),
]


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_one_odd_row_leaves_every_other_row_of_a_list_its_numbers(kind: str) -> None:
    rows = ROW_KINDS[kind](X.tolist())
    assert table_numbers(rows, 3).tobytes() == X.tobytes()
    for odd in ODD_ROWS:
        for container in (list, collections.deque):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                same_but_one(table_numbers(rows, 3), table_numbers(container(replaced(rows, odd)), 3))
    plan, pairs = plan_of(60, 3), list(zip(rows, Y, strict=True))
    one, two = (typed(stream(iter(p), items="rows"), plan) for p in (pairs, replaced(pairs, (None, 1))))
    assert [*one[0][:ODD_PLACE], *one[0][ODD_PLACE + 1 :]] == [*two[0][:ODD_PLACE], *two[0][ODD_PLACE + 1 :]]
    assert one[1:] == two[1:]


@pytest.mark.parametrize("package", ["torch", "jax.numpy", "numpy"])
def test_one_odd_label_leaves_every_other_label_of_a_list_of_scalars(package: str) -> None:
    module = pytest.importorskip(package)
    labels = list(getattr(module, "tensor", getattr(module, "asarray", None))(Y.astype(np.float32)))
    for odd in (None, np.ma.masked, Raises(), "x"):
        other = replaced(labels, odd)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            same_but_one(column_numbers(labels), column_numbers(other))
            same_but_one(column_numbers(labels), column_numbers(collections.deque(other)))
        texts, codes = column_texts(other)
        assert [texts[k] for k in codes] == replaced(map(str, Y), "x" if odd == "x" else "")


def test_whole_numbers_beyond_64_bits_are_rounded_once() -> None:
    rows = [[2**70 + 2**17 + 1, 5 * 2**67 + 1, 2**71 - k] for k in range(60)]
    same_but_one(table_numbers(rows, 3), table_numbers(replaced(rows, [np.longdouble(1), None, 1]), 3))


# --- columns of tables ----------------------------------------------------------------------------------

BAD_TEXT = b"\xff\xfesecret"


def utf8(odd: bytes) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.array(replaced([str(x).encode() for x in X[:, 0].tolist()], odd), pa.binary()).view(pa.string())


def as_dictionary(column: Any) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.DictionaryArray.from_arrays(pa.array(range(len(column))), column)


def as_arrow_series(column: Any) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column])))


TEXT_COLUMNS: dict[str, Any] = {
    "Arrow": lambda column: column,
    "Arrow dictionary": as_dictionary,
    "pandas of Arrow": as_arrow_series,
    "pandas text": lambda column: as_arrow_series(column).astype("string[pyarrow]"),
    "pandas of an Arrow dictionary": lambda column: as_arrow_series(as_dictionary(column)),
}


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_one_cell_that_is_not_utf8_is_missing_by_itself_in_every_table(kind: str) -> None:
    try:
        one, two = TEXT_COLUMNS[kind](utf8(b"0.25")), TEXT_COLUMNS[kind](utf8(BAD_TEXT))
    except (UnicodeDecodeError, pytest.importorskip("pyarrow").lib.ArrowException):
        pytest.skip("pandas does not hold such a cell")
    same_but_one(column_numbers(one), column_numbers(two))
    texts, codes = column_texts(two, of="id")
    assert texts[codes[ODD_PLACE]] == ""
    assert len(set(texts)) == 60


def test_nested_columns_are_refused_by_type_whatever_a_cell_holds() -> None:
    pa, told = pytest.importorskip("pyarrow"), set()
    for cell in (b"0.25", BAD_TEXT):
        lists = pa.ListArray.from_arrays(pa.array(range(61), pa.int32()), utf8(cell))
        for nested in (lists, pa.StructArray.from_arrays([utf8(cell)], ["f"])):
            with pytest.raises(DataError, match="holds records") as refusal:
                column_numbers(nested)
            told.add(str(refusal.value))
    assert len(told) == 2  # one text for each type


@pytest.mark.parametrize("far", [1, 10**15, 2**62])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_refused_by_type_whether_or_not_one_is_outside_the_range_of_python(unit: str, far: int) -> None:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    cells = replaced([0] * 60, far)
    by_type = [
        pa.array(cells, pa.timestamp(unit)),
        pa.array(cells, pa.duration(unit)),
        pa.array(replaced([0] * 60, min(far, 2**30)), pa.date32()),
        pl.Series(replaced([0] * 60, min(far, 2**30)), dtype=pl.Int32).cast(pl.Date),
    ]
    by_type += [
        as_arrow_series(pa.array(cells, pa.timestamp(unit))),
        pd.Series(np.array(cells).astype(f"M8[{unit}]")),
        pd.Series(np.array(cells).astype(f"m8[{unit}]")),
    ]
    if unit != "s":
        by_type += [pl.Series(cells).cast(pl.Datetime(unit)), pl.Series(cells).cast(pl.Duration(unit))]
    for column in by_type:  # whatever the cells are: test_declared_types.py says why
        for read in (column_numbers, column_texts):
            with pytest.raises(DataError, match="holds times"):
                read(column)


def test_a_polars_column_of_128_bits_is_read_cell_by_cell() -> None:
    pl = pytest.importorskip("polars")
    if not hasattr(pl, "Int128"):
        pytest.skip("this polars has no type of 128 bits")
    whole = column_numbers(pl.Series([1] * 60, dtype=pl.Int128))
    same_but_one(whole, column_numbers(pl.Series(replaced([1] * 60, None), dtype=pl.Int128)))


# --- sparse rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["snowball-sgd", "phased-sgd", "phased-erm"])
@pytest.mark.parametrize("outside", [10**6, -1])
def test_a_sparse_row_with_a_column_outside_the_width_is_a_zero_row(method: str, outside: int) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rows = np.random.default_rng(3).standard_normal((400, 3)) / 3
    labels = np.arange(400) % 2
    odd, gone = sparse.csr_matrix(rows), rows.copy()
    odd.indices = odd.indices.copy()
    odd.indices[odd.indptr[ODD_PLACE]] = outside
    gone[ODD_PLACE] = np.nan
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=3)
    plan = dpsco.plan(problem, n=400, budget=dpsco.Budget(2.0, 1e-5), method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (
            dpsco.train(plan, stream(x, labels, non_finite="zero"), key=bytes(32)).model.coef for x in (odd, gone)
        )
    assert one.tobytes() == two.tobytes()


def test_the_length_of_a_row_is_one_number_in_a_chunk_of_one_row_and_of_many() -> None:
    rows = np.random.default_rng(5).standard_normal((50, 60)).astype(np.float32)
    for order in "CF":
        many = unit_rows(np.array(rows, order=order), 0.5)
        alone = np.vstack([unit_rows(np.array(rows[k : k + 1], order=order), 0.5) for k in range(50)])
        assert many.tobytes() == alone.tobytes()


def test_one_label_with_a_letter_outside_unicode_is_missing_by_itself() -> None:
    labels = np.array([str(y) for y in Y])
    odd = labels.copy()
    odd.view(np.uint32)[ODD_PLACE] = 0xFFFFFFF
    same_but_one(column_numbers(labels), column_numbers(odd))
