"""Columns and tables of any container as float64 numbers, each cell by its own rule (cells.py).

Known containers: lists and tuples, NumPy arrays of any type (also memory-mapped, masked, of objects), pandas, polars,
Arrow, and anything that NumPy can turn into an array (PyTorch, JAX). A whole array of numbers is cast at once; anything
else goes cell by cell. Both ways agree on every cell: a cast of a real number to float64 is a function of that number,
and a container that NumPy finds to hold more than real numbers (text, objects, complex) is never cast.
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
from dpsco.rows.lists import cells_numbers, listed, rows_numbers
from dpsco.rows.protocols import offers

__all__ = [
    "as_array",
    "column_cells",
    "column_length",
    "column_numbers",
    "column_texts",
    "frame_columns",
    "is_frame",
    "is_rows",
    "refuse_times",
    "table_numbers",
    "width_message",
]

_REAL = "fiub"


def is_frame(data: Any) -> bool:
    """Return whether ``data`` is a table of named columns: pandas, polars or Arrow."""
    return offers(data, "columns") and offers(data, "shape") and not isinstance(data, np.ndarray)


def is_rows(data: Any) -> bool:
    """Return whether ``data`` is a plain sequence of rows, which does not state how long a row is."""
    return isinstance(data, (list, tuple)) or (isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype == object)


def column_length(column: Any) -> int:
    """Return the number of cells of a column; ``DataError`` if it has no length."""
    try:
        return len(column)
    except TypeError:
        raise DataError("Expected y to be one column with a label per row.") from None


def column_numbers(column: Any) -> Array:
    """Return a column as float64, NaN where a cell holds no number."""
    if is_frame(column):
        column = frame_columns(column)[0]
    refuse_times(column := listed(column))
    if (known := _array(column)) is not None:
        return _real(known)
    return cells_numbers(column_cells(column))


def column_texts(column: Any, of: str = "label") -> tuple[list[str], NDArray[np.int64]]:
    """Return the different texts of a column and the position of each cell's; text "" stands for a missing cell.

    ``of="id"`` reads ids, ``of="label"`` labels: cells.py says how they differ.

    Raises
    ------
    DataError
        If ids have a type of floating point, which several ids share beyond 2^53, or of booleans, or an array a type
        of times.
    """
    rule: Callable[[Any], str] = id_text if of == "id" else label_text
    if is_frame(column):
        column = frame_columns(column)[0]
    refuse_times(column := listed(column))
    if of == "id" and (kind := _kind_without_ids(column)):
        raise DataError(id_message("The column of ids", kind))
    known = _plain(column)
    if known is not None:  # a rule per different value
        values, codes = np.unique(known, return_inverse=True)
        cells, codes = list(values), codes.reshape(-1).astype(np.int64)
    elif set(map(type, cells := column_cells(column))) == {str}:  # a rule per different text
        places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
        cells, codes = list(places), np.array([places[cell] for cell in cells], dtype=np.int64)
    else:
        codes = np.arange(column_length(column), dtype=np.int64)
    texts = [rule(cell) for cell in cells]
    different = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return list(different), np.array([different[text] for text in texts], dtype=np.int64)[codes]


def column_cells(column: Any) -> list[Any]:
    """Return the cells of a column as Python objects."""
    if is_frame(column):
        column = frame_columns(column)[0]
    column = listed(column)
    if isinstance(column, (list, tuple)):
        return list(column)
    if isinstance(column, np.ma.MaskedArray):
        return _array_cells(column)
    if offers(column, "to_pylist"):  # Arrow
        from dpsco.rows.readers.arrow import arrow_cells

        return arrow_cells(column)
    if offers(column, "to_list") or offers(column, "_from_sequence"):  # pandas, polars; an array of pandas
        return _series_cells(column)
    array = np.asarray(column)
    refuse_times(array)
    return _array_cells(array)


def _array_cells(array: NDArray[Any]) -> list[Any]:
    """Return the cells of an array, row by row; None for text with a letter that Unicode does not have."""
    flat = array.reshape(-1)
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
        If a table or a two-dimensional array has another number of columns, or ``data`` is no table: facts about the
        container, which no row decides.
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
    if isinstance(array, np.ma.MaskedArray) and array.dtype.kind in _REAL:
        with np.errstate(all="ignore"):
            return np.ma.filled(array.astype(np.float64), np.nan)
    if array.dtype.kind in _REAL:
        return _real(array)
    refuse_times(array)
    cells = _array_cells(np.asarray(array) if isinstance(array, np.matrix) else array)
    return rows_numbers([cells[start : start + width] for start in range(0, len(cells), width)], width)


def width_message(got: int, wanted: int) -> str:
    """Return the text of the error about a table of another width."""
    return f"Expected rows of {wanted} features (problem.dimension={wanted}), got {got}. Fix the data or the problem."


def refuse_times(column: Any) -> None:
    """Raise ``DataError`` if ``column`` is a NumPy array or an Arrow column of times: its type says it has no number.

    Both packages make whole numbers into times where one cell is a time, and the numbers of the others are lost. Arrow
    columns of records, lists and objects are refused too: polars makes numbers into them where one cell is one.
    """
    if isinstance(column, np.ndarray):
        kind = (column.dtype.name, "times") if column.dtype.kind in "mM" else None
    else:
        kind = _arrow_lost(column) if offers(column, "to_pylist") and offers(column, "type") else None
    if kind is not None:
        raise DataError(
            f"Got an array of the type {kind[0]}, which holds {kind[1]}. Expected numbers: convert it, or leave it "
            "out. (NumPy, Arrow and polars make such a column of numbers where one of them is one: pass a list of "
            "rows.)"
        )


def _arrow_lost(column: Any) -> tuple[str, str] | None:
    """Return the type of an Arrow column and what it holds, if that is times, records or objects; else None."""
    from dpsco.rows.readers.source import arrow

    types, kind = arrow("pyarrow").types, column.type
    value = kind.value_type if types.is_dictionary(kind) or types.is_run_end_encoded(kind) else kind
    if types.is_temporal(value):
        return str(kind), "times"
    return (str(kind), "records") if types.is_nested(value) or types.is_fixed_size_binary(value) else None


def _kind_without_ids(column: Any) -> str | None:
    """Return the name of the column's type if it is one of floating point or booleans, else None."""
    kind = getattr(column, "dtype", None)
    if offers(column, "to_pylist"):
        from dpsco.rows.readers.source import arrow

        own, types = column.type, arrow("pyarrow").types
        kind = getattr(own, "value_type", own)
        return str(own) if types.is_floating(kind) or types.is_boolean(kind) else None
    if kind is None:
        return None
    categories = getattr(kind, "categories", None)
    if categories is not None and hasattr(categories, "dtype"):
        kind = categories.dtype
    polars = hasattr(kind, "is_temporal") and (kind.is_float() or str(kind) == "Boolean")
    other = not hasattr(kind, "kind") and ("float" in str(kind) or "bool" in str(kind))  # PyTorch
    return str(kind) if polars or other or getattr(kind, "kind", "O") in "fcb" else None


