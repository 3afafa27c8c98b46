"""Columns and tables of any container as float64 numbers or texts, each cell by its own rule (cells.py).

``protocols.family`` lists the containers that are known, ``column_types`` the types that their columns may have; all
others are refused. A column of numbers is cast at once; anything else goes cell by cell. Both ways agree on every cell.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.cells import id_message, id_text, label_text
from dpsco.rows.column_types import kind_without_ids, readable
from dpsco.rows.lists import cells_numbers, rows_numbers
from dpsco.rows.protocols import family, listed, offers, refuse_container

__all__ = [
    "as_array",
    "column_cells",
    "column_length",
    "column_numbers",
    "column_texts",
    "frame_columns",
    "frame_names",
    "is_frame",
    "is_rows",
    "plain_column",
    "table_numbers",
    "width_message",
]

_ONE_TYPE = (str, bytes, int, float, bool)
"""Types of cells whose equal cells have one text."""


def is_frame(data: Any) -> bool:
    """Return whether ``data`` is a table of named columns: pandas, polars or Arrow."""
    return family(data) in ("pandas table", "polars table", "arrow table")


def is_rows(data: Any) -> bool:
    """Return whether ``data`` is a plain sequence of rows, which does not state how long a row is."""
    return isinstance(data, (list, tuple)) or (isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype == object)


def column_length(column: Any) -> int:
    """Return the number of cells of a column; ``DataError`` if it has no length."""
    try:
        return len(column)
    except TypeError:
        raise DataError("Expected y to be one column with a label per row.") from None


def plain_column(column: Any, what: str = "y") -> Any:
    """Return a column as one of: list, tuple, array of one axis, extension array of pandas, column of polars or Arrow.

    Raises
    ------
    DataError
        If ``column`` is none of the containers of ``protocols.family``, or more than one column.
    """
    kind = family(column)
    if kind in ("pandas table", "polars table", "arrow table") and column.shape[1] == 1:
        return plain_column(frame_columns(column)[0], what)
    if kind in ("list", "polars column", "arrow column"):
        return listed(column)
    if kind == "pandas column":
        if isinstance(column.dtype, np.dtype) or type(column.dtype).__name__ == "NumpyEADtype":
            return column.to_numpy()
        return column.array if offers(column, "array") else column
    if kind not in ("array", "memory"):
        raise refuse_container(column, what)
    array = as_array(column, what)
    if isinstance(array, np.matrix):
        array = np.asarray(array)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"Expected {what} to be one column with a cell per row, got {array.ndim} dimensions.")
    return array


def column_numbers(column: Any, what: str = "y") -> Array:
    """Return a column as float64, NaN where a cell holds no number."""
    column = plain_column(column, what)
    return _real(column) if readable(column, what) == "numbers" else cells_numbers(_cells(column))


def column_texts(column: Any, of: str = "label", what: str | None = None) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different texts of a column and the position of each cell's; text "" stands for a missing cell.

    ``of="id"`` reads ids, ``of="label"`` labels: cells.py says how they differ.

    Raises
    ------
    DataError
        If ids have a type of floating point, which several ids share beyond 2^53, or of booleans, or a column has a
        type that is not read.
    """
    rule: Callable[[Any], str] = id_text if of == "id" else label_text
    what = what or ("The column of ids" if of == "id" else "y")
    column = plain_column(column, what)
    form = readable(column, what)
    if of == "id" and (kind := kind_without_ids(column)):
        raise DataError(id_message(what, kind))
    if form == "numbers" and isinstance(column, np.ndarray) and not isinstance(column, np.ma.MaskedArray):
        column = _real(column) if column.dtype.kind == "V" else column  # then a rule per different value
        values, codes = np.unique(column, return_inverse=True)
        cells, codes = list(values), codes.reshape(-1).astype(np.int64)
    elif len(kinds := set(map(type, cells := _cells(column)))) == 1 and kinds.pop() in _ONE_TYPE:
        places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
        cells, codes = list(places), np.array([places[cell] for cell in cells], dtype=np.int64)
    else:
        codes = np.arange(column_length(column), dtype=np.int64)
    texts = [rule(cell) for cell in cells]
    different = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(different), np.array([different[text] for text in texts], dtype=np.int64)[codes]


def column_cells(column: Any, what: str = "y") -> list[Any]:
    """Return the cells of a column as Python objects."""
    column = plain_column(column, what)
    readable(column, what)
    return _cells(column)


def _cells(column: Any) -> list[Any]:
    """Return the cells of a plain column of a type that is read."""
    kind = family(column)
    if kind == "list":
        return list(column)
    if kind == "arrow column":
        from dpsco.rows.readers.arrow_columns import arrow_cells

        return arrow_cells(column)
    if kind == "polars column":
        return list(column.to_list())
    return _array_cells(column) if isinstance(column, np.ndarray) else _extension_cells(column)


