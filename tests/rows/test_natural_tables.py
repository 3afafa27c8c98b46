"""Tables as people make them, with one odd cell: whatever type a package chooses, the other rows' sum keeps its bits.

Every ordinary column x odd cell x way to make a table x entry point. The row with the odd cell has no label in either
table, so it counts in neither: the sums of both tables before the noise must be equal, bit for bit, in every round. A
way may choose a type that is refused; then the message says so and shows no cell. Where a package has changed the other
cells itself (a number beside a record in polars, float32 beside text), nothing is left to compare; those are counted.
The fast suite runs a fixed part, `make test-slow` all.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import io
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.rows.combinations import EXHAUSTIVE, Tally, in_share
from tests.rows.containers_under_test import Nothing, Unmakeable, object_array

import dpsco
from dpsco.audit.recording import observe
from dpsco.errors import DataError
from dpsco.rows.cells import label_text, number
from dpsco.rows.file_stream import FileRows, Labels

ROWS, PLACE = 24, 5
NAMES = ("a", "b")
LABELS = [k % 2 if k != PLACE else None for k in range(ROWS)]
Cells = list[Any]


def _around(values: Cells) -> Cells:
    return [values[k % len(values)] for k in range(ROWS)]


BASES: dict[str, Cells] = {
    "floats": _around([0.1, 0.5, -0.7, 0.25, 0.0]),
    "whole numbers": _around([0, 1, 2, 3, -1]),
    "NumPy float32": [np.float32(value) for value in _around([0.1, 0.5, -0.7, 0.3])],
    "NumPy int64": [np.int64(value) for value in _around([0, 1, 2, 3])],
    "beyond 2^53": [2**60 + 7919 * k for k in range(ROWS)],
    "booleans": _around([True, False, True]),
    "text": _around(["x", "y", "1", "0.5"]),
    "bytes": _around([b"x", b"y", b"1", b"0.5"]),
    "decimals": [decimal.Decimal(text) for text in _around(["0.1", "0.25", "1.7"])],
    "dates as text": _around(["2020-01-05", "2021-02-03", "2024-02-29"]),
    "dates": _around([datetime.date(2020, 1, 5), datetime.date(2024, 2, 29)]),
    "times": _around([datetime.datetime(2020, 1, 5, 3), datetime.datetime(2024, 2, 29)]),
}
DAY = datetime.datetime(2021, 2, 3, 4)
ODD: dict[str, Any] = {
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "True": True,
    "3": 3,
    "0.25": 0.25,
    "2^70": 2**70,
    "10^400": 10**400,
    "float32": np.float32(0.1),
    "longdouble": np.longdouble(1) / 3,
    "uint64": np.uint64(2**63),
    "complex": 1 + 2j,
    "real complex": 1 + 0j,
    "text": "z",
    "empty": "",
    "number in text": "1.5",
    "true": "true",
    "bytes": b"z",
    "no text": b"\xff",
    "decimal": decimal.Decimal("0.123456789012345678901234567"),
    "set": {1},
    "no decimal": decimal.Decimal("NaN"),
    "third": fractions.Fraction(1, 3),
    "date": DAY.date(),
    "day": DAY,
    "zone": DAY.replace(tzinfo=datetime.UTC),
    "clock": DAY.time(),
    "span": datetime.timedelta(3),
    "datetime64": np.datetime64("2021-01-01"),
    "timedelta64": np.timedelta64(3, "D"),
    "NaT": pd.NaT,
    "NA": pd.NA,
    "period": pd.Period("2021"),
    "interval": pd.Interval(0, 1),
    "list": [1.0],
    "record": {"q": 1},
    "empty record": {},
    "array": np.ones(2),
    "object": Nothing(),
}


def _records(columns: list[Cells]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]


def _named(columns: list[Cells]) -> dict[str, Cells]:
    return dict(zip(NAMES, columns, strict=True))


def _parts(make: Callable[[list[Cells]], Any], join: Callable[[list[Any]], Any]) -> Callable[[list[Cells]], Any]:
    """The table of the odd row made by itself, between those of the rows before and after it."""
    edges = [(0, PLACE), (PLACE, PLACE + 1), (PLACE + 1, ROWS)]
    return lambda columns: join([make([column[i:j] for column in columns]) for i, j in edges])


def _csv(columns: list[Cells]) -> io.StringIO:
    return io.StringIO(pd.DataFrame({n: object_array(c) for n, c in _named(columns).items()}).to_csv(index=False))


def _pandas(columns: list[Cells]) -> Any:
    return pd.DataFrame(_named(columns))


WAYS: dict[str, Callable[[list[Cells]], Any]] = {
    "list of rows": lambda columns: [list(row) for row in zip(*columns, strict=True)],
    "np.array of rows": lambda columns: np.array([list(row) for row in zip(*columns, strict=True)]),
    "np.array of columns": lambda columns: np.column_stack([np.array(column) for column in columns]),
    "np.concatenate": _parts(lambda c: np.array([list(row) for row in zip(*c, strict=True)]), np.concatenate),
    "pandas of columns": _pandas,
    "pandas of records": lambda columns: pd.DataFrame(_records(columns)),
    "pandas of rows": lambda columns: pd.DataFrame(list(zip(*columns, strict=True)), columns=NAMES),
    "pandas.concat": _parts(_pandas, lambda parts: pd.concat(parts, ignore_index=True)),
    "pandas.convert_dtypes": lambda columns: _pandas(columns).convert_dtypes(),
    "pandas of Arrow": lambda columns: _pandas(columns).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda columns: _pandas(columns).astype("category"),
    "pandas.to_numpy": lambda columns: _pandas(columns).to_numpy(),
    "pandas.read_csv": lambda columns: pd.read_csv(_csv(columns)),
    "pandas to Arrow": lambda columns: pa.Table.from_pandas(_pandas(columns)),
    "Arrow of columns": lambda columns: pa.table(_named(columns)),
    "Arrow of records": lambda columns: pa.Table.from_pylist(_records(columns)),
    "Arrow joined": _parts(lambda c: pa.table(_named(c)), lambda p: pa.concat_tables(p, promote_options="permissive")),
    "Arrow to pandas": lambda columns: pa.table(_named(columns)).to_pandas(),
    "polars of columns": lambda columns: pl.DataFrame(_named(columns), strict=False),
    "polars of records": lambda columns: pl.from_dicts(_records(columns), infer_schema_length=None),
    "polars.concat": _parts(lambda c: pl.DataFrame(_named(c)), lambda p: pl.concat(p, how="vertical_relaxed")),
    "polars.read_csv": lambda columns: pl.read_csv(_csv(columns), infer_schema_length=None),
    "polars to Arrow": lambda columns: pa.table(pl.DataFrame(_named(columns), strict=False)),
    "polars to pandas": lambda columns: pl.DataFrame(_named(columns), strict=False).to_pandas(),
}
COLUMNS = {
    "numbers": dpsco.PublicColumns(ranges={"a": (-2, 2)}, numbers=["b"]),
    "levels": dpsco.PublicColumns(hashed={"a": 64}, booleans=["b"]),
    "days": dpsco.PublicColumns(dates={"a": ("2000-01-01", "2030-01-01")}, ranges={"b": (0, 1)}),
}
POSITIONS = {
    "numbers": dpsco.PublicColumns(ranges={"0": (-2, 2)}, numbers=["1"]),
    "levels": dpsco.PublicColumns(hashed={"0": 64}, booleans=["1"]),
    "days": dpsco.PublicColumns(dates={"0": ("2000-01-01", "2030-01-01")}, ranges={"1": (0, 1)}),
}
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=2)
PLAN = dpsco.Plan(
    problem=PROBLEM,
    n=ROWS,
    budget=dpsco.Budget(1.0, 1e-5),
    method=dpsco.AcceleratedSRGD(rounds=2, beta=0.5, clip=1.0, z_step="listed", mechanism="sqrt"),
)


def _model(**more: Any) -> Any:
    facts: dict[str, Any] = {"classes": [0, 1], "invalid_rows": "zero", "n_features": 2, "random_state": 1}
    return dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, rounds=2, n=ROWS, shuffle=False, **facts, **more)


def by_train(x: Any, folder: Path) -> None:
    dpsco.train(PLAN, dpsco.stream(x, LABELS, non_finite="zero"), key=bytes(32))


def by_fit(x: Any, folder: Path) -> None:
    _model().fit(x, LABELS)


def by_partial_fit(x: Any, folder: Path) -> None:
    _model().partial_fit(x, LABELS)


def by_columns(kind: str) -> Callable[[Any, Path], None]:
    def fit(x: Any, folder: Path) -> None:
        named = not isinstance(x, (list, np.ndarray))
        _model(columns=(COLUMNS if named else POSITIONS)[kind]).fit(x, LABELS)

    return fit


def by_file(kind: str) -> Callable[[Any, Path], None]:
    """What the package itself writes as Parquet."""

    def train(x: Any, folder: Path) -> None:
        path = folder / "rows.parquet"
        try:
            if isinstance(x, pd.DataFrame):
                x.assign(y=pd.Series(LABELS, dtype=object).map(str)).to_parquet(path)
            elif isinstance(x, pl.DataFrame):
                x.with_columns(y=pl.Series(list(map(str, LABELS)))).write_parquet(path)
            elif isinstance(x, pa.Table):
                pq.write_table(x.append_column("y", pa.array(list(map(str, LABELS)))), path)
            else:
                raise Unmakeable
        except BaseException as error:  # the writer cannot hold such a column
            raise Unmakeable from error
        for features, labels in FileRows(path, Labels("y", classes=("0", "1")), COLUMNS[kind]):
            kept = np.isfinite(labels)
            rows = features.toarray() if hasattr(features, "toarray") else np.asarray(features)
            _FILE.append(rows[kept].tobytes() + labels[kept].tobytes())

    return train


_FILE: list[bytes] = []
_FAILED: list[Exception] = []
ENTRIES: dict[str, Callable[[Any, Path], None]] = {
    "train": by_train,
    "fit": by_fit,
    "partial_fit": by_partial_fit,
    **{f"fit, {kind}": by_columns(kind) for kind in COLUMNS},
    **{f"file, {kind}": by_file(kind) for kind in COLUMNS},
}


def outcome(entry: str, table: Any, folder: Path) -> list[bytes] | None:
    """The sums of all rounds (of a file: its rows), or None if the table is refused by its type."""
    _FILE.clear()
    _FAILED.clear()

    def run() -> bytes:
        try:
            ENTRIES[entry](table, folder)
        except Exception as error:  # ``observe`` keeps its type only
            _FAILED.append(error)
        return b""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = observe(run)
    if failed := [error for error in _FAILED if not (isinstance(error, DataError) and "type" in str(error))]:
        raise failed[0]
    if _FAILED:
        return None
    return [total.tobytes() for total in seen.sums] + list(_FILE)


def made(way: str, base: str, odd: Any = None) -> Any:
    cells = [*BASES[base]]
    if odd is not None:
        cells[PLACE] = ODD[odd]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = WAYS[way]([cells, [0.5] * ROWS])
            assert len(table) == ROWS
            return table
    except BaseException as error:  # polars panics on some objects
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise Unmakeable from error


def held(table: Any) -> list[tuple[float, str]]:
    """The cells of the first column as the package itself hands them out, without the odd one."""
    if isinstance(table, (list, np.ndarray)):
        cells = [row[0] for row in (table if isinstance(table, list) else table.astype(object))]
    else:
        column = table["a"]
        cells = column.to_pylist() if isinstance(table, pa.Table) else column.to_list()
    return [(number(cell), label_text(cell) or repr(cell)) for k, cell in enumerate(cells) if k != PLACE]


def compare(entry: str, way: str, base: str, odd: str, folder: Path, known: dict[Any, Any]) -> None:
    clean, other = made(way, base), made(way, base, odd)
    if (way, base) not in known:
        known[way, base] = outcome(entry, clean, folder)
    one, two = known[way, base], outcome(entry, other, folder)
    if one is None or two is None or one == two:
        return
    if repr(held(clean)) != repr(held(other)):
        raise Unmakeable  # the package has changed other cells before the library saw them
    raise AssertionError(f"{entry}: another row's contribution has changed")


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("entry", ENTRIES)
def test_one_odd_cell_of_a_table_as_people_make_it_changes_no_other_rows_sum(
    entry: str, every: bool, tmp_path: Path, record_property: Any
) -> None:
    tally, known = Tally(), dict[Any, Any]()
    for way, base, odd in itertools.product(WAYS, BASES, ODD):
        if every or (in_share(entry, way, base, odd) and in_share(odd, base, way)):
            tally.run(f"{way}, {base}, {odd}", lambda w=way, b=base, o=odd: compare(entry, w, b, o, tmp_path, known))
    tally.done(record_property, 2000 if every else 10)
