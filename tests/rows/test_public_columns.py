"""``PublicColumns``: a raw table as features, from declarations alone and the same bits in every container."""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import dpsco
from dpsco.rows import public_columns
from dpsco.rows.file_stream import FileRows, Labels

COLUMNS = dpsco.PublicColumns(
    ranges={"age": (0, 100), "income": (0, 1e6)},
    log=["income"],
    dates={"since": ("2000-01-01", "2020-01-01")},
    booleans=["member"],
    categories={"city": ["Lyon", "Paris", 3]},
    hashed={"code": 4},
    missing=["age", "city"],
    other=["city"],
)
FRAME = pd.DataFrame(
    {
        "ignored": [object(), None, 3, 4],
        "city": ["Paris", "Oslo", "3.0", None],
        "age": [50, 200, "?", 25],
        "income": [0.0, 1e6, 999.0, np.nan],
        "since": ["2010-01-01", "1999-12-31", "2020-01-01 12:00", "soon"],
        "member": ["yes", "No", True, "perhaps"],
        "code": ["a", "b", "a", ""],
    }
)


def named(columns: dpsco.PublicColumns, table) -> dict[str, list[float]]:
    return dict(zip(columns.feature_names, np.asarray(columns.transform(table)).T.tolist(), strict=True))


def test_each_kind_of_column_is_mapped_by_public_constants() -> None:
    got = named(COLUMNS, FRAME)
    assert got["age"] == [0.5, 1.0, 0.5, 0.25]
    assert got["age is missing"] == [0, 0, 1, 0]
    np.testing.assert_allclose(got["income"], [0, 1, math.log1p(0.999) / math.log(1001), 0.5], rtol=1e-6)
    np.testing.assert_allclose(got["since"], [3653 / 7305, 0, 1, 0.5], rtol=1e-6)
    assert got["member"] == [1, 0, 1, 0.5]
    assert [got[f"city={name}"] for name in ("Lyon", "Paris", "3")] == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert got["city is other"] == [0, 1, 0, 0]
    assert got["city is missing"] == [0, 0, 0, 1]
    codes = np.array([got[f"code#{k}"] for k in range(4)])
    assert codes.sum(axis=0).tolist() == [1, 1, 1, 0]
    assert np.array_equal(codes[:, 0], codes[:, 2])


def test_a_log_scale_is_monotone_and_has_both_sides_of_zero() -> None:
    columns = dpsco.PublicColumns(ranges={"a": (-1e6, 1e6), "b": (10, 1e4)}, log=["a", "b"])
    values = [-np.inf, -1e9, -1e6, -1e3, -1.0, 0.0, 1.0, 1e3, 1e6, 1e9, np.nan]
    got = named(columns, {"a": values, "b": values})
    np.testing.assert_allclose(got["a"][1:5], 1 - np.array(got["a"][9:5:-1]), atol=1e-6)
    assert got["a"][5] == got["a"][0] == got["a"][10] == 0.5
    assert got["a"][1:10] == sorted(got["a"][1:10])
    np.testing.assert_allclose(got["a"][7], 0.5 + 0.5 * math.log(2) / math.log(1001), rtol=1e-6)
    assert got["b"][1:10] == sorted(got["b"][1:10])
    assert (got["b"][2], got["b"][9]) == (0.0, 1.0)


def test_the_row_norm_bounds_every_row_and_is_reached() -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.choice(["?", "0", "1e9", "Oslo", "Lyon", "yes", "2020-01-01"], 500) for name in COLUMNS.names}
    encoded = COLUMNS.transform(rows)
    assert encoded.feature_norm == COLUMNS.row_norm
    assert np.linalg.norm(encoded, axis=1).max() <= COLUMNS.row_norm
    two = dpsco.PublicColumns(ranges={"a": (0, 1)}, booleans=["b"], missing=["a"])
    reached = np.linalg.norm(two.transform({"a": [None], "b": [1]}))
    assert reached == pytest.approx(two.row_norm, rel=1e-7)
    assert dpsco.PublicColumns(["a"]).row_norm is None
    assert encoded[:2].feature_norm is None


CLEAN = {
    "a": [1.5, 2.0, -3.0, 40.0],
    "b": ["x", "y", "z", "x"],
    "c": [1, 0, 1, 0],
    "d": [datetime.date(2001, 2, 3), datetime.date(2002, 3, 4), datetime.date(2019, 1, 1), datetime.date(1990, 1, 1)],
}
SIMPLE = dpsco.PublicColumns(
    ranges={"a": (0, 30)}, dates={"d": ("2000-01-01", "2020-01-01")}, booleans=["c"], categories={"b": ["x", "y"]}
)