def _extension_cells(column: Any) -> list[Any]:
    """Return the cells of an extension array of pandas: its type decides how, never a cell."""
    kind = column.dtype
    if hasattr(kind, "categories"):
        known = [*map(_standing_for, column_cells(kind.categories)), None]  # code -1 finds the last
        return [known[code] for code in column.codes.tolist()]
    if hasattr(kind, "pyarrow_dtype") or getattr(kind, "storage", "") == "pyarrow":
        from dpsco.rows.readers.arrow_columns import arrow_cells

        return arrow_cells(column.__arrow_array__())  # text need not be UTF-8
    return list(column.tolist())


def _array_cells(array: NDArray[Any]) -> list[Any]:
    """Return the cells of an array, row by row; None for text with a letter that Unicode does not have."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "V":  # bfloat16 and its kin
        return list(_real(flat).tolist())
    try:
        return list(flat.tolist())
    except (SystemError, ValueError):
        return [_letters(flat[place : place + 1]) for place in range(len(flat))]


def _letters(cell: NDArray[Any]) -> Any:
    try:
        return cell.tolist()[0]
    except (SystemError, ValueError):
        return None


def table_numbers(data: Any, width: int) -> Array:
    """Return rows as float64 of shape (rows, width), NaN where a cell holds no number or a row is not ``width`` long.

    Raises
    ------
    DataError
        If a table or a two-dimensional array has another number of columns or a type that is not read, or ``data`` is
        no table: facts about the container, which no row decides.
    """
    data = listed(data)
    if is_frame(data):
        return _frame(data, width)
    if isinstance(data, (list, tuple)):
        return rows_numbers(data, width)
    array = as_array(data)
    if array.ndim == 1 and array.dtype == object:
        return rows_numbers(list(array), width)
    if array.ndim != 2:
        raise DataError(f"Expected X to have shape (rows, features), got {array.ndim} dimensions. Reshape your data.")
    if array.shape[1] != width:
        raise DataError(width_message(array.shape[1], width))
    if readable(array, "X") == "numbers":
        return _real(array)
    cells = _array_cells(np.asarray(array) if isinstance(array, np.matrix) else array)
    return rows_numbers([cells[start : start + width] for start in range(0, len(cells), width)], width)


def width_message(got: int, wanted: int) -> str:
    """Return the text of the error about a table of another width."""
    return f"Expected rows of {wanted} features (problem.dimension={wanted}), got {got}. Fix the data or the problem."


def _frame(frame: Any, width: int) -> Array:
    columns = frame_columns(frame)
    if len(columns) != width:
        raise DataError(width_message(len(columns), width))
    out = np.empty((len(columns[0]) if columns else 0, width), order="F")
    for place, (name, column) in enumerate(zip(frame_names(frame), columns, strict=True)):
        out[:, place] = column_numbers(column, f"The column {name!r} of X")
    return out


def _standing_for(category: Any) -> Any:
    """Return a category as a whole number if it is equal to one that a column can hold beside it.

    pandas keeps one category for cells that are equal: the first of 1, True and Fraction(1), or of 2**60 and 2.0**60.
    So one row decides which of them stands for the others, and a boolean or a float beyond 2^53, which is no id, would
    take away the id of another unit.
    """
    try:
        if not isinstance(category, (numbers.Complex, np.bool_)):  # a decimal has the id of its number by itself
            return category
        real: Any = getattr(category, "real", category)
        whole = int(real)
        return whole if category == whole else category
    except Exception:  # not finite, or whatever an object raises about itself
        return category


def frame_columns(frame: Any) -> list[Any]:
    """Return the columns of a table, in order."""
    kind = family(frame)
    if kind == "pandas table":
        return [frame.iloc[:, place] for place in range(frame.shape[1])]
    return list(frame.get_columns() if kind == "polars table" else frame.columns)


def frame_names(frame: Any) -> list[str]:
    """Return the names of the columns of a table, in order."""
    return [str(name) for name in (frame.schema.names if family(frame) == "arrow table" else frame.columns)]


def as_array(data: Any, what: str = "X") -> NDArray[Any]:
    """Return ``data`` as the NumPy array that it is, or that it hands out by its own type.

    Raises
    ------
    DataError
        If it is another container, or NumPy cannot make an array of it. No cell is quoted.
    """
    if (kind := family(data)) == "array":
        array: NDArray[Any] = data
        return array
    if kind != "memory":
        raise refuse_container(data, what)
    try:
        return np.asarray(data)
    except Exception:  # the text of a foreign error may quote cells
        raise refuse_container(data, what) from None


def _real(column: Any) -> Array:
    """Return a plain column, or an array, of a type of numbers as float64, missing cells as NaN."""
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        if isinstance(column, np.ma.MaskedArray):
            return np.ma.filled(column.astype(np.float64), np.nan)
        if isinstance(column, np.ndarray):
            return np.asarray(column, dtype=np.float64)
        kind = family(column)
        if kind == "polars column":
            held = column.cast(int) if column.dtype.__class__.__name__ == "Boolean" else column
            return np.asarray(held.to_numpy(), dtype=np.float64)
        if kind == "pandas column" and not hasattr(column.dtype, "pyarrow_dtype"):
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    from dpsco.rows.readers.arrow_columns import arrow_real

    return arrow_real(column if kind == "arrow column" else column.__arrow_array__())
