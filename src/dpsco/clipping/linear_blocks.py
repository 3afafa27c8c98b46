"""Blocks of rows of a linear model in plain NumPy: dense rows, and compressed sparse rows.

A block converts its rows to float64 and sets rows to 0 that are not finite or have no valid label. If ``pad``, blocks
are padded with zero rows: a deleted row shifts the others, and the arithmetic on a row must not depend on its place.

Sparse sums are ``np.bincount``, which adds in the order of storage, so the bits of a row's contribution depend on that
row only. Values stored twice for one column are added first. A row with an index outside the matrix counts as zero.
Cost: dense rows need two products and one sum per block; sparse rows O(stored values) per class and point, and O(p)
per block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, row_norms
from dpsco.clipping.squares import squares_of
from dpsco.clipping.stored_values import lengths_of, merged, sums
from dpsco.problem.losses import Labels, Loss
from dpsco.query import CHUNK_ROWS, Array, Query, to_grid
from dpsco.rows.csr import CsrRows

__all__ = ["DenseBlock", "SparseBlock"]

_LEAST_ROWS = 256
"""Rows of the shortest block; padded dense blocks have a multiple of this many rows."""

_BLOCK_NUMBERS = 1 << 17
"""Numbers of a dense block: 1 MB stays in the cache, and every operation of NumPy has enough work."""


@dataclass(frozen=True, eq=False)
class DenseBlock:
    """Some dense rows; ``a`` is 0 where a row does not count."""

    a: Array
    labels: Labels
    lengths: Array
    zeroed: NDArray[np.bool_]
    width: int

    @staticmethod
    def rows(width: int, outputs: int) -> int:
        """Return the rows of a block, from public numbers: a power of two from 256 to 4096, at most ``CHUNK_ROWS``.

        Guarantee: it divides ``chunk_multiple(width)``. A float64 sum has an error of at most 4096 gamma_4096 C < 2^-28
        C. The summation slack is 2^-10 C.
        """
        return min(CHUNK_ROWS, max(_LEAST_ROWS, 1 << (_BLOCK_NUMBERS // (width * outputs or 1)).bit_length() >> 1))

    @classmethod
    def of(
        cls, features: Any, labels: Labels, loss: Loss, *, intercept: bool, pad: bool, own: bool = False
    ) -> DenseBlock:
        """Copy the rows into one layout; ``own`` rows, which nobody else reads, are overwritten where they lie."""
        held, width = features.shape
        rows = -(-held // _LEAST_ROWS) * _LEAST_ROWS if pad else held
        y = np.zeros(rows, dtype=np.asarray(labels).dtype)
        y[:held] = labels
        if own and not (intercept or pad) and features.dtype == np.float64 and features.flags.carray:
            a = features
        else:
            a = np.zeros((rows, width + intercept))
            a[:held, :width] = features
            a[:held, width:] = 1.0
        lengths = row_norms(a)
        zeroed, nothing = _unusable(lengths, y, loss)
        a[nothing] = 0.0
        return cls(a, y, lengths, zeroed, width + intercept)

    def scores(self, x: Array, *, rowwise: bool) -> Array:
        """Compute <a_i, x_k> per row and class; if rowwise, by a sum that does not depend on the row's position."""
        if rowwise:
            return np.stack([np.sum(self.a * x_k, axis=1) for x_k in x], axis=1)
        return self.a @ x.T

    def total(self, c: Array, query: Query) -> Array:
        """Sum c_i a_i over rows, on the query's grid; the sum of their squares follows, if it is asked for."""
        if query.squares:
            each = (c[:, :, None] * self.a[:, None, :]).reshape(len(c), -1)
            each = np.hstack([each, squares_of(each, query)])
            return to_grid(to_grid(each, query.grid if query.rowwise else 0.0).sum(axis=0), query.grid)
        if query.rowwise:
            return np.asarray(to_grid(c[:, :, None] * self.a[:, None, :], query.grid).sum(axis=0).ravel())
        return to_grid((c.T @ self.a).ravel(), query.grid)


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """Some sparse rows: ``places`` are the row, column and value of every stored number of the rows that count."""

    places: tuple[Any, Any, Array]
    labels: Labels
    lengths: Array
    zeroed: NDArray[np.bool_]
    width: int
    intercept: bool

    @staticmethod
    def rows(width: int, outputs: int) -> int:
        """Return the rows of a block. The sum has an error of at most 4096 gamma_4097 C, far below the slack."""
        return CHUNK_ROWS

    @classmethod
    def of(
        cls, features: CsrRows, labels: Labels, loss: Loss, *, intercept: bool, pad: bool, own: bool = False
    ) -> SparseBlock:
        """Merge the values of each place, in new arrays whoever owns the rows."""
        rows = CHUNK_ROWS if pad else len(labels)
        y = np.pad(labels, (0, rows - len(labels)))
        row, column, value, outside = merged(features, rows)
        lengths = lengths_of(row, value, rows)
        if intercept:
            lengths = row_norms(np.stack([lengths, np.ones(rows)], axis=1))
        lengths[outside] = np.inf
        zeroed, nothing = _unusable(lengths, y, loss)
        used = ~nothing[row]
        return cls((row[used], column[used], value[used]), y, lengths, zeroed, features.shape[1] + intercept, intercept)

    def scores(self, x: Array, *, rowwise: bool) -> Array:
        """Compute <a_i, x_k> per row and class."""
        row, column, value = self.places
        scores = np.stack([sums(row, value * x_k[column], len(self.labels)) for x_k in x], axis=1)
        return scores + x[:, -1] if self.intercept else scores

    def total(self, c: Array, query: Query) -> Array:
        """Sum c_i a_i over rows, on the query's grid."""
        row, column, value = self.places
        parts = []
        for c_k in c.T:
            each = c_k[row] * value
            total = sums(column, to_grid(each, query.grid) if query.rowwise else each, self.width - self.intercept)
            constant = (to_grid(c_k, query.grid) if query.rowwise else c_k).sum()
            parts.append(np.append(total, constant) if self.intercept else total)
        return to_grid(np.concatenate(parts), query.grid)


def _unusable(lengths: Array, labels: Labels, loss: Loss) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows count as zero and which contribute nothing; set their labels and norms to 0."""
    zeroed = ~((lengths <= LARGEST_NORM) & loss.valid(labels))
    nothing = zeroed | (lengths < SMALLEST_NORM)
    labels[zeroed], lengths[nothing] = 0, 0.0
    return zeroed, nothing