def containers() -> dict[str, object]:
    frame, texts = pd.DataFrame(CLEAN), {k: [str(v) for v in column] for k, column in CLEAN.items()}
    rows = [dict(zip(CLEAN, row, strict=True)) for row in zip(*CLEAN.values(), strict=True)]
    return {
        "pandas": frame,
        "pandas objects": frame.astype(object),
        "pandas times": frame.assign(d=pd.to_datetime(frame["d"])),
        "pandas zone": frame.assign(d=pd.to_datetime(frame["d"]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        "pandas categories": frame.assign(b=frame["b"].astype("category"), c=frame["c"].astype(bool)),
        "pandas Arrow": pa.table(CLEAN).to_pandas(types_mapper=pd.ArrowDtype),
        "pandas text": pd.DataFrame(texts),
        "polars": pl.DataFrame(CLEAN),
        "polars lazy": pl.LazyFrame(CLEAN),
        "polars times": pl.DataFrame(CLEAN).with_columns(pl.col("d").cast(pl.Datetime)),
        "Arrow": pa.table(CLEAN),
        "Arrow dictionary": pa.table({**CLEAN, "b": pa.array(CLEAN["b"]).dictionary_encode()}),
        "Arrow zone": pa.table(
            {**CLEAN, "d": pa.array(frame["d"].map(pd.Timestamp).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))}
        ),
        "columns": CLEAN,
        "NumPy columns": {k: np.array(v) for k, v in CLEAN.items()},
        "rows": rows,
        "text": texts,
    }


@pytest.mark.parametrize("kind", containers())
def test_the_container_and_its_types_change_no_bit(kind) -> None:
    wanted = np.asarray(SIMPLE.transform(CLEAN))
    assert wanted.dtype == np.float32
    assert np.asarray(SIMPLE.transform(containers()[kind])).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("odd", ["text", None, float("nan"), 10**400, b"\xff", datetime.date(2005, 1, 1), [1]])
@pytest.mark.parametrize("column", CLEAN)
def test_one_odd_cell_changes_its_own_row_and_no_other(odd, column) -> None:
    wanted = np.asarray(SIMPLE.transform(CLEAN))
    cells = {**CLEAN, column: [odd, *CLEAN[column][1:]]}
    tables = {"columns": cells, "objects": pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in cells.items()})}
    with contextlib.suppress(OverflowError):  # pandas before 3 makes no column of a list with 10**400
        tables["pandas"] = pd.DataFrame({k: pd.Series(v) for k, v in cells.items()})
    tables["rows"] = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    for table in tables.values():
        assert np.asarray(SIMPLE.transform(table))[1:].tobytes() == wanted[1:].tobytes()


def test_columns_of_arrays_and_lists_are_named_by_their_position() -> None:
    columns = dpsco.PublicColumns(ranges={0: (0, 10)}, categories={2: ["x", "y"]})
    wanted = [[0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]
    rows = [[5, "?", "x"], [0, "?", "y"]]
    for data in (rows, np.array(rows, dtype=object), np.array(rows), pd.DataFrame(rows), [*map(tuple, rows)]):
        assert columns.transform(data).tolist() == wanted
    ragged = columns.transform([*rows, [1], "no row", None])
    assert ragged[2:].tolist() == [[np.float32(0.1), 0, 0], [0.5, 0, 0], [0.5, 0, 0]]


def test_errors_name_columns_and_no_value() -> None:
    secret = pd.DataFrame({"a": ["secret-1"], "b": ["secret-2"], "when": [pd.Timestamp("2020-01-01")]})
    for table, columns, words in (
        (secret, dpsco.PublicColumns(ranges={"a": (0, 1), "height": (0, 3)}), "no column 'height'"),
        (pd.concat([secret, secret], axis=1), dpsco.PublicColumns(["a"]), "several columns named 'a'"),
        (pa.Table.from_pandas(secret), dpsco.PublicColumns(["when"]), "'when' holds times"),
        ({"a": [1], "b": [1, 2]}, dpsco.PublicColumns(["a", "b"]), "different lengths"),
        (np.zeros(3), dpsco.PublicColumns(["0"]), "1 dimensions"),
    ):
        with pytest.raises(dpsco.DataError, match=words) as error:
            columns.transform(table)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: dpsco.PublicColumns(), "at least one"),
        (lambda: dpsco.PublicColumns("age"), "list of columns"),
        (lambda: dpsco.PublicColumns(ranges={"a": (0, 1)}, booleans=["a"]), "declared twice: a"),
        (lambda: dpsco.PublicColumns(ranges={"a": (0, 1)}, log=["b"]), "log names 'b'"),
        (lambda: dpsco.PublicColumns(ranges={"a": 3}), "as \\(low, high\\)"),
        (lambda: dpsco.PublicColumns(ranges=[("a", 0, 1)]), "mapping"),
        (lambda: dpsco.PublicColumns(dates={"a": ("2020-01-01", "2019-01-01")}), "two dates"),
        (lambda: dpsco.PublicColumns(categories={"a": "xy"}), "as a list"),
        (lambda: dpsco.PublicColumns(["a"], other=["a"]), "other names 'a'"),
    ],
)
def test_contradicting_declarations_are_refused(wrong, words) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=words):
        wrong()


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_schema_file_can_be_written_reviewed_and_read(tmp_path, suffix) -> None:
    path = COLUMNS.write(tmp_path / f"columns.{suffix}")
    text = path.read_text()
    assert dpsco.PublicColumns.read(path) == COLUMNS
    assert "1000000" in text
    assert "Lyon" in text
    path.write_text(text.replace("buckets", "bucket"))
    with pytest.raises(dpsco.InvalidArgument, match="'code' has bucket"):
        dpsco.PublicColumns.read(path)
    path.write_text(text + "}{")
    with pytest.raises(dpsco.InvalidArgument, match=f"columns.{suffix}"):
        dpsco.PublicColumns.read(path)
    with pytest.raises(dpsco.InvalidArgument, match="Check the path"):
        dpsco.PublicColumns.read(tmp_path / "absent.json")


