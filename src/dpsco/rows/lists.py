"""Lists of rows and lists of cells as float64 numbers: each row by itself, each cell by itself.

    rows    numbers of row i = rule(row i)      all NaN if row i is no row of ``width`` cells
    cells   number of cell i = number(cell i)   cells.py

Guarantee: no row and no cell decides how another is read. A list is converted at once only if every cell has one of the
types of ``_AT_ONCE``; NumPy then converts each cell by itself to the float64 that ``number`` returns. One cell of
another type sends the list to the rule per row, which returns the same numbers for every other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from dpsco.query import Array
from dpsco.rows.cells import number
from dpsco.rows.protocols import family

__all__ = ["cells_numbers", "is_pair", "rows_numbers"]

_AT_ONCE = frozenset(
    (bool, int, float, np.bool_, np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.uint8)
)


def is_pair(item: Any) -> bool:
    """Return whether an item of an iterable is a pair (row, label), by its type: an object may raise about its own."""
    return issubclass(type(item), (tuple, list)) and len(item) == 2


def rows_numbers(rows: Any, width: int) -> Array:
    """Return a list of rows as float64 of shape (rows, width)."""
    kinds = set(map(type, rows))
    if kinds <= {list, tuple} and set(map(len, rows)) <= {width} and _at_once(chain.from_iterable(rows)):
        try:
            return np.array(rows, dtype=np.float64).reshape(len(rows), width)
        except OverflowError:  # a whole number beyond float64
            pass
    out = np.empty((len(rows), width))
    for place, row in enumerate(rows):
        out[place] = _row(row, width)
    return out


def cells_numbers(cells: Sequence[Any]) -> Array:
    """Return a list of cells as float64, NaN where a cell holds no number."""
    if _at_once(cells):
        try:
            return np.array(cells, dtype=np.float64)
        except OverflowError:
            pass
    return np.array([number(cell) for cell in cells], dtype=np.float64)


def _at_once(cells: Any) -> bool:
    return set(map(type, cells)) <= _AT_ONCE


def _row(row: Any, width: int) -> Any:
    """One row, NaN if it is not a row of ``width`` cells: any sequence that NumPy reads as one by itself."""
    try:
        if family(row) != "list":  # NumPy warns of what it finds in a deque
            with np.errstate(all="ignore"):
                array = row if isinstance(row, np.ndarray) else np.asarray(row)
            if array.shape != (width,):
                return np.nan
            if array.dtype.kind in "fiub" and not isinstance(array, np.ma.MaskedArray):
                with np.errstate(all="ignore"):
                    return np.asarray(array, dtype=np.float64)
            row = list(array) if array.dtype.kind in "mM" else array.tolist()
        return [number(cell) for cell in row] if len(row) == width else np.nan
    except Exception:  # whatever an object raises about itself, it is not a row, and its text is not ours to print
        return np.nan
