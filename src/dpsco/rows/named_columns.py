"""Columns of any container by name, read as what was declared of them: numbers, text or dates.

Arrays and lists of rows have columns "0", "1", ... by position. What is declared decides how a column is read; its type
decides at most that it is refused by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.cells import Coded, label_text
from dpsco.rows.containers import (
    as_array,
    column_cells,
    column_length,
    column_numbers,
    column_texts,
    frame_columns,
    refuse_times,
)
from dpsco.rows.containers import is_frame as _is_frame
from dpsco.rows.csr import is_sparse
from dpsco.rows.lists import listed
from dpsco.rows.protocols import offers

__all__ = ["table_of"]

_MICROSECOND = datetime.timedelta(microseconds=1)


def table_of(data: Any, reads: Mapping[str, str]) -> dict[str, Array | Coded]:
    """Return the columns that ``reads`` names, each read as "number", "text" or "date".

    Raises
    ------
    DataError
        If a column is absent, there twice, longer than another, or of a type that cannot hold it; or if ``data`` has no
        columns. The message names columns and quotes no cell.
    """
    columns, names = _by_name(data)
    if twice := sorted({name for name in reads if names.count(name) > 1}):
        raise DataError(
            f"The table has several columns named {', '.join(map(repr, twice))}. Rename or drop all but one."
        )
    if absent := [name for name in reads if name not in names]:
        raise DataError(f"The table has no column {', '.join(map(repr, absent))}, which was declared.")
    table = {name: _read(name, columns(name), kind) for name, kind in reads.items()}
    if len({len(column) for column in table.values()}) > 1:
        raise DataError("The columns have different lengths: expected one cell per row in each.")
    return table


def _by_name(data: Any) -> tuple[Callable[[str], Any], list[str]]:
    """Return a function from names to columns, and all names."""
    if isinstance(data, Mapping):
        held = {str(name): column for name, column in data.items()}
        return held.__getitem__, list(held)
    if offers(data, "collect_schema") and offers(data, "collect"):  # polars, lazy
        data = data.collect()
    if _is_frame(data):
        names = [str(name) for name in getattr(data, "column_names", data.columns)]
        columns = frame_columns(data)
        return lambda name: columns[names.index(name)], names
    if is_sparse(data):
        raise DataError("Expected a table with the declared columns, got a sparse matrix. Pass the raw table.")
    data = listed(data)
    if isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype == object:
        data = list(data)
    if isinstance(data, (list, tuple)):
        rows = list(data)
        return lambda name: [_cell(row, name) for row in rows], _Positions()
    array = as_array(data)
    if array.ndim != 2:
        raise DataError(f"Expected a table with named columns or an array of rows, got {array.ndim} dimensions.")
    return lambda name: array[:, int(name)], [str(place) for place in range(array.shape[1])]


class _Positions(list[str]):
    """Names that a list of rows can have: any position, since no row decides how long a row is; keys of dicts."""

    def __contains__(self, name: object) -> bool:
        return True


def _cell(row: Any, name: str) -> Any:
    """Return one cell of one row, None if the row does not have it."""
    try:
        if isinstance(row, Mapping):
            return row.get(name)
        return None if isinstance(row, (str, bytes)) or not name.isdecimal() else row[int(name)]
    except Exception:  # whatever an object raises about itself, it is not a row
        return None


def _read(name: str, column: Any, kind: str) -> Array | Coded:
    column = _series(column)
    if hasattr(column, "shape") and len(column.shape) > 1:
        raise DataError(f"The column {name!r} has {len(column.shape)} dimensions. Expected one cell per row.")
    if kind == "date":
        return _dates(column)
    if _is_temporal(column) and not offers(column, "iloc"):  # pandas finds times by looking at all cells
        raise DataError(f"The column {name!r} holds times. Declare it in dates=, or convert it.")
    if kind == "number":
        return column_numbers(column)
    texts, codes = column_texts(column)
    return Coded(tuple(texts), codes)


def _series(column: Any) -> Any:
    """Return an index or an array of pandas as a series of the same type; any other column as it is.

    pandas finds the type of all three by looking at all cells, so they are read in one way: whatever the type, a cell
    has the value that it has among objects.
    """
    array, index = offers(column, "_from_sequence"), offers(column, "to_series") and not offers(column, "levels")
    if offers(column, "iloc") or not (array or index):
        return column
    return import_module("pandas").Series(column, dtype=column.dtype)  # the type is stated: objects stay objects


def _is_temporal(column: Any) -> bool:
    """Return whether the type of a column declares times."""
    kind: Any = column.type if offers(column, "to_pylist") else getattr(column, "dtype", None)
    if hasattr(kind, "is_temporal"):  # polars
        return bool(kind.is_temporal())
    if offers(column, "to_pylist") or hasattr(kind, "pyarrow_dtype"):
        from dpsco.rows.readers.source import arrow

        types, kind = arrow("pyarrow").types, getattr(kind, "pyarrow_dtype", kind)
        coded = types.is_dictionary(kind) or types.is_run_end_encoded(kind)
        return bool(types.is_temporal(kind.value_type if coded else kind))
    return getattr(kind, "kind", "O") in "mM"


def _dates(column: Any) -> Coded:
    """Return a column as texts that begin with a date, empty where a cell holds none."""
    categories: Any = getattr(getattr(column, "dtype", None), "categories", None)
    if hasattr(categories, "to_series") and offers(column, "iloc"):  # pandas
        held = _dates(categories.to_series())
        codes = np.asarray(getattr(column, "array", column).codes, dtype=np.int64)
        return Coded(held.values, np.append(held.codes, -1)[codes])
    if _is_temporal(column):
        days = _days(column)
        if days is not None:
            values, codes = np.unique(days, return_inverse=True)  # NaT is equal to itself here
            texts = ["" if np.isnat(day) else str(day) for day in values]
            return Coded(tuple(texts), codes.reshape(-1).astype(np.int64))
    refuse_times(column)  # without a date: Arrow makes such times of numbers, 20240229 too, where one cell is a time
    texts = [_date_text(cell) for cell in column_cells(column)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Coded(
        tuple(places), np.array([places[text] for text in texts], dtype=np.int64).reshape(column_length(column))
    )


def _days(column: Any) -> NDArray[Any] | None:
    """Return a column of a type of times as days in UTC; None for times without a date.

    Arrow and polars have one zone per column, that of the first cell: on the clock of that zone one row would decide
    on the days of all others. Every container keeps the time in UTC.
    """
    if offers(column, "to_pylist") or hasattr(getattr(column, "dtype", None), "pyarrow_dtype"):
        from dpsco.rows.readers.arrow import arrow_days

        return arrow_days(column if offers(column, "to_pylist") else column.array.__arrow_array__())
    if offers(column, "iloc"):  # pandas
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert(None)
        array = np.asarray(column)
    elif offers(column, "to_arrow"):  # polars
        return _days(column.to_arrow())
    else:
        array = np.asarray(column)
    if array.dtype.kind != "M":
        return None
    days = array.astype("datetime64[D]")
    if isinstance(column, np.ma.MaskedArray):  # what a mask hides is no cell
        days[np.ma.getmaskarray(column)] = np.datetime64("NaT", "D")
    return days


def _day_in_utc(cell: Any) -> Any:
    """Return the day of one time with a zone."""
    if hasattr(cell, "to_datetime64"):  # pandas
        return cell.to_datetime64().astype("datetime64[D]")
    offset = cell.utcoffset()
    time: Any = np.datetime64(cell.replace(tzinfo=None), "us") - np.timedelta64(offset // _MICROSECOND, "us")
    return time.astype("datetime64[D]")


def _date_text(cell: Any) -> str:
    """Return the text of a date, or of a cell that may be one."""
    try:
        if isinstance(cell, datetime.datetime):
            cell = cell.date() if cell.tzinfo is None else _day_in_utc(cell)  # NaT is one, and says so
        if isinstance(cell, datetime.date):
            return cell.isoformat()
        if isinstance(cell, np.datetime64):
            return "" if np.isnat(cell) else str(cell.astype("datetime64[D]"))
    except Exception:  # outside of Python's range
        return ""
    return label_text(cell)  # 20240229 is a date as a number, too: readers make numbers of a column of such texts
