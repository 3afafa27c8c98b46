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

__all__ = ["TableRows", "table_rows"]

COMPILED_FROM = 1 << 24
"""Numbers that a process has made of files before it loads the kernel, unless other kernels are loaded."""

_AT_PLACE, _NO_LABELS = np.zeros(0, np.int64), np.zeros(0)
_LENGTHS = "Columns of one table have different numbers of rows."
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

                nothing = np.zeros((0, 3), np.uint64), np.zeros(1, np.int64), np.zeros((0, 3)), _NO_LABELS
                unit_rows_of(*nothing, 0, 0, 1.0, _AT_PLACE, np.zeros(0, np.float32), _NO_LABELS)
                self.function = unit_rows_of
            finally:
                _LOADING.release()
        return self.function


_KERNEL = _Kernel()


def table_rows(columns: PublicColumns, table: Mapping[str, Any], feature_norm: float) -> NDArray[np.float32]:
    """Return the rows of ``table`` as features of norm at most 1, in their order (``TableRows``)."""
    made = TableRows(columns, table, feature_norm)
    out = np.empty((made.rows, columns.width), dtype=np.float32)
    made.write(0, made.rows, out)
    return out


class TableRows:
    """The rows of a table as features of norm at most 1, ready to be written, some at a time and in several threads.

    Parameters
    ----------
    columns : PublicColumns
        Dense ones.
    table : mapping
        Cells of the declared columns, as a reader has read them.
    feature_norm : float
        Longer rows are shortened to it, all rows divided by it.
    labels : array, optional
        A number per row, to be written along with it.

    Guarantee: what becomes of a row depends on that row alone.
    """

    def __init__(
        self,
        columns: PublicColumns,
        table: Mapping[str, Any],
        feature_norm: float,
        labels: NDArray[np.float64] = _NO_LABELS,
    ) -> None:
        self.rows = len(table[columns.features[0].name])
        self._columns, self._table, self._norm = columns, table, float(feature_norm)
        self._labels = np.ascontiguousarray(labels, dtype=np.float64)
        self._kernel, self._inputs = _KERNEL(self.rows * columns.width), _Inputs()
        if len(labels) not in (0, self.rows):
            raise DataError(_LENGTHS)
        if self._kernel is None:
            return
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for column in columns.features:
                self._inputs.add(column, table[column.name], self.rows)
        self._arrays = self._inputs.arrays()

    def write(
        self,
        start: int,
        stop: int,
        out: NDArray[np.float32],
        targets: NDArray[np.float64] = _NO_LABELS,
        places: NDArray[np.int64] = _AT_PLACE,
    ) -> None:
        """Write rows ``start`` to ``stop``.

        Parameters
        ----------
        start, stop : int
            Which rows.
        out : array
            Where to write them: rows of the full width, C order.
        targets : array
            Where to write their labels, if there are any: a number per row of ``out``.
        places : array of int64
            Row of ``out`` for each row; empty for the first rows of ``out``, in order.
        """
        if not 0 <= start <= stop <= self.rows or len(places) not in (0, stop - start):
            raise ValueError("Expected rows of the table, and a place for each or none.")
        if self._kernel is not None and out.flags.c_contiguous:  # it follows addresses
            given = *self._arrays, self._labels, start, stop - start, self._norm
            self._kernel(*given, places, out.reshape(-1), targets)
            return
        some = {name: self._table[name][start:stop] for name in self._columns.names}
        lines = self._columns.encode(some).T
        for first in range(0, stop - start, _STRIP):
            part = slice(first, min(first + _STRIP, stop - start))
            target = places[part] if len(places) else part
            out[target] = _unit_lines(lines[:, part], self._norm).T
            if len(self._labels):
                targets[target] = self._labels[start:stop][part]


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
            raise DataError(_LENGTHS)
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
