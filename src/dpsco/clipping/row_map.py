"""Rows in the coordinates of a surveyed run: b = P a, a the unit row of clipping/survey.py.

Rounds after a survey are plain rounds on the rows b: scores are <b, u>, contributions c b are clipped by ||c b|| =
||P (c a)||, sums and noise are in the coordinates of u, and the model is x = P'u.

Guarantee: b depends on its row, its place in its unit of rows and public numbers alone. Rows are mapped unit by unit
and on one BLAS thread, so parts of a round that begin at whole units give the bits of the whole round. The clip, the
block sums and the grid apply to the float64 vector b, whatever rounding made it. So neither the condition of P nor the
error of the product enters the proof: a row may become any vector before it is clipped.
Cost: p^2 multiply-adds per row, by matrix products; memory of one piece of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.oracle import Oracle
from dpsco.clipping.survey import dense, unit_rows
from dpsco.errors import InvalidArgument
from dpsco.parallel import one_blas_thread
from dpsco.query import Array, Batch, Chunk, Clipped, Query, chunk_multiple
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["MappedOracle", "RowMap"]

_PIECES = 4
"""Units of ``chunk_multiple`` rows that are mapped at once: about 8 MB."""


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map from rows to the coordinates of u, and back for models. Public: made from released values."""

    matrix: Array
    """P, of shape (p, p) with the constant's column last."""
    feature_norm: float
    constant: float
    """The column that stands for the intercept; 0 without one."""

    def rows(self, features: Any) -> Array:
        """B of each row, a row that is not finite as NaN: SENSITIVE."""
        a, _, unusable = unit_rows(dense(features), self.feature_norm, self.constant)
        size = chunk_multiple(len(self.matrix))
        with np.errstate(all="ignore"):
            for start in range(0, len(a), size):  # the shape of a product may change the bits of its rows
                a[start : start + size] = a[start : start + size] @ self.matrix.T
        a[unusable] = np.nan
        return a

    def parameters(self, u: Array) -> Array:
        """Return the problem's own parameters that ``u`` stands for, class after class."""
        p = len(self.matrix)
        x = u.reshape(-1, p) @ self.matrix
        x[:, : p - (self.constant > 0)] /= self.feature_norm
        if self.constant > 0:
            x[:, -1] *= self.constant
        return np.asarray(x.ravel())


@dataclass(frozen=True)
class MappedOracle:
    """An oracle of linear models without intercept, on mapped rows."""

    inner: Oracle
    map: RowMap

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of the mapped rows of ``batch``."""
        if query.rowwise:
            raise InvalidArgument("Mapped rows are placed by position: adjacency='add-remove' takes no survey.")
        with one_blas_thread():
            return self.inner.answer(query, Batch(batch.step, self._mapped(batch)))

    def _mapped(self, batch: Batch) -> Iterator[Chunk]:
        for features, labels in batch.chunks:
            rows: Any = CsrRows.of(features) if is_sparse(features) else features
            size = _PIECES * chunk_multiple(len(self.map.matrix))
            for start in range(0, len(labels), size):
                part: NDArray[Any] = labels[start : start + size]
                yield self.map.rows(rows[start : start + size]), part
