"""The gate: every row becomes a typed row before anything looks at it.

    container  ->  features: ``declared.dtype``, ``declared.width`` of them    labels: float64

A row that does not fit (NaN, infinite, text, complex, None, ``pandas.NA``, a date, another length, no label) has a NaN
in its features or in its label, and every oracle counts such a row as a zero row. Nothing after the gate asks what a
container, a dtype or a chunk was.

What is declared, and by what
    width       the problem (``problem.dimension``), the schema, or the shape of a table; never the length of a row
    dtype       the argument ``dtype``; without one, float32 for a NumPy array or a sparse matrix of float32, and
                float64 for everything else
    layout      "csr" for a sparse matrix or ``sparse=True``, else "dense"
    labels      float64; classes are coded by their canonical text (cells.py) before they come here

Guarantee: what becomes of a row is a function of that row and of what was declared.

Proof. Declared facts do not depend on a row's value. Width and layout are those of the problem or of the container. The
type is an argument, or it is that of an array of float32, which the caller declared when the array was allocated: such
an array stores every value assigned to it as float32. Types that one odd cell does decide (integers that become float64
for a NaN, float64 that becomes objects, text or complex, the types that pandas finds) all lead to float64. Given what
was declared, containers.py converts each cell by a rule about that cell. An array of real numbers is cast as a whole,
and the cast of a real number to float64 or float32 is a function of that number.

What is read: protocols.py lists the containers, column_types.py the types of their columns. Both are lists of what is
allowed. Anything else is refused by its type, before anything is spent, and nothing is converted on the way.

What the caller must keep: float32 of an array is a public choice. ``np.array`` and ``np.concatenate`` break it where
they allocate an array for rows of float32 and one row of Python numbers: they choose float64 for all rows. State
``dtype``, or allocate with ``np.empty(shape, np.float32)``. Reports list it among their assumptions. Beside one text
NumPy and polars write float32 as text of few digits, which stands for another float64. What a container is, its
type says: no label of an index does. Arrays that the library builds itself, of lists, chunks, tables and files, have a
type that no row decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.parallel import for_each
from dpsco.query import Array, Chunk
from dpsco.rows.column_types import readable
from dpsco.rows.containers import (
    as_array,
    column_numbers,
    is_frame,
    is_rows,
    plain_column,
    table_numbers,
    width_message,
)
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.lists import is_pair
from dpsco.rows.protocols import listed

__all__ = [
    "Declared",
    "GatedLabels",
    "GatedRows",
    "admit",
    "admit_labels",
    "all_finite",
    "container",
    "container_width",
    "declared_by",
]

_LOOK_BYTES = 8 << 20  # rows, as float64, that a thread looks at before it takes the next ones


@dataclass(frozen=True)
class Declared:
    """What a row is, stated before the first row is looked at.

    Parameters
    ----------
    width
        Features per row.
    dtype
        "float64" or "float32".
    sparse
        Whether rows are kept as CSR.
    """

    width: int
    dtype: str = "float64"
    sparse: bool = False

    def chunk(self, features: Any, labels: Any) -> Chunk:
        """Return some rows of any container as a typed chunk; ``labels=None`` for rows without any."""
        rows = admit(container(features), self)
        targets = admit_labels(labels, len(rows))
        return rows[:], targets[:]

    def row_pairs(self, pairs: list[Any]) -> Chunk:
        """Return one typed row for each item, whatever it is: a pair (row, label), or a zero row."""
        known = [pair if is_pair(pair) else (None, None) for pair in pairs]
        return self.chunk([row for row, _ in known], [label for _, label in known])


def declared_by(data: Any, width: int | None, dtype: str | None = None, sparse: bool | None = None) -> Declared:
    """Return what ``data``, a container in memory, and the caller declare about its rows.

    Parameters
    ----------
    data
        Any container of rows.
    width
        Features per row, where the problem or the schema says it.
    dtype, sparse
        The caller's own declaration; None leaves it to the container.

    Raises
    ------
    InvalidArgument
        If nobody declares the width: a list of rows does not.
    DataError
        If the container has another width.
    """
    own = container_width(data)
    if width is None and own is None:
        raise InvalidArgument(
            "A list of rows does not state how many features a row has. Pass width=..., or an array or a table."
        )
    if width is not None and own is not None and own != width:
        raise DataError(width_message(own, width))
    if dtype is None:
        kind = getattr(data, "dtype", None) if isinstance(data, np.ndarray) or is_sparse(data) else None
        single = isinstance(kind, np.dtype) and kind.kind == "f" and kind.itemsize == 4
        dtype = "float32" if single else "float64"
    layout = is_sparse(data) if sparse is None else sparse
    return Declared(width or own or 1, one_of("dtype", dtype, ("float32", "float64")), layout)


def container(data: Any) -> Any:
    """Return ``data`` if it is a list of rows, a table or an array; sparse rows as ``CsrRows``, others as an array.

    Raises
    ------
    DataError
        If it is none of the containers that ``protocols.family`` lists.
    """
    if is_sparse(data):
        return CsrRows.of(data)
    data = listed(data)
    return data if is_rows(data) or is_frame(data) else as_array(data)


def container_width(data: Any) -> int | None:
    """Return the number of columns of a container; None for a list of rows, which does not say."""
    if is_rows(data):
        return None
    shape = getattr(data, "shape", None)
    if shape is None or len(shape) != 2:
        dimensions = "another" if shape is None else str(len(shape))
        raise DataError(
            f"Expected X to have shape (rows, features), got {dimensions} dimensions. Reshape your data: an array, a "
            "table, a sparse matrix or a list of rows. (For an iterable of single rows: stream(pairs, items='rows').)"
        )
    return int(shape[1])


def admit(data: Any, declared: Declared) -> Any:
    """Return the rows of ``data`` as a typed sequence: ``rows[3:7]`` and ``rows[positions]`` are typed features.

    Each dense row lies in one piece of memory: sums along it are then made in one order, whatever the container.
    Cost: a C-ordered array of the declared type, or CSR of it, is shared and never copied; a table is converted once;
    any other container is converted where it is taken from.
    """
    if is_sparse(data):
        rows = _typed_csr(CsrRows.of(data), declared)
        return rows if declared.sparse else _Dense(rows, declared)
    if isinstance(data, np.ndarray) and data.dtype == declared.dtype and data.ndim == 2 and not declared.sparse:
        if data.shape[1] != declared.width:
            raise DataError(width_message(data.shape[1], declared.width))
        if not isinstance(data, (np.ma.MaskedArray, np.matrix)) and data.strides[1] == data.itemsize:
            return data
    if isinstance(data, np.ndarray):
        readable(data, "X")
    if is_frame(data):
        data = table_numbers(data, declared.width)
    return GatedRows(data, declared)


def admit_labels(labels: Any, rows: int) -> Any:
    """Return labels as a typed sequence of float64, NaN where a cell holds no number; None gives zeros.

    Raises
    ------
    DataError
        If ``labels`` is not one column of ``rows`` cells.
    """
    if labels is None:
        return np.zeros(rows)
    if is_frame(labels) and labels.shape[1] != 1:
        raise DataError("Expected y to be one column with a label per row.")
    labels = plain_column(labels)
    if len(labels) != rows:
        raise DataError("Expected one label per row of X; their numbers differ.")
    readable(labels, "y")
    if isinstance(labels, np.ndarray) and not isinstance(labels, np.ma.MaskedArray):
        return labels if labels.dtype == np.float64 else GatedLabels(labels)
    return column_numbers(labels)


def all_finite(rows: Any, *, alone: bool = False) -> bool:
    """Return whether every value of typed rows is finite. Cost: one read at the speed of memory.

    Parameters
    ----------
    rows
        Typed rows.
    alone : bool
        Look in this thread alone, in long parts, because other threads have work.
    """
    width = rows.mean_width if isinstance(rows, CsrRows) else max(1, rows.shape[1])
    size, found = max(1, _LOOK_BYTES * (8 if alone else 1) // (8 * width)), list[int]()

    def look(start: int) -> None:
        if not found and not _finite(rows[start : start + size]):
            found.append(start)

    parts = range(0, len(rows), size)
    if alone:
        for start in parts:
            look(start)
    else:
        for_each(look, parts)
    return not found


def _finite(part: Any) -> bool:
    """Return whether every value is finite; a finite sum implies it."""
    values = part.values if isinstance(part, CsrRows) else part
    with np.errstate(all="ignore"):
        # einsum adds at the speed of memory, and not by BLAS, whose threads would have to be limited.
        total = np.einsum("i->", values.reshape(-1)) if values.flags.c_contiguous else np.sum(values)
        return bool(np.isfinite(total)) or bool(np.all(np.isfinite(values)))


class GatedRows:
    """Rows of a container, typed where they are taken from.

    Parameters
    ----------
    data
        An array of any type, or a list of rows.
    declared
        What a row is.
    """

    def __init__(self, data: Any, declared: Declared) -> None:
        self._data = data
        self._declared = declared
        self.shape, self.dtype = (len(self._data), declared.width), np.dtype(declared.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice) or isinstance(self._data, np.ndarray):
            part = self._data[rows]
        else:
            part = [self._data[place] for place in np.asarray(rows).tolist()]
        typed = _cast(table_numbers(part, self._declared.width), self._declared)
        return _csr_of(typed) if self._declared.sparse else typed


class GatedLabels:
    """Labels of an array of any type, turned into float64 where they are taken from."""

    def __init__(self, labels: NDArray[Any]) -> None:
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, rows: Any) -> Array:
        return column_numbers(self._labels[rows])


class _Dense:
    """Sparse rows in a run that was declared dense."""

    def __init__(self, rows: CsrRows, declared: Declared) -> None:
        self._rows, self._declared = rows, declared
        self.shape, self.dtype = rows.shape, np.dtype(declared.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        return _cast(self._rows[rows].dense(), self._declared)


def _typed_csr(rows: CsrRows, declared: Declared) -> CsrRows:
    if rows.shape[1] != declared.width:
        raise DataError(width_message(rows.shape[1], declared.width))
    data = rows.data
    if data.dtype != declared.dtype:
        data = _cast(column_numbers(data, "X"), declared)
    return CsrRows(data, rows.indices, rows.indptr, rows.shape[1])


def _csr_of(rows: NDArray[Any]) -> CsrRows:
    """Return the cells of dense rows that are not 0, as CSR."""
    row, column = np.nonzero(rows)
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows)))])
    return CsrRows(rows[row, column], column, ends.astype(np.int64), rows.shape[1])


def _cast(rows: Array, declared: Declared) -> NDArray[Any]:
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        return np.ascontiguousarray(rows, dtype=declared.dtype)
