"""Rows of a table in one pass over its columns, compiled: turned, divided and put at their places.

numba is imported only with this file. ``table_rows.py`` states what is computed, and computes the same in NumPy.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["CODES", "FLOAT32", "FLOAT64", "unit_rows_of"]

FLOAT32, FLOAT64, CODES = 0, 1, 2
"""Kinds of columns."""

_TILE_BYTES = 1 << 14
"""Rows that are made together: they stay in the first cache."""


def _compiled(function: Any) -> Any:
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    with contextlib.suppress(RuntimeError):  # no folder to which compiled code can be written
        return njit(cache=True, **options)(function)
    return njit(**options)(function)


def _loader(number: Any, llvm: Any) -> Any:
    """Return a numba function (address, index) that loads a number of a type from memory."""

    @intrinsic
    def loaded(typing: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], llvm.as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return number(types.uint64, types.intp), generate

    return loaded


_float32_at = _loader(types.float32, ir.FloatType())
_float64_at = _loader(types.float64, ir.DoubleType())
_int32_at = _loader(types.int32, ir.IntType(32))


@_compiled
def _shares(line: Any, double: bool, cells: Any, start: int, held: int, limits: Any) -> None:
    """Write numbers as shares of their range, or as they are if there is none."""
    low, high, way = limits[0], limits[1], limits[2]
    for i in range(held):
        cell = _float64_at(cells, start + i) if double else np.float64(_float32_at(cells, start + i))
        if way == 0.0:
            line[i] = cell
            continue
        share = (min(max(cell, low), high) - low) / (high - low)
        share = min(max(share, 0.0), 1.0) if np.isfinite(cell) else 0.5
        line[i] = share * 2.0 - 1.0 if way == 2.0 else share


@_compiled
def unit_rows_of(sources: Any, features: Any, ranges: Any, rows: int, norm: float, places: Any, out: Any) -> None:
    """Write rows 0 .. ``rows`` of a table to ``out``.

    Parameters
    ----------
    sources : array of uint64, shape (columns, 3)
        ``FLOAT32``, ``FLOAT64`` or ``CODES``; the address of the cells, codes in int32; and for codes that of the place
        of code 0 in a table of int32, where the place of code -1 stands before it.
    features : array of int64, shape (columns + 1,)
        First feature of each column; then the width.
    ranges : array of float64, shape (columns, 3)
        Low and high end; 0 if there is no range, 1 if it is mapped to [0, 1], 2 if it is mapped to [-1, 1].
    rows : int
        Number of rows.
    norm : float
        Rows are divided by it, or by their own norm if that is larger.
    places : array of int64
        Row of ``out`` for each row; empty for their own order.
    out : array of float32
        Rows of the full width, in C order.
    """
    width, columns = out.shape[1], len(sources)
    height = max(16, min(256, _TILE_BYTES // (4 * width)))
    tile, squares = np.empty(height * width, np.float32), np.empty(height)
    lines = np.empty((columns, height), np.float32)
    at = np.empty(columns, np.uint64)
    for start in range(0, rows, height):
        held = min(height, rows - start)
        for column in range(columns):  # numbers in float32: where they are, or converted
            kind, cells = sources[column, 0], sources[column, 1]
            if kind == CODES or (kind == FLOAT32 and ranges[column, 2] == 0.0):
                at[column] = cells + np.uint64(4 * start)
            else:
                _shares(lines[column], kind == FLOAT64, cells, start, held, ranges[column])
                at[column] = lines[column].ctypes.data
        squares[:held] = 0.0
        for column in range(columns):  # in the order of the features; rows side by side
            cells, table = at[column], sources[column, 2]
            if table == 0:
                for i in range(held):
                    number = np.float64(_float32_at(cells, i))
                    squares[i] += number * number
            else:
                for i in range(held):
                    squares[i] += 1.0 if _int32_at(table, _int32_at(cells, i)) >= 0 else 0.0
        for column in range(columns):
            cells, table, first = at[column], sources[column, 2], features[column]
            if table == 0:
                for i in range(held):
                    tile[i * width + first] = _float32_at(cells, i)
            else:
                size = features[column + 1] - first
                for i in range(held):
                    for j in range(size):
                        tile[i * width + first + j] = 0.0
                    place = _int32_at(table, _int32_at(cells, i))
                    if place >= 0:
                        tile[i * width + first + place] = 1.0
        for i in range(held):
            square, own = squares[i], i * width
            if not np.isfinite(square):  # squares of float32 stay within float64: a cell is not finite
                square = 0.0
                for j in range(width):
                    value = tile[own + j]
                    if not np.isfinite(value):
                        value = np.float32(0.0)
                        tile[own + j] = value
                    square += np.float64(value) * np.float64(value)
            longest = np.float32(max(np.sqrt(square), norm))
            target = start + i if len(places) == 0 else places[start + i]
            for j in range(width):
                out[target, j] = tile[own + j] / longest
