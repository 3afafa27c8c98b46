"""Types that one cell of bytes, of a record or of a duration gives to a whole column: no other cell changes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsco
from dpsco.errors import DataError
from dpsco.rows.containers import column_numbers, column_texts
from dpsco.rows.file_stream import FileRows, Labels

TEXTS = ["yes", "no", "1", "2.5", "yes"]


def by_name(column: Any, of: str) -> list[str]:
    texts, codes = column_texts(column, of)
    return [texts[code] for code in codes]


def handed_over(rows: list[Any]) -> Any:
    """The column x of rows that polars makes into a table and Arrow takes over."""
    frame = pl.from_dicts(rows)
    return (pa.table(frame) if hasattr(frame, "__arrow_c_stream__") else frame.to_arrow()).column("x")


@pytest.mark.skipif(not hasattr(pl.DataFrame, "__arrow_c_stream__"), reason="this polars refuses bytes beside text")
def test_one_cell_of_bytes_in_a_column_that_polars_hands_to_arrow() -> None:
    clean, odd = ([*TEXTS, last] for last in ("no", b"no"))
    one, two = (handed_over([{"x": cell} for cell in cells]) for cells in (clean, odd))
    assert one.type != two.type
    for of in ("label", "id"):
        assert by_name(one, of) == by_name(two, of)
    np.testing.assert_array_equal(column_numbers(one), column_numbers(two))
    assert by_name(two, "label") == [*TEXTS, "no"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_of_every_type_are_text(kind: Any) -> None:
    bytes_ = [text.encode() for text in TEXTS]
    plain = pa.array(bytes_, kind)
    coded = pa.DictionaryArray.from_arrays(pa.array(range(len(TEXTS)), pa.int32()), plain)
    for column in (plain, coded, pd.Series(bytes_, dtype=pd.ArrowDtype(kind))):
        assert by_name(column, "label") == TEXTS
        np.testing.assert_array_equal(column_numbers(column), [np.nan, np.nan, 1.0, 2.5, np.nan])


def test_one_category_of_bytes_in_a_file(tmp_path: Path) -> None:
    read = []
    for name, last in (("clean", "no"), ("odd", b"no")):
        cells = pd.Series([*TEXTS, last], dtype=object)
        frame = pd.DataFrame({"x": pd.Categorical(cells), "y": pd.Categorical(cells), "z": pd.Categorical(cells)})
        frame.to_parquet(tmp_path / f"{name}.parquet")
        columns = dpsco.PublicColumns(categories={"x": ["yes", "no", "1"]}, ranges={"z": (0, 5)})
        rows = FileRows(tmp_path / f"{name}.parquet", Labels("y", classes=("no", "yes")), columns)
        read.append([np.concatenate(part) for part in zip(*rows, strict=True)])
    for one, two in zip(*read, strict=True):
        np.testing.assert_array_equal(one, two)
    assert read[1][1].tolist()[:2] == [1.0, 0.0]


def test_columns_whose_numbers_are_lost_are_refused() -> None:
    for column in (handed_over([{"x": 1}, {"x": {"q": 2}}]), pa.array([[1]]), pa.array([b"ab"], pa.binary(2))):
        for read in (column_numbers, column_texts, lambda each: column_texts(each, "id")):
            with pytest.raises(DataError, match="records"):
                read(column)


@pytest.mark.parametrize("cell", [datetime.timedelta(3), datetime.time(3)])
def test_dates_that_are_numbers_beside_a_time_without_a_date(cell: Any) -> None:
    columns = dpsco.PublicColumns(dates={"x": ("2000-01-01", "2030-01-01")})
    days = [20200229, 20240301]
    assert len(np.unique(columns.transform(pa.table({"x": days})))) == 2
    with pytest.raises(DataError, match="times"):
        columns.transform(pa.table({"x": [cell, *days]}))
    with pytest.raises(DataError, match="times"):
        columns.transform({"x": np.ma.array(np.array([3], dtype="m8[D]"))})