def test_it_is_a_transformer_of_scikit_learn() -> None:
    pipeline = make_pipeline(clone(COLUMNS), LogisticRegression()).fit(FRAME, [0, 1, 0, 1])
    assert pipeline[0] == COLUMNS
    assert pipeline[0] is not COLUMNS
    assert pipeline.predict(FRAME).shape == (4,)
    assert pipeline[:-1].get_feature_names_out().tolist() == list(COLUMNS.feature_names)
    assert COLUMNS.width == len(COLUMNS.feature_names) == 14
    other = clone(COLUMNS).set_params(hashed=None)
    assert other != COLUMNS
    assert other.width == 10
    assert "hashed" not in repr(other)
    assert "PublicColumns" in str(pipeline)
    assert len({COLUMNS, clone(COLUMNS)}) == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_and_tables_in_memory_have_the_same_features(tmp_path, kind) -> None:
    path = tmp_path / f"rows.{kind}"
    table = pa.table({**CLEAN, "y": [0, 1, 0, 1]})
    pq.write_table(table, path) if kind == "parquet" else table.to_pandas().to_csv(path, index=False)
    rows = FileRows(path, Labels("y", ("0", "1")), SIMPLE, feature_norm=SIMPLE.row_norm)
    (features, _), *_ = rows
    np.testing.assert_allclose(features * SIMPLE.row_norm, np.asarray(SIMPLE.transform(CLEAN)), rtol=1e-6)


def test_many_levels_come_sparse_with_the_same_features(monkeypatch) -> None:
    columns = dpsco.PublicColumns(ranges={"age": (0, 100)}, hashed={"city": 200}, missing=True)
    sparse = columns.transform(FRAME)
    assert sparse.feature_norm == columns.row_norm
    monkeypatch.setattr("dpsco.rows.public_columns.SPARSE_FROM", 10**9)
    np.testing.assert_array_equal(sparse.toarray(), columns.transform(FRAME))


def test_a_masked_date_is_missing_whatever_another_cell_makes_of_the_type() -> None:
    columns = dpsco.PublicColumns(dates={"d": ("2000-01-01", "2010-01-01")}, missing=True)
    days = [np.datetime64(f"200{k}-01-01") for k in range(1, 6)]
    dates = np.ma.array(days, mask=[0, 1, 0, 0, 0])
    objects = np.ma.array([*days[:4], "?"], mask=[0, 1, 0, 0, 0], dtype=object)
    one, two = columns.transform({"d": dates}), columns.transform({"d": objects})
    assert np.array_equal(one[:4], two[:4])
    assert one[1].tolist() == [0.5, 1.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("missing", [False, True])
def test_no_cell_makes_a_thread_warn(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's settings hold for one thread: helpers encode the columns of a large table, and 1e300 is no float32."""
    caught: list[BaseException] = []

    def elsewhere(work: Any, items: Any) -> None:
        def run() -> None:
            try:
                for item in items:
                    work(item)
            except RuntimeWarning as warning:
                caught.append(warning)

        helper = threading.Thread(target=run)
        helper.start()
        helper.join()

    monkeypatch.setattr(public_columns, "_SHARED_ROWS", 2)
    monkeypatch.setattr(public_columns, "for_each", elsewhere)  # as if a helper had taken all columns
    cells = np.array([1.0, 1e300, np.inf])
    columns = dpsco.PublicColumns(["a"], ranges={"b": (-1e9, 1e9)}, log=["b"], missing=missing)
    found = columns.transform({"a": cells, "b": cells})
    assert not caught
    assert found[:, 0].tolist() == [1.0, 0.0, 0.0]
