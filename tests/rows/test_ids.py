"""Ids in every container and file by one rule: different people are different units, one person is one unit."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsco import DataError, InvalidArgument, PublicColumns
from dpsco.rows.cells import id_text
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.ids import NO_ROUND, rounds_of_ids

DIFFERENT = [
    ["12.1", "12.10"],
    ["1200e034", "0012e036"],
    ["1234567890123456.12", "1234567890123456.13"],
    ["true", "1"],
    ["7", "007", "7.5", "7.", "7e0", "0x7", "007.0"],
    ["9007199254740992.0", "9007199254740993.0"],
    ["9007199254740992", "9007199254740993"],
]
NUMBERS: list[list[Any]] = [[2**53, 2**53 + 1], [Decimal("1234567890123456.12"), Decimal("1234567890123456.13")]]
COLUMNS, CLASSES = PublicColumns(ranges={"a": (0, 1)}), Labels("y", classes=("0", "1"))


def counted(path: Any) -> list[bool]:
    rows = FileRows(path, CLASSES, COLUMNS, unit="who", max_rows_per_unit=1)
    return np.isfinite(np.concatenate([y for _, y in rows])).tolist()


def write(path: Any, ids: list[Any]) -> None:
    """One row per id, in the type of its cells."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"a": 0.5, "y": 1, "who": one}) + "\n" for one in ids))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("a", "who", "y"), *((0.5, one, 1) for one in ids)])
    else:
        table = pa.table({"a": [0.5] * len(ids), "who": ids, "y": [1] * len(ids)})
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)


@pytest.mark.parametrize("ids", DIFFERENT, ids=lambda ids: ids[-1])
def test_ids_that_are_written_differently_are_different_people_in_memory(ids: list[str]) -> None:
    twice, flags = [*ids, *ids], [*[True] * len(ids), *[False] * len(ids)]
    for column in (
        twice,
        np.array(twice),
        np.array(twice, dtype=object),
        [one.encode() for one in twice],
        pd.Series(twice),
        pd.Series(twice).astype("category"),
        pd.Series(twice, dtype="string[pyarrow]"),
        pa.array(twice),
        pa.array(twice).dictionary_encode(),
    ):
        assert ContributionCap(1).counted(column).tolist() == flags
        places = rounds_of_ids(column, b"s" * 32, 10**9)
        assert len(set(places.tolist())) == len(ids)


@pytest.mark.parametrize("ids", [*DIFFERENT, *NUMBERS], ids=lambda ids: str(ids[-1]))
@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet", ".arrow"])
def test_different_ids_are_different_people_in_files(kind: str, ids: list[Any], tmp_path: Any) -> None:
    if kind == ".jsonl" and isinstance(ids[0], Decimal):
        pytest.skip("JSON has no decimals")
    write(tmp_path / f"rows{kind}", [*ids, *ids])
    assert counted(tmp_path / f"rows{kind}") == [*[True] * len(ids), *[False] * len(ids)]


def test_the_number_seven_is_one_person_in_every_file(tmp_path: Any) -> None:
    for kind, forms in (
        (".csv", ["7", " 7 ", "+7", "7.0", "7.00"]),
        (".jsonl", [7, 7.0, "7", " 7 ", "+7"]),
        (".parquet", ["7", " 7 ", "+7", "7.0"]),
        (".arrow", [Decimal("7.0"), Decimal("7.0")]),
    ):
        write(tmp_path / f"rows{kind}", list(forms))
        assert counted(tmp_path / f"rows{kind}") == [True, *[False] * (len(forms) - 1)]
    cells = Decimal("1E+2"), Decimal("-0.0"), "-0", "+0", "-0.0", -7.0, "-7.0", True
    assert [id_text(cell) for cell in cells] == ["100", "0", "0", "0", "0", "-7", "-7", ""]


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_people_of_a_file_with_a_missing_id_are_those_of_a_file_without(kind: str, tmp_path: Any) -> None:
    """pandas makes all ids of that file numbers with a point."""
    for month, ids in enumerate(([1, 2, 3, 4], [4, 3, None, 1])):
        frame = pd.DataFrame({"a": [0.5] * 4, "who": ids, "y": [1] * 4})
        path = tmp_path / f"{month}{kind}"
        frame.to_csv(path, index=False) if kind == ".csv" else frame.to_json(path, orient="records", lines=True)
    assert counted(tmp_path) == [*[True] * 4, *[False] * 4]


@pytest.mark.parametrize("missing", ["nan", "NaN", "-inf", "null", "None", "<NA>", "NaT", " "])
def test_what_writers_put_for_a_missing_id_is_no_id(missing: str, tmp_path: Any) -> None:
    for kind in (".csv", ".jsonl", ".parquet"):
        write(tmp_path / f"rows{kind}", ["b", missing, "b", missing])
        assert counted(tmp_path / f"rows{kind}") == [True, False, False, False]
    assert rounds_of_ids(["b", missing], b"s" * 32, 4)[1] == NO_ROUND


def test_ids_that_are_times_and_a_unit_that_is_the_label_are_refused(tmp_path: Any) -> None:
    times = pa.array([0, 1], pa.timestamp("s"))  # one day, two people
    pq.write_table(pa.table({"a": [0.5, 0.5], "who": times, "y": [1, 1]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="holds times"):
        counted(tmp_path / "rows.parquet")
    with pytest.raises(InvalidArgument, match="the label or a feature"):
        FileRows(tmp_path / "rows.parquet", CLASSES, COLUMNS, unit="y", max_rows_per_unit=1)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([True, False]),
        pd.Series([True, False]),
        pd.Series([True, None], dtype="boolean"),
        pl.Series([True, False]),
        pa.array([True, False]),
    ],
    ids=("numpy", "pandas", "nullable", "polars", "arrow"),
)
def test_booleans_are_no_ids_because_one_other_id_would_rename_them(ids: Any) -> None:
    """NumPy makes [True, 7] the numbers 1 and 7: one row of a later chunk gave the unit of others a second name."""
    with pytest.raises(DataError, match="name no people"):
        rounds_of_ids(ids, bytes(32), 4)
    assert rounds_of_ids([True, None, 7], bytes(32), 4).tolist()[:2] == [NO_ROUND, NO_ROUND]


@pytest.mark.parametrize("make", [pd.Categorical, lambda cells: pd.Series(cells, dtype="category")])
def test_the_first_of_true_and_1_does_not_decide_on_the_ids_of_a_category(make: Any) -> None:
    """pandas keeps one category for both, with the type of the first: booleans, which were refused, or integers."""
    beside = [[True, 1, 1], [1, True, 1], [1, 1, 1]]
    assert {str(make(cells).dtype.categories.dtype) for cells in beside} == {"bool", "int64"}
    for cells in (*beside, [True, True, True], ["a", True, 1]):
        assert rounds_of_ids(make(cells), bytes(32), 1000).tolist()[2] == rounds_of_ids([1], bytes(32), 1000)[0]


def test_a_file_with_ids_of_booleans_is_refused_by_its_type(tmp_path: Any) -> None:
    write(tmp_path / "rows.parquet", [True, False])
    with pytest.raises(DataError, match="name no people"):
        counted(tmp_path / "rows.parquet")
