"""Rows of a compressed sparse matrix, cut into views: no value is copied to pass a slice on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.rows.containers import column_numbers

__all__ = ["CsrRows", "is_sparse"]


def is_sparse(data: Any) -> bool:
    """Whether ``data`` is a sparse matrix or array of SciPy, or already ``CsrRows``; SciPy is not imported to ask."""
    if isinstance(data, (CsrRows, np.ndarray)):
        return isinstance(data, CsrRows)
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and issubclass(type(data), (scipy.spmatrix, scipy.sparray))


class CsrRows:
    """Row i holds ``data[indptr[i] : indptr[i + 1]]`` in the columns ``indices[...]``; an index may come twice.

    ``rows[3:7]`` is a view, ``rows[positions]`` a copy, ``rows[3]`` one row as a dense vector.
    """

    __slots__ = ("data", "indices", "indptr", "shape")

    def __init__(self, data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], width: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (len(indptr) - 1, width)

    @classmethod
    def of(cls, matrix: Any) -> CsrRows:
        """Return the rows of a SciPy matrix, shared and not copied if it is CSR.

        Guarantee: what is stored of a row depends on that row alone. CSR, CSC and COO store cells one by one. In other
        formats a cell may be stored because of another row: a block (BSR) or a diagonal (DIA) that one row fills holds
        zeros of the rows beside it, and stored zeros change the order in which a kernel adds a row's values. So zeros
        are left out there, and the columns of a row come in order.
        """
        if isinstance(matrix, cls):
            return matrix
        if len(matrix.shape) != 2:
            raise DataError(f"Expected X to have shape (rows, features), got {len(matrix.shape)} dimensions.")
        form = getattr(matrix, "format", "")
        if form not in ("csr", "csc"):
            return cls._of_coo(matrix if form == "coo" else matrix.tocoo(), zeros=form == "coo")
        rows = matrix.tocsr()
        ends, stored = rows.indptr, min(len(rows.data), len(rows.indices))
        if ends[0] < 0 or ends[-1] > stored or np.any(ends[1:] < ends[:-1]):  # kernels follow them without a look
            raise DataError(
                "The sparse X is not a matrix: its indptr falls, or points beyond the stored values. Make it anew with "
                "SciPy."
            )
        return cls(rows.data, rows.indices, ends, rows.shape[1])

    @classmethod
    def _of_coo(cls, matrix: Any, *, zeros: bool) -> CsrRows:
        """Return the rows of a matrix in COO: columns in order, values of one place added in the order of storage.

        Stored zeros are left out unless ``zeros``; NaN stays.

        SciPy's own conversion sorts all rows as soon as one of them is not sorted, by a sort that is not stable. So one
        row would decide in which order another row's values of one place are added. The sorts here are stable. Values
        become numbers before they are added: two True of one place are 2, also where no row makes them into integers.
        """
        row, column = (np.asarray(part, dtype=np.int64) for part in (matrix.row, matrix.col))
        height, width = matrix.shape
        given = np.asarray(matrix.data)
        declared = given.dtype.kind == "f" and given.itemsize in (4, 8)  # one odd value decides on any other type
        given = given if declared else column_numbers(given, "X")
        order = np.argsort(column, kind="stable")
        if not zeros:
            order = order[given[order] != 0]
        order = order[np.argsort(row[order], kind="stable")]
        row, column, data = row[order], column[order], given[order]
        first = np.ones(len(row), dtype=bool)
        first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
        values = data[first]
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            np.add.at(values, np.cumsum(first)[~first] - 1, data[~first])
        ends = np.concatenate([[0], np.cumsum(np.bincount(row[first], minlength=height))])
        return cls(values, column[first], ends.astype(np.int64), width)

    @classmethod
    def joined(cls, parts: Sequence[CsrRows]) -> CsrRows:
        """One after the other; a copy."""
        spans = [slice(part.indptr[0], part.indptr[-1]) for part in parts]
        data = np.concatenate([part.data[span] for part, span in zip(parts, spans, strict=True)])
        indices = np.concatenate([part.indices[span] for part, span in zip(parts, spans, strict=True)])
        counts = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)])
        return cls(data, indices, np.cumsum(counts, dtype=np.int64), parts[0].shape[1])

    def to_scipy(self) -> Any:
        """Return the rows as a CSR matrix of SciPy, for products."""
        from scipy.sparse import csr_array

        first, last = self.indptr[0], self.indptr[-1]
        own = self.data[first:last], self.indices[first:last], self.indptr - first
        return csr_array(own, shape=self.shape)

    def dense(self) -> NDArray[np.float64]:
        """Return the rows as a dense matrix; values of one place are added in the order of storage.

        A row with an index outside the matrix is not a row: it becomes NaN.
        """
        out = np.zeros(self.shape)
        own = slice(self.indptr[0], self.indptr[-1])
        row = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        column, value = np.asarray(self.indices[own], dtype=np.int64), self.data[own]
        outside = (column < 0) | (column >= self.shape[1])
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            np.add.at(out, (row[~outside], column[~outside]), value[~outside])
        out[row[outside]] = np.nan
        return out

    @property
    def ndim(self) -> int:
        """Number of axes: always 2."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored values."""
        return self.data.dtype

    @property
    def values(self) -> NDArray[Any]:
        """The stored values of these rows and no others."""
        return self.data[self.indptr[0] : self.indptr[-1]]

    @property
    def mean_width(self) -> int:
        """Stored values a row, about."""
        return 1 + int(self.indptr[-1] - self.indptr[0]) // max(1, len(self))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            return CsrRows(self.data, self.indices, self.indptr[start : max(start, stop) + 1], self.shape[1])
        if np.ndim(rows) == 0:
            place = range(len(self))[rows]
            return self[place : place + 1].dense()[0]
        counts = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        picked = np.repeat(np.asarray(self.indptr[:-1])[rows] - indptr[:-1], counts) + np.arange(indptr[-1])
        return CsrRows(self.data[picked], self.indices[picked], indptr, self.shape[1])
