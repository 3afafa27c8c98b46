"""docs/privacy.md lists conversions that change other cells upstream: they do, what it recommends instead does not."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from dpsco.rows.public_columns import PublicColumns

PRIVACY = Path(__file__).parents[2] / "docs" / "privacy.md"
NUMBERS = PublicColumns(ranges={"x": (0, 10)}, missing=True)
DAYS = PublicColumns(dates={"x": ("2000-01-01", "2030-01-01")}, missing=True)
WORDS = PublicColumns(booleans=["x"], missing=True)

COMMAS = [f"{k},25" for k in range(9)]
POINTS = [k + 0.25 for k in range(9)]
ANSWERS = ["ja", "nein"] * 5
DATES = [f"2024-02-{k:02d}" for k in range(10, 19)]
GERMAN = [f"{k:02d}.02.2024" for k in range(10, 19)]


def text(cells: list[str]) -> io.BytesIO:
    return io.BytesIO("\n".join(["x;z", *(f"{cell};1" for cell in cells)]).encode())


def arrow(cells: list[str]) -> Any:
    options = arrow_csv.ConvertOptions(decimal_point=",")
    return arrow_csv.read_csv(text(cells), parse_options=arrow_csv.ParseOptions(delimiter=";"), convert_options=options)


def cell_by_cell(cells: list[str]) -> Any:
    frame = pd.read_csv(text(cells), sep=";", dtype=str)
    return frame.assign(x=[str(cell).replace(",", ".") for cell in frame["x"]])


def days(cells: list[str], **more: Any) -> Any:
    return pd.DataFrame({"x": pd.to_datetime(pd.Series(cells), errors="coerce", **more)})


def written(cells: list[Any]) -> Any:
    return pd.read_csv(io.StringIO(pd.DataFrame({"x": cells}).to_csv(index=False, float_format="%.1f")))


def through_arrow(cells: list[Any]) -> Any:
    return pa.Table.from_pandas(pd.DataFrame({"x": cells}, dtype=object)).to_pandas()


def from_json(cells: list[str], **more: Any) -> Any:
    return pd.read_json(io.StringIO(json.dumps([{"x": cell} for cell in cells])), **more)


AVOID: dict[str, tuple[PublicColumns, Callable[[list[Any]], Any], list[Any], int, Any]] = {
    '`decimal=","`': (NUMBERS, lambda c: pd.read_csv(text(c), sep=";", decimal=","), COMMAS, 5, "n/a?"),
    "`thousands=`": (NUMBERS, lambda c: pd.read_csv(text(c), sep=";", thousands=","), COMMAS, 5, "n/a?"),
    "`true_values=`": (
        WORDS,
        lambda c: pd.read_csv(text(c), sep=";", true_values=["ja"], false_values=["nein"]),
        ANSWERS,
        5,
        "?",
    ),
    "`decimal_comma=True`": (
        NUMBERS,
        lambda c: pl.read_csv(text(c), separator=";", decimal_comma=True, infer_schema_length=None),
        COMMAS,
        5,
        "n/a?",
    ),
    '`decimal_point=","`': (NUMBERS, arrow, COMMAS, 5, "n/a?"),
    "`pandas.to_datetime` without `format=`": (DAYS, days, DATES, 0, "2024-02-10 10:30"),
    "`try_parse_dates=True`": (
        DAYS,
        lambda c: pl.read_csv(text(c), separator=";", try_parse_dates=True, infer_schema_length=None),
        GERMAN,
        5,
        "n/a?",
    ),
    "`strict=False`": (NUMBERS, lambda c: pl.DataFrame({"x": c}, strict=False), POINTS, 0, np.int8(5)),
    "`DataFrame.round`": (NUMBERS, lambda c: pd.DataFrame({"x": c}).round(1), POINTS, 5, "?"),
    "`to_csv(float_format=)`": (NUMBERS, written, POINTS, 5, "?"),
    "of a column whose type one cell changed": (
        NUMBERS,
        lambda c: pd.DataFrame({"x": pd.Series(c).astype("string")}),
        POINTS,
        5,
        1 + 1j,
    ),
}
AVOID["`to_feather` of a pandas column of objects"] = (NUMBERS, through_arrow, [5, 6, 7], 0, datetime.date(2011, 1, 1))
AVOID["`pandas.read_json` of numbers written as text"] = (NUMBERS, from_json, ["1_0", "7", "5"], 2, "Paris")
INSTEAD: dict[str, tuple[PublicColumns, Callable[[list[Any]], Any], list[Any], int, Any]] = {
    "dtype=False": (NUMBERS, lambda c: from_json(c, dtype=False), ["1", "7", "5"], 2, "Paris"),
    "dtype=str": (NUMBERS, cell_by_cell, COMMAS, 5, "n/a?"),
    "format=": (DAYS, lambda c: days(c, format="%d.%m.%Y"), GERMAN, 0, "2024-02-10 10:30"),
    "year first": (DAYS, lambda c: pd.DataFrame({"x": c}), DATES, 0, "2024-02-10 10:30"),
}


def others_that_differ(
    columns: PublicColumns, make: Callable[[list[Any]], Any], cells: list[Any], place: int, odd: Any
) -> int:
    one, two = (columns.transform(make(given)) for given in (cells, [*cells[:place], odd, *cells[place + 1 :]]))
    return int(np.delete(one != two, place, axis=0).any(axis=1).sum())


@pytest.mark.filterwarnings("ignore::UserWarning")  # pandas says that it cannot guess a format
@pytest.mark.parametrize("named", AVOID)
def test_a_conversion_that_changes_other_cells_is_listed(named: str) -> None:
    assert others_that_differ(*AVOID[named]) > 0
    assert any(line.startswith("| ") and named in line for line in PRIVACY.read_text(encoding="utf8").splitlines())


@pytest.mark.parametrize("named", INSTEAD)
def test_what_is_recommended_changes_no_other_cell(named: str) -> None:
    columns, make, cells, _, _ = INSTEAD[named]
    assert others_that_differ(*INSTEAD[named]) == 0
    assert not columns.transform(make(cells))[:, 1].any(), "every cell of the ordinary column is read"