def _frame(frame: Any, width: int) -> Array:
    columns = frame_columns(frame)
    if len(columns) != width:
        raise DataError(width_message(len(columns), width))
    out = np.empty((len(columns[0]) if columns else 0, width), order="F")
    for place, column in enumerate(columns):
        out[:, place] = column_numbers(column)
    return out


def _series_cells(column: Any) -> list[Any]:
    """Return the cells of a pandas or polars column, None where its type holds neither numbers nor text.

    The type decides, never a cell: a time may lie outside Python's range, and text need not be UTF-8. Times and records
    of polars are refused.
    """
    kind, length = column.dtype, len(column)
    if hasattr(kind, "is_temporal"):  # polars
        _refuse_lost(kind)
        return [None] * length if kind.is_nested() else list(column.to_list())
    name = type(kind).__name__
    if (getattr(kind, "kind", "O") in "mM" and name != "ArrowDtype") or name in ("PeriodDtype", "IntervalDtype"):
        return [None] * length
    if name == "CategoricalDtype":
        known = [*map(_standing_for, column_cells(kind.categories.to_series())), None]  # code -1 finds the last
        held = column.array if offers(column, "array") else column
        return [known[code] for code in held.codes.tolist()]
    if name == "ArrowDtype" or getattr(kind, "storage", "") == "pyarrow":
        from dpsco.rows.readers.arrow import arrow_cells

        held = column.array if offers(column, "array") else column
        return arrow_cells(held.__arrow_array__())
    return list(column.to_list() if offers(column, "to_list") else column.tolist())


