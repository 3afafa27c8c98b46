"""Dummy coding: a dropped level has no feature, and no other cell looks like it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import dpsco

CITIES = ["Lyon", "Paris", "Oslo", 3]
CELLS = ["Lyon", "Paris", "3.0", "Rome", "", None]


def encoded(cells=CELLS, **more) -> dict[str, list[float]]:
    columns = dpsco.PublicColumns(categories={"city": CITIES}, **more)
    rows = np.asarray(columns.transform({"city": cells}))
    return dict(zip(columns.feature_names, rows.T.tolist(), strict=True))


def test_the_dropped_level_is_zero_and_unlisted_cells_are_the_mean_of_the_levels() -> None:
    got = encoded(drop="first")
    assert got == {
        "city=Paris": [0, 1, 0, 0.25, 0.25, 0.25],
        "city=Oslo": [0, 0, 0, 0.25, 0.25, 0.25],
        "city=3": [0, 0, 1, 0.25, 0.25, 0.25],
    }
    assert list(encoded(drop={"city": 3})) == ["city=Lyon", "city=Paris", "city=Oslo"]
    assert encoded(drop={"city": "3"}) == encoded(drop={"city": 3.0})


def test_features_for_other_and_missing_cells_are_measured_against_the_dropped_level() -> None:
    got = encoded(drop="first", other=True, missing=True)
    assert got["city=Paris"] == [0, 1, 0, 0, 0, 0]
    assert got["city is other"] == [0, 0, 0, 1, 0, 0]
    assert got["city is missing"] == [0, 0, 0, 0, 1, 1]
    only_missing = encoded(drop="first", missing=["city"])
    assert only_missing["city=Oslo"] == [0, 0, 0, 0.25, 0, 0]
    only_other = encoded(drop="first", other=["city"])
    assert only_other["city=Oslo"] == [0, 0, 0, 0, 0.25, 0.25]


@pytest.mark.parametrize("flags", [{}, {"other": True}, {"missing": True}, {"other": True, "missing": True}])
def test_no_cell_looks_like_the_dropped_level(flags) -> None:
    rows = np.array(list(encoded(drop="first", **flags).values())).T
    dropped, rest = rows[0], rows[1:]
    assert not dropped.any()
    assert np.all(np.any(rest != 0, axis=1))
    columns = dpsco.PublicColumns(categories={"city": CITIES}, drop="first", **flags)
    assert np.max(np.linalg.norm(rows, axis=1)) <= columns.row_norm


def test_first_leaves_columns_of_one_level_alone() -> None:
    columns = dpsco.PublicColumns(categories={"a": ["x"], "b": ["x", "y"]}, hashed={"c": 2}, drop="first")
    assert columns.feature_names == ("a=x", "b=y", "c#0", "c#1")


@pytest.mark.parametrize("flags", [{}, {"missing": ["k"]}, {"other": ["k"]}])
def test_many_levels_are_the_same_dense_and_sparse(flags) -> None:
    levels = [f"l{k}" for k in range(90)]
    cells = ["l3", "l0", "unknown", None, "l89", "", "l3"]
    sparse = dpsco.PublicColumns(categories={"k": levels}, drop={"k": "l3"}, **flags)
    dense = dpsco.PublicColumns(
        ranges={f"r{k}": (0, 1) for k in range(5)}, categories={"k": levels}, drop={"k": "l3"}, **flags
    )
    assert sparse.sparse
    assert not dense.sparse
    table = {"k": cells, **{f"r{k}": np.zeros(len(cells)) for k in range(5)}}
    rows = sparse.transform(table)
    np.testing.assert_array_equal(rows.toarray(), np.asarray(dense.transform(table))[:, 5:])
    alone = [sparse.transform({"k": [cell]}) for cell in cells]
    for k, one in enumerate(alone):  # the same bits, in the same order
        part = slice(rows.indptr[k], rows.indptr[k + 1])
        np.testing.assert_array_equal(rows.indices[part], one.indices)
        np.testing.assert_array_equal(rows.data[part], one.data)


def test_every_container_gives_the_same_features(tmp_path) -> None:
    columns = dpsco.PublicColumns(categories={"city": CITIES}, drop={"city": "Oslo"})
    frame = pd.DataFrame({"city": CELLS})
    want = columns.transform(frame)
    for table in (
        {"city": CELLS},
        pl.DataFrame({"city": CELLS}),
        pa.table({"city": pa.array(CELLS)}),
        pa.table({"city": pa.array(CELLS).dictionary_encode()}),
        frame.astype("category"),
        [{"city": cell} for cell in CELLS],
    ):
        np.testing.assert_array_equal(columns.transform(table), want)


@pytest.mark.parametrize("name", ["columns.json", "columns.toml"])
def test_schemas_keep_the_dropped_level_and_older_ones_drop_none(name, tmp_path) -> None:
    columns = dpsco.PublicColumns(categories={"city": CITIES, "b": ["x", "y"]}, other=["b"], drop={"city": 3})
    assert dpsco.PublicColumns.read(columns.write(tmp_path / name)) == columns
    assert columns.to_dict()["columns"][0] == {
        "name": "city",
        "kind": "category",
        "levels": ["Lyon", "Paris", "Oslo", "3"],
        "drop": "3",
    }
    older = {"columns": [{"name": "city", "kind": "category", "levels": ["Lyon", "Paris"]}]}
    (tmp_path / "old.json").write_text(json.dumps(older))
    read = dpsco.PublicColumns.read(tmp_path / "old.json")
    assert read.feature_names == ("city=Lyon", "city=Paris")
    assert read.to_dict() == older
    assert clone(columns).feature_names == columns.feature_names
    assert "drop" in repr(columns)


@pytest.mark.parametrize(
    ("drop", "words"),
    [
        ("last", "'first'"),
        (["city"], "'first'"),
        (True, "'first'"),
        ({"town": "Lyon"}, "'town'"),
        ({"city": "Rome"}, "not a level"),
        ({"city": None}, "no level"),
        ({"one": "x"}, "one level"),
    ],
)
def test_what_is_no_level_is_refused(drop, words) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=words):
        dpsco.PublicColumns(categories={"city": CITIES, "one": ["x"]}, drop=drop)


@pytest.mark.parametrize(
    "entry", [{"kind": "number", "drop": "x"}, {"kind": "category", "levels": ["x", "y"], "drop": []}]
)
def test_schemas_with_an_odd_drop_are_refused(entry) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="drop"):
        dpsco.PublicColumns.from_dict({"columns": [{"name": "a", **entry}]})
