"""One reader for every list, column and file: each break that was found by an odd cell beside clean ones, as a test."""

from __future__ import annotations

import array
import collections
import sqlite3
import warnings
from typing import Any

import numpy as np
import pytest
from tests.rows.test_one_odd_row import plan_of, typed

from dpsco import stream
from dpsco.rows.containers import column_numbers, column_texts, table_numbers

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