def _refuse_lost(kind: Any) -> None:
    """Raise ``DataError`` if a type of polars holds times or records: its type says that it has no number, no text.

    polars makes a column of numbers into one of records, all numbers missing, where one cell is a record: of the rows
    ``[{"a": 1}, {"a": {}}]`` the 1 is gone. It makes a column of times into numbers where one cell is a number, and a
    column of text into times unless one cell is none (``try_parse_dates``).
    """
    if kind.is_temporal() or kind.__class__.__name__ == "Struct":
        raise DataError(
            f"Got a column of the type {kind}, which holds {'times' if kind.is_temporal() else 'records'}. Expected "
            "numbers or text: convert it, or leave it out. (polars makes numbers into records where one of them is a "
            "record: state schema=..., or pass a list of rows.)"
        )


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
    if offers(frame, "iloc"):  # pandas; a Series has no columns
        return [frame.iloc[:, place] for place in range(frame.shape[1])]
    if offers(frame, "get_columns"):  # polars
        return list(frame.get_columns())
    return list(frame.columns)  # Arrow


def _real(array: NDArray[Any]) -> Array:
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        return np.asarray(array, dtype=np.float64)


def as_array(data: Any) -> NDArray[Any]:
    """Return ``data`` as a NumPy array; ``DataError``, which quotes no cell, if NumPy cannot make one of it."""
    if isinstance(data, np.ndarray):
        return data
    try:
        array = np.asarray(data)
    except Exception:  # the text of a foreign error may quote cells
        raise DataError("Expected X to be an array, a table, a sparse matrix or a list of rows.") from None
    if array.dtype.kind == "V":  # types NumPy does not know by itself, such as bfloat16
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError("Expected X to hold numbers.") from None
    return array


def _plain(column: Any) -> NDArray[Any] | None:
    """Return the column as the NumPy array of real numbers that it already is, none of them rounded; else None."""
    if isinstance(getattr(column, "dtype", None), np.dtype) and offers(column, "iloc"):  # pandas
        column = column.to_numpy()
    if isinstance(column, np.ma.MaskedArray) or not isinstance(column, np.ndarray) or column.dtype.kind not in _REAL:
        return None
    return column.reshape(-1)


def _array(column: Any) -> NDArray[Any] | None:
    """Return the column as real numbers, missing ones as NaN, if its own type declares nothing else; else None."""
    if isinstance(column, (list, tuple, np.ma.MaskedArray)):
        return None
    if isinstance(column, np.ndarray):
        return _plain(column)
    if offers(column, "to_pylist"):
        from dpsco.rows.readers.arrow import arrow_real

        return arrow_real(column)
    kind = getattr(column, "dtype", None)
    if offers(column, "iloc"):  # pandas
        if isinstance(kind, np.dtype):
            return _plain(column)
        if getattr(kind, "kind", "O") in "iufb" and not hasattr(kind, "categories"):
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return None
    if offers(column, "to_list") and kind is not None:  # polars
        if not hasattr(kind, "is_temporal") or kind.__class__.__name__ in ("Int128", "UInt128", "Decimal"):
            return None
        if not (kind.is_integer() or kind.is_float()):
            return None
        return np.asarray(column.to_numpy())
    array = as_array(column)
    return array.reshape(-1) if array.dtype.kind in _REAL else None
