"""Linear models on sparse rows in plain NumPy: linear.py with sums over stored values.

Every sum over a row is ``np.bincount``, which adds in the order of storage, so the bits of a row's contribution depend
on that row only. Values stored twice for one column are added first. A row with an index outside the matrix counts as
zero.
Cost: O(stored values) per class and point, and O(p) per block of 4096 rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale, row_norms
from dpsco.query import Array, Clipped, Query, to_grid
from dpsco.rows.csr import CsrRows

if TYPE_CHECKING:
    from dpsco.clipping.linear import LinearOracle

__all__ = ["SPARSE_BLOCK_ROWS", "sparse_block"]

SPARSE_BLOCK_ROWS = 4096
"""Rows per block. The float64 sum has an error of at most 4096 gamma_4097 C, far below the summation slack."""


def sparse_block(oracle: LinearOracle, query: Query, features: CsrRows, labels: NDArray[Any]) -> Clipped:
    """Compute the clipped sum of one block, rounded to the grid."""
    width, k = features.shape[1], oracle.loss.outputs
    # If rowwise, blocks are padded to one size: the arithmetic on a row must not depend on its place in the block.
    rows = SPARSE_BLOCK_ROWS if query.rowwise else len(labels)
    labels = np.pad(labels, (0, rows - (held := len(labels))))
    row, column, value, zeroed = _merged(features, rows)
    zeroed |= ~oracle.loss.valid(labels)
    lengths = _lengths(row, value, rows)
    if oracle.intercept:
        lengths = row_norms(np.stack([lengths, np.ones(rows)], axis=1))
    zeroed |= ~(lengths <= LARGEST_NORM)
    y = np.where(zeroed, 0, labels)
    c = np.zeros((rows, k))
    for weight, point in zip(query.weights, query.points, strict=True):
        x = point.reshape(k, -1)
        scores = np.stack([_sums(row, value * x_k[column], rows) for x_k in x], axis=1)
        c += weight * oracle.slopes(scores + x[:, -1] if oracle.intercept else scores, y)
    norms = row_norms(c) * lengths
    zeroed |= ~(norms <= LARGEST_NORM)
    c[zeroed], norms[zeroed] = 0.0, 0.0
    scale, over = clip_scale(norms, query.clip, width + oracle.intercept + k)
    c *= scale[:, None]
    c[held:] = 0.0
    used = ~(zeroed | (lengths < SMALLEST_NORM))[row]
    total = _sum(query, c, row[used], column[used], value[used], width, oracle.intercept)
    clipped, uncounted = int(np.sum(over[:held])), int(np.sum(zeroed[:held]))
    return Clipped(total, held, clipped_rows=clipped, zeroed_rows=uncounted)


def _merged(features: CsrRows, rows: int) -> tuple[Any, Any, Array, NDArray[np.bool_]]:
    """Return row, column and value of every stored number, one per place, and which rows have an invalid column."""
    width = features.shape[1]
    own = slice(features.indptr[0], features.indptr[-1])
    row = np.repeat(np.arange(len(features)), np.diff(features.indptr))
    column, value = features.indices[own].astype(np.int64), features.data[own].astype(np.float64)
    outside = (column < 0) | (column >= width)
    bad = np.zeros(rows, dtype=bool)
    bad[row[outside]] = True
    row, column, value = row[~outside], column[~outside], value[~outside]
    place = row * width + column
    if np.all(place[1:] > place[:-1]):
        return row, column, value, bad
    place, where = np.unique(place, return_inverse=True)
    return place // width, place % width, _sums(where, value, len(place)), bad


def _sums(where: Any, values: Array, size: int) -> Array:
    """Sum the values of each place, in the order of storage."""
    return np.bincount(where, values, size).astype(np.float64, copy=False)


def _lengths(row: Any, value: Array, rows: int) -> Array:
    """Compute the l2 norm of each row, scaled by a power of two if its squares would leave the normal range."""
    largest = np.zeros(rows)
    np.maximum.at(largest, row, np.abs(value))
    _, exponent = np.frexp(np.where((largest > 1e-140) & (largest < 1e140), 1.0, largest))
    scaled = np.ldexp(value, -exponent[row])
    return np.asarray(np.ldexp(np.sqrt(_sums(row, scaled * scaled, rows)), exponent))


def _sum(query: Query, c: Array, row: Any, column: Any, value: Array, width: int, intercept: bool) -> Array:
    parts = []
    for c_k in c.T:
        each = c_k[row] * value
        total = _sums(column, to_grid(each, query.grid) if query.rowwise else each, width)
        constant = (to_grid(c_k, query.grid) if query.rowwise else c_k).sum()
        parts.append(np.append(total, constant) if intercept else total)
    return to_grid(np.concatenate(parts), query.grid)
