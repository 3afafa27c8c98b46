"""Columns of any container by name, read as what was declared of them: numbers, text or dates.

Arrays and lists of rows have columns "0", "1", ... by position. What is declared decides how a column is read; its type
decides at most that it is refused by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.cells import Coded, label_text
from dpsco.rows.column_types import readable
from dpsco.rows.containers import (
    as_array,
    column_cells,
    column_numbers,
    column_texts,
    frame_columns,
    frame_names,
    is_frame,
    plain_column,
)
from dpsco.rows.csr import is_sparse
from dpsco.rows.protocols import family, listed

__all__ = ["table_of"]

_MICROSECOND = datetime.timedelta(microseconds=1)


def table_of(data: Any, reads: Mapping[str, str]) -> dict[str, Array | Coded]:
    """Return the columns that ``reads`` names, each read as "number", "text" or "date".

    Raises
    ------
    DataError
        If a column is absent, there twice, longer than another, or of a type that is not read (column_types.py); or if
        ``data`` has no columns. The message names columns and quotes no cell.
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
    if family(data) == "polars lazy":
        data = data.collect()
    if is_frame(data):
        names, columns = frame_names(data), frame_columns(data)
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
    what = f"The column {name!r}"
    if kind == "date":
        return _dates(plain_column(column, what), what)
    if kind == "number":
        return column_numbers(column, what)
    texts, codes = column_texts(column, what=what)
    return Coded(tuple(texts), codes)


def _dates(column: Any, what: str) -> Coded:
    """Return a plain column as texts that begin with a date, empty where a cell holds none."""
    form = readable(column, what, dates=True)
    if family(column) == "polars column" and column.dtype.is_float():
        raise DataError(
            f"{what} was declared as dates and holds numbers, by its type {column.dtype}. polars makes such a column "
            "of dates where one cell is a number or a NaN, and the dates are lost: state schema=..., or write text."
        )
    categories: Any = getattr(getattr(column, "dtype", None), "categories", None)
    if family(column) == "pandas column" and categories is not None:
        held = _dates(plain_column(categories), what)
        return Coded(held.values, np.append(held.codes, -1)[np.asarray(column.codes, dtype=np.int64)])
    if form == "dates":
        values, codes = np.unique(_days(column), return_inverse=True)  # NaT is equal to itself here
        texts = ["" if np.isnat(day) else str(day) for day in values]
        return Coded(tuple(texts), codes.reshape(-1).astype(np.int64))
    texts = [_date_text(cell) for cell in column_cells(column)]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return Coded(tuple(places), np.array([places[text] for text in texts], dtype=np.int64))


def _days(column: Any) -> NDArray[Any]:
    """Return a plain column of a type of dates as days in UTC.

    Arrow and polars have one zone per column, that of the first cell: on the clock of that zone one row would decide
    on the days of all others. Every container keeps the time in UTC.
    """
    kind = family(column)
    if kind == "polars column":
        return _days(column.to_arrow())
    if kind == "arrow column" or hasattr(column.dtype, "pyarrow_dtype"):
        from dpsco.rows.readers.arrow_columns import arrow_days

        return arrow_days(column if kind == "arrow column" else column.__arrow_array__())
    array: NDArray[Any] = column.tz_convert(None).to_numpy() if kind == "pandas column" else np.asarray(column)
    days: NDArray[Any] = array.astype("datetime64[D]")
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
