"""Rows of a table in one pass over its columns, compiled: turned, divided and put at their places.

numba is imported only with this file. ``table_rows.py`` states what is computed, and computes the same in NumPy.

A strip of rows is made at a time. Each feature is a line of the strip: the cells where they lie, or numbers made of
them, or zeros where a level sets one feature of several. Squares are added up line by line, rows side by side; sixteen
lines by sixteen rows are turned in registers; then each row is divided and written once.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numba import njit

from dpsco.rows.vectors import (
    LANES,
    add_squares,
    divide,
    divide_some,
    float32_at,
    float64_at,
    int32_at,
    prefetch,
    prefetch_at,
    turn,
)

__all__ = ["CODES", "FLOAT32", "FLOAT64", "unit_rows_of"]

FLOAT32, FLOAT64, CODES = 0, 1, 2
"""Kinds of columns."""

_STRIP = 64
"""Rows of a strip: a multiple of ``LANES``, and few enough that their lines stay in the first two caches."""
_LINE = 64
_AHEAD = 8
"""Rows whose memory is asked for before they are written: places are anywhere."""


def _compiled(function: Any) -> Any:
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    with contextlib.suppress(RuntimeError):  # no folder to which compiled code can be written
        return njit(cache=True, **options)(function)
    return njit(**options)(function)


@_compiled
def _shares(line: Any, double: bool, cells: Any, start: int, held: int, limits: Any) -> None:
    """Write numbers as shares of their range, or as they are if there is none."""
    low, high, way = limits[0], limits[1], limits[2]
    if way == 0.0:
        for i in range(held):
            line[i] = float64_at(cells, start + i) if double else np.float64(float32_at(cells, start + i))
        return
    length = high - low
    times, off = (2.0, 1.0) if way == 2.0 else (1.0, 0.0)  # exact where there is nothing to do
    for i in range(held):
        cell = float64_at(cells, start + i) if double else np.float64(float32_at(cells, start + i))
        share = (min(max(cell, low), high) - low) / length
        share = min(max(share, 0.0), 1.0) if abs(cell) < np.inf else 0.5
        line[i] = share * times - off


@_compiled
def _levels(flags: Any, chosen: Any, cells: Any, table: Any, start: int, held: int) -> None:
    """Look up which feature each code sets, and whether it sets one."""
    for i in range(held):
        place = int32_at(table, int32_at(cells, start + i))
        chosen[i] = place
        flags[i] = 1.0 if place >= 0 else 0.0


@_compiled
def _without_odd(tile: Any, own: int, width: int) -> float:
    """Set numbers that are not finite to 0; return the sum of squares of the others."""
    square = 0.0
    for j in range(own, own + width):
        if not np.isfinite(tile[j]):
            tile[j] = 0.0
        square += np.float64(tile[j]) * np.float64(tile[j])
    return square


@_compiled
def unit_rows_of(
    sources: Any,
    features: Any,
    ranges: Any,
    labels: Any,
    first: int,
    rows: int,
    norm: float,
    places: Any,
    out: Any,
    targets: Any,
) -> None:
    """Write rows ``first`` .. ``first + rows`` of a table to ``out``, their labels to ``targets``.

    Parameters
    ----------
    sources : array of uint64, shape (columns, 3)
        ``FLOAT32``, ``FLOAT64`` or ``CODES``; the address of the cells, codes in int32; and for codes that of the place
        of code 0 in a table of int32, where the place of code -1 stands before it.
    features : array of int64, shape (columns + 1,)
        First feature of each column; then the width.
    ranges : array of float64, shape (columns, 3)
        Low and high end; 0 if there is no range, 1 if it is mapped to [0, 1], 2 if it is mapped to [-1, 1].
    labels : array of float64
        A number per row of the table; empty if there are none to write.
    first, rows : int
        Which rows.
    norm : float
        Rows are divided by it, or by their own norm if that is larger.
    places : array of int64
        Row of ``out`` for each row; empty for the first rows of ``out``, in order.
    out : array of float32
        Rows of the full width, one after the other.
    targets : array of float64
        A number per row of ``out``.
    """
    columns = len(sources)
    width = features[columns]
    stride = -(-width // LANES) * LANES
    tile, squares = np.empty(_STRIP * stride, np.float32), np.empty(_STRIP)
    longest, nothing = np.empty(_STRIP, np.float32), np.zeros(_STRIP, np.float32)
    lines, chosen = np.empty((columns, _STRIP), np.float32), np.empty((columns, _STRIP), np.int32)
    turned, squared = np.empty(stride, np.uint64), np.empty(stride, np.uint64)  # addresses of the features' lines
    turned[:], squared[:] = nothing.ctypes.data, nothing.ctypes.data
    for start in range(0, rows, _STRIP):
        held = min(_STRIP, rows - start)
        for column in range(columns):
            kind, cells, feature = sources[column, 0], sources[column, 1], features[column]
            line, size = lines[column], 8 if kind == FLOAT64 else 4
            for offset in range((first + start + _STRIP) * size, (first + start + 2 * _STRIP) * size, _LINE):
                prefetch_at(cells, offset)  # no processor follows so many columns by itself
            if kind == CODES:
                _levels(line, chosen[column], cells, sources[column, 2], first + start, held)
                squared[feature] = line.ctypes.data
            elif kind == FLOAT32 and ranges[column, 2] == 0.0 and held == _STRIP:  # what lies behind may be no memory
                turned[feature] = squared[feature] = cells + np.uint64(4 * (first + start))
            else:
                _shares(line, kind == FLOAT64, cells, first + start, held, ranges[column])
                turned[feature] = squared[feature] = line.ctypes.data
        squares[:] = 0.0
        for i in range(0, held, LANES):
            for feature in range(0, stride, LANES):
                add_squares(squared, feature, i, squares)
                turn(turned, feature, i, tile, i * stride + feature, stride)
        for column in range(columns):
            if sources[column, 0] == CODES:
                feature = features[column]
                for i in range(held):
                    if chosen[column, i] >= 0:
                        tile[i * stride + feature + chosen[column, i]] = 1.0
        for i in range(held):
            longest[i] = max(np.sqrt(squares[i]), norm)
        for i in range(held):
            own, place = i * stride, start + i
            if not np.isfinite(squares[i]):  # squares of float32 stay within float64: a cell is not finite
                longest[i] = max(np.sqrt(_without_odd(tile, own, width)), norm)
            if len(places):
                if place + _AHEAD < rows:
                    later = places[place + _AHEAD] * width
                    for j in range(0, width, LANES):
                        prefetch(out, later + j)
                    prefetch(out, later + width - 1)
                place = places[place]
            if len(labels):
                targets[place] = labels[first + start + i]
            whole = width - width % LANES
            for j in range(0, whole, LANES):
                divide(tile, own + j, longest[i], out, place * width + j)
            if whole < width:
                divide_some(tile, own + whole, longest[i], out, place * width + whole, width - whole)
