"""Dense rows of a table's columns, in the unit ball, and at their places: what files are read into.

    row = a / max(feature_norm, ||a||),     a: the features of the row, float32

||a||^2 is summed in float64, feature by feature; the divisor is rounded to float32. NumPy and a compiled kernel
(compiled_rows.py) do the same operations on a row in the same order, so the bits of a row depend neither on which of
the two makes it nor on the rows beside it. The kernel reads columns where they lie and writes each row once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.rows.column_kinds import Column
from dpsco.rows.public_columns import PublicColumns

__all__ = ["table_rows"]

COMPILED_FROM = 1 << 24
"""Numbers that a process has made of files before it loads the kernel, unless other kernels are loaded."""

_AT_PLACE = np.zeros(0, np.int64)
_LOADING = threading.Lock()
_STRIP = 4096


class _Kernel:
    """The compiled function, once it pays to load it; None until then."""

    def __init__(self) -> None:
        self.function: Any = None
        self._made = 0

    def __call__(self, numbers: int) -> Any:
        self._made += numbers
        due = self._made >= COMPILED_FROM or (numbers and "dpsco.clipping.kernels.slopes" in sys.modules)
        if self.function is None and due and _LOADING.acquire(blocking=False):  # other threads go on without
            try:
                from dpsco.rows.compiled_rows import unit_rows_of

                nothing = np.zeros((0, 3), np.uint64), np.zeros(1, np.int64), np.zeros((0, 3))
                unit_rows_of(*nothing, 0, 1.0, _AT_PLACE, np.zeros((0, 1), np.float32))
                self.function = unit_rows_of
            finally:
                _LOADING.release()
        return self.function


_KERNEL = _Kernel()


def table_rows(
    columns: PublicColumns,
    table: Mapping[str, Any],
    feature_norm: float,
    out: NDArray[np.float32] | None = None,
    places: NDArray[np.int64] = _AT_PLACE,
) -> NDArray[np.float32]:
    """Return the rows of ``table`` as features of norm at most 1.

    Parameters
    ----------
    columns : PublicColumns
        Dense ones.
    table : mapping
        Cells of the declared columns, as a reader has read them.
    feature_norm : float
        Longer rows are shortened to it, all rows divided by it.
    out : array, optional
        Where to write them, C order; a new array unless given.
    places : array of int64
        Row of ``out`` for each row of ``table``; empty for the first rows of ``out``, in order.

    Returns
    -------
    array
        ``out``.

    Guarantee: what becomes of a row depends on that row alone.
    """
    rows = len(table[columns.features[0].name])
    if out is None:
        out = np.empty((rows, columns.width), dtype=np.float32)
    if kernel := _KERNEL(rows * columns.width):
        inputs = _Inputs()
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for column in columns.features:
                inputs.add(column, table[column.name], rows)
        kernel(*inputs.arrays(), rows, float(feature_norm), places, out)
        return out
    lines = columns.encode(table).T
    for start in range(0, rows, _STRIP):
        part = slice(start, min(start + _STRIP, rows))
        target = places[part] if len(places) else part
        out[target] = _unit_lines(lines[:, part], feature_norm).T
    return out


def _unit_lines(lines: NDArray[np.float32], feature_norm: float) -> NDArray[np.float32]:
    """Return features, a line for each, of rows side by side; divided."""
    with np.errstate(all="ignore"):
        squares = np.zeros(lines.shape[1])
        for line in lines:  # one order of adding, whatever the number of rows
            number = line.astype(np.float64)
            squares += np.multiply(number, number, out=number)
        return np.divide(lines, np.maximum(np.sqrt(squares), feature_norm).astype(np.float32))


class _Inputs:
    """Where the kernel finds the cells of each column."""

    def __init__(self) -> None:
        self._sources: list[tuple[int, int, int]] = []
        self._features, self._ranges = [0], list[tuple[float, float, int]]()
        self._held: list[Any] = []

    def add(self, column: Column, cells: Any, rows: int) -> None:
        """Add a column: its cells as they are if the kernel knows what to make of them, else its features."""
        from dpsco.rows.compiled_rows import CODES, FLOAT32, FLOAT64

        if len(cells) != rows:  # the kernel follows addresses
            raise DataError("Columns of one table have different numbers of rows.")
        if (chosen := column.chosen(cells)) is not None:
            codes, table = (np.ascontiguousarray(part, dtype=np.int32) for part in chosen)
            self._put((CODES, _address(codes), _address(table) + table.itemsize), column.size, codes, table)
        elif (share := column.share) is not None:
            kind = FLOAT32 if cells.dtype == np.float32 else FLOAT64
            line = np.ascontiguousarray(cells, dtype=np.float32 if kind == FLOAT32 else np.float64)
            self._put((kind, _address(line), 0), 1, line, share=share)
        else:
            lines = np.empty((column.size, rows), dtype=np.float32)
            column.write(cells, lines)
            for line in lines:
                self._put((FLOAT32, _address(line), 0), 1, line)

    def _put(self, source: Any, size: int, *held: Any, share: tuple[float, float, int] = (0.0, 0.0, 0)) -> None:
        self._sources.append(source)
        self._features.append(self._features[-1] + size)
        self._ranges.append(share)
        self._held += held

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return sources, features and ranges."""
        return np.array(self._sources, np.uint64), np.array(self._features, np.int64), np.array(self._ranges, float)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
