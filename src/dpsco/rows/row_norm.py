"""Rows into the unit ball by a public rule, each row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["clamped", "unit_rows"]

_STRIP_BYTES = 1 << 20


def clamped(targets: Any, bound: float) -> Any:
    """Each target as ``y / bound``, clamped to [-1, 1]; NaN, a zero row, where it is not finite.

    >>> clamped(np.array([1.0, -9.0, np.inf, np.nan]), 2.0).tolist()
    [0.5, -1.0, nan, nan]
    """
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        return np.where(np.isfinite(targets), np.clip(targets / bound, -1.0, 1.0), np.nan)


def unit_rows(rows: Any, feature_norm: float, *, in_place: bool = False) -> Any:
    """Each row a as ``a / max(feature_norm, ||a||)``: norm at most 1, direction kept; dense or CSR.

    Rows within ``feature_norm`` are divided by that constant, longer ones are shortened to it first. The result is a
    new matrix, unless ``in_place`` says that ``rows`` may be overwritten. ||a|| of a CSR row counts each stored value
    by itself: a row that stores one column k times has a norm of up to sqrt(k) once they are added up.
    Guarantee: what becomes of a row depends on that row alone; a row that is not finite stays so.

    >>> unit_rows(np.array([[3.0, 4.0], [0.6, 0.8]]), feature_norm=2.0).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        if isinstance(rows, CsrRows):
            first, last = rows.indptr[0], rows.indptr[-1]
            own = CsrRows(rows.data[first:last], rows.indices[first:last], rows.indptr - first, rows.shape[1])
            return CsrRows(_unit_values(own, feature_norm), own.indices, own.indptr, rows.shape[1])
        if is_sparse(rows):
            from scipy.sparse import csr_array, csr_matrix, spmatrix

            own = CsrRows.of(rows)
            parts = _unit_values(own, feature_norm), own.indices.copy(), own.indptr.copy()
            return (csr_matrix if isinstance(rows, spmatrix) else csr_array)(parts, shape=own.shape)
        if rows.dtype == np.float16:  # squares of numbers beyond 255 leave its range
            rows = rows.astype(np.float32)
        if not rows.flags.c_contiguous:  # one order of adding, whatever the number of rows in the chunk
            rows, in_place = _turned(rows), rows.dtype.kind == "f"
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        longest = np.maximum(norms, np.asarray(feature_norm, dtype=norms.dtype))
        if in_place and np.all(longest == 1.0):  # nothing to divide
            return rows
        return np.divide(rows, longest[:, None], out=rows if in_place else None)


def _unit_values(rows: Any, feature_norm: float) -> NDArray[Any]:
    """Return the stored values of CSR rows, divided.

    Summed in the order of storage, repeated columns apart: SciPy's products and merges choose an order by looking at
    all rows, and the result of a row must not depend on another.
    """
    stored = np.diff(rows.indptr)
    row = np.repeat(np.arange(rows.shape[0]), stored)
    norms = np.sqrt(np.bincount(row, rows.data.astype(np.float64) ** 2, rows.shape[0]))
    return (rows.data / np.repeat(np.maximum(norms, feature_norm), stored)).astype(rows.data.dtype)


def _turned(rows: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix that lies column by column in C order, a copy.

    A strip at a time, so that the strip stays in the cache. Columns a multiple of a page apart would push one another
    out: they are first copied to lines that are longer than they need be.
    """
    out = np.empty(rows.shape, dtype=rows.dtype)
    height = max(64, _STRIP_BYTES // (out.itemsize * max(1, rows.shape[1])))
    strip = None if rows.strides[1] % 4096 else np.empty((rows.shape[1], height + 16), dtype=rows.dtype)
    for start in range(0, len(rows), height):
        part = slice(start, min(start + height, len(rows)))
        lines = rows[part].T
        if strip is not None:
            strip[:, : part.stop - start] = lines
            lines = strip[:, : part.stop - start]
        out[part] = lines.T
    return out
