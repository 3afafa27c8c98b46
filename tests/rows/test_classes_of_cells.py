"""Cells of classes of their own: the class must not decide how other rows are read, nor whether a run ends."""

from __future__ import annotations

import enum
import numbers
import warnings
import weakref
from collections import UserList, deque
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsco import PrivateLinearRegression, PublicColumns
from dpsco.rows.cells import canonical_text, id_text, label_text, number
from dpsco.rows.containers import column_numbers, column_texts
from dpsco.rows.gate import Declared
from dpsco.rows.ids import rounds_of_ids
from dpsco.rows.lists import rows_numbers
from dpsco.rows.shaped import flat_rows


class Answer(enum.IntEnum):
    NO = 0
    YES = 1


class Euros(float):
    def __repr__(self) -> str:
        return "a price"


class Code(int):
    def __repr__(self) -> str:
        return "a code"

    __str__ = __repr__


class Raises(str):
    """Text that raises about itself; in an array of text it is text."""

    def strip(self, *args: Any) -> str:
        raise RuntimeError("secret")

    lower = strip


class RaisesWhole(int):
    def __repr__(self) -> str:
        raise RuntimeError("secret")


class RaisesReal(float):
    def __ne__(self, other: object) -> bool:
        raise RuntimeError("secret")

    __hash__ = float.__hash__

    def is_integer(self) -> bool:
        raise RuntimeError("secret")


class Amount(Decimal):
    def __str__(self) -> str:
        return "an amount"

    def __format__(self, form: str, /) -> str:
        return "an amount"


@numbers.Real.register
class Length:
    """A number whose float is NumPy's, about which ``float`` warns."""

    def __float__(self) -> float:
        return np.float64(2.0)


def gone() -> Any:
    """An object that raises when it is asked for its class."""

    class Thing:
        pass

    return weakref.proxy(Thing())


def texts(column: Any, of: str) -> list[str]:
    found, codes = column_texts(column, of=of)
    return [found[code] for code in codes]


MAKERS = {
    "NumPy": np.array,
    "pandas": pd.Series,
    "category": lambda cells: pd.Series(cells).astype("category"),
    "polars": lambda cells: pl.Series(cells, strict=False),
    "list": list,
}


PAIRS = [
    (made, odd)
    for made in MAKERS
    for odd in (None, "x", b"x", {})
    if odd != {} or made not in ("category", "polars")  # pandas has no such category, polars makes records
]


@pytest.mark.parametrize(("made", "odd"), PAIRS)
def test_members_of_an_enum_are_labels_and_ids_by_their_number_alone(made: str, odd: Any) -> None:
    cells = [Answer.NO, Answer.YES, Answer.YES, Answer.YES]
    clean, other = MAKERS[made](cells), MAKERS[made]([*cells[:-1], odd])
    assert texts(clean, "label") == ["0", "1", "1", "1"]
    assert texts(other, "label")[:-1] == ["0", "1", "1"]
    columns = PublicColumns(categories={"x": [0, 1]})
    np.testing.assert_array_equal(*(columns.transform({"x": column})[:-1] for column in (clean, other)))
    if odd is None and made in ("pandas", "category"):
        return  # float64 by its type, which holds no ids
    assert texts(other, "id")[:-1] == texts(clean, "id")[:-1] == ["0", "1", "1"]
    np.testing.assert_array_equal(*(rounds_of_ids(column, b"s" * 32, 1000)[:-1] for column in (clean, other)))


def test_a_class_says_nothing_about_its_number() -> None:
    for cell in (Answer.YES, Code(1), Euros(1.0), Amount("1.0")):
        assert (number(cell), label_text(cell), id_text(cell), canonical_text(cell)) == (1.0, "1", "1", "1")


def test_a_cell_that_raises_about_itself_is_what_an_array_makes_of_it() -> None:
    for cell in (Raises("a"), RaisesWhole(3), RaisesReal(2.0)):
        assert texts([cell, None], "label")[0] == texts(np.array([cell]), "label")[0] != ""
    for cell in (Raises("a"), RaisesWhole(3)):
        assert texts([cell, None], "id")[0] == texts(np.array([cell]), "id")[0] != ""


def test_levels_may_be_members_of_an_enum() -> None:
    columns = PublicColumns(categories={"x": list(Answer)})
    assert columns.transform({"x": [1, Answer.NO, "x"]}).tolist() == [[0, 1], [1, 0], [0, 0]]


def test_an_object_without_a_class_is_one_zero_row() -> None:
    rows, labels = Declared(1).row_pairs([([1.0], 1), ([gone()], 1), (gone(), 1), gone(), ([2.0], gone())])
    np.testing.assert_array_equal(rows, [[1.0], [np.nan], [np.nan], [np.nan], [2.0]])
    np.testing.assert_array_equal(labels, [1.0, 1.0, 1.0, np.nan, np.nan])
    assert (label_text(gone()), id_text(gone())) == ("", "")


def test_a_number_whose_float_is_numpys_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert number(Length()) == 2.0


def test_a_masked_cell_of_a_sequence_warns_of_nothing() -> None:
    rows = [kind([1.0, np.ma.masked, "2.5"]) for kind in (list, tuple, deque, UserList)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(rows_numbers(rows, 3), [[1.0, np.nan, 2.5]] * 4)
        flat = flat_rows([*rows, [3.0, 4.0, 5.0]], (3,))
        np.testing.assert_array_equal(rows_numbers(flat, 3), [[1.0, np.nan, 2.5]] * 4 + [[3.0, 4.0, 5.0]])
        assert flat_rows([[[1.0], [2.0, 3.0]]], (2, 2)) == [None]


@pytest.mark.parametrize("made", ["Arrow", "chunked", "pandas"])
def test_a_missing_target_of_float32_leaves_the_targets_of_other_rows(made: str) -> None:
    cells = [0.1, 0.7, -0.3, 0.9]

    def column(values: list[Any]) -> Any:
        held = pa.array(values, pa.float32())
        if made == "chunked":
            return pa.chunked_array([held[:2], held[2:]])
        return held if made == "Arrow" else pd.Series(held, dtype=pd.ArrowDtype(pa.float32()))

    clean, odd = column(cells), column([*cells[:3], None])
    assert column_numbers(clean).dtype == column_numbers(odd).dtype == np.float64
    model = PrivateLinearRegression(label_bound=7.3)
    one, two = (model._targets(y, whole=False, strict=False)[1] for y in (clean, odd))
    np.testing.assert_array_equal(one[:3], two[:3])


def test_an_object_without_a_class_is_one_zero_row_of_a_torch_loader() -> None:
    torch = pytest.importorskip("torch")
    from dpsco.clipping.torch.loader import loader_chunks

    items = [(torch.ones(2), 1.0), (gone(), 1.0), gone(), (torch.ones(2), gone())]
    loader = torch.utils.data.DataLoader(items, batch_size=4)
    ((rows, labels),) = loader_chunks(loader, (2,), "float64")
    np.testing.assert_array_equal(rows, [[1, 1], [np.nan] * 2, [np.nan] * 2, [1, 1]])
    np.testing.assert_array_equal(labels, [1, 1, np.nan, np.nan])
