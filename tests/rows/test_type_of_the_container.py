"""What a container is: its type says it, no label of an index and no cell does; a type that lost cells is refused."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpsco
from dpsco.errors import DataError
from dpsco.rows.containers import column_cells, column_numbers, column_texts, is_frame
from dpsco.rows.csr import is_sparse
from dpsco.rows.gate import Declared, admit_labels

NAMES = ("columns", "to_pylist", "type", "tocsr", "nnz", "get_columns", "collect", "to_series", "levels", "chunks")
COLUMNS = dpsco.PublicColumns(
    ranges={"age": (0, 100)},
    categories={"city": ["a", "b"], "kind": ["x", "y"]},
    dates={"born": ("1900-01-01", "2030-01-01")},
)


def people(name: str) -> pd.DataFrame:
    """A table whose index holds names of people; the last one is called ``name``."""
    cells = {
        "age": np.arange(12.0),
        "city": list("abababababab"),
        "kind": pd.Categorical(list("xyxyxyxyxyxy")),
        "born": pd.date_range("1990-01-01", periods=12),
    }
    return pd.DataFrame(cells, index=[*(f"user {k}" for k in range(11)), name])


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_person_in_the_index_decides_nothing(name: str) -> None:
    clean, odd = people("user 11"), people(name)
    assert not is_frame(odd["age"])
    assert not is_sparse(odd["age"])
    np.testing.assert_array_equal(COLUMNS.transform(odd), COLUMNS.transform(clean))
    np.testing.assert_array_equal(column_numbers(odd["age"]), np.arange(12.0))
    np.testing.assert_array_equal(admit_labels(odd["age"], 12), np.arange(12.0))
    assert column_texts(odd["city"])[0] == ["a", "b"]
    assert column_cells(odd["kind"]) == list("xyxyxyxyxyxy")


@pytest.mark.parametrize("name", ["user 11", *NAMES])
def test_a_fit_on_a_table_with_names_in_its_index_ends_in_no_error(name: str) -> None:
    pytest.importorskip("sklearn")
    from dpsco.estimators import PrivateLogisticRegression

    table = pd.concat([people(name)] * 20)
    told = pd.Series(np.tile([0, 1], 120), index=table.index)
    model = PrivateLogisticRegression(
        1.0, 1e-6, classes=[0, 1], columns=COLUMNS, survey="none", rounds=2, invalid_rows="zero"
    )
    assert model.fit(table, told).coef_.shape == (1, COLUMNS.width)


def read_all(cells: Any) -> dict[str, Any]:
    return {
        "numbers": lambda: column_numbers(cells),
        "texts": lambda: column_texts(cells),
        "ids": lambda: column_texts(cells, of="id"),
        "labels": lambda: admit_labels(cells, len(cells)),
        "range": lambda: dpsco.PublicColumns(ranges={"c": (0, 9)}).transform({"c": cells}),
        "date": lambda: dpsco.PublicColumns(dates={"c": ("1900-01-01", "2030-01-01")}).transform({"c": cells}),
        "level": lambda: dpsco.PublicColumns(categories={"c": ["1", "2"]}).transform({"c": cells}),
        "table": lambda: Declared(1).chunk(cells.to_frame(), None),
    }


@pytest.mark.parametrize("how", read_all(pl.Series([1])))
@pytest.mark.parametrize("record", [{}, {"a": 1}])
def test_records_of_polars_that_took_the_place_of_numbers_are_refused(record: Any, how: str) -> None:
    """polars keeps the one record, and the numbers of all others are missing: nothing may be trained on the rest."""
    made = pl.from_dicts([{"c": 1}, {"c": 2}, {"c": record}, {"c": 1}])["c"]
    assert made.dtype == pl.Struct
    with pytest.raises(DataError, match="holds records"):
        read_all(made)[how]()


@pytest.mark.parametrize("how", ["numbers", "texts", "ids", "labels", "table"])
def test_times_of_polars_are_refused(how: str) -> None:
    """One cell decides whether a column has such a type: beside a number, times become numbers."""
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    assert pl.Series("c", [*days, 0.5], strict=False).dtype == pl.Float64
    with pytest.raises(DataError, match="holds times"):
        read_all(pl.Series("c", days))[how]()


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["2024-02-03", "x"])])
def test_dates_in_categories_of_polars_are_dates(kind: Any) -> None:
    columns = dpsco.PublicColumns(dates={"c": ("1900-01-01", "2030-01-01")})
    cells = pl.Series(["2024-02-03", None, "x"])
    np.testing.assert_array_equal(columns.transform({"c": cells.cast(kind)}), columns.transform({"c": cells}))
