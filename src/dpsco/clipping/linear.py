"""Linear models in plain NumPy, block by block.

A row's weighted difference is ``c a`` with the scalar (or one number per class)

    c = sum_j weights[j] slope(<a, points[j]>, y),

so its norm is ||c|| ||a||: clipping needs no gradient to be formed.
Cost: for each block of 256 rows two products, one sum; memory of one block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale, row_norms
from dpsco.clipping.linear_sparse import SPARSE_BLOCK_ROWS, sparse_block
from dpsco.problem.losses import Labels, Loss
from dpsco.query import Array, Batch, Chunk, Clipped, Query, to_grid
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["LinearOracle"]

BLOCK_ROWS = 256
"""Rows of a block: their sum in float64 is off by at most 256 gamma_256 C, far below the summation slack."""


@dataclass(frozen=True)
class LinearOracle:
    """Oracle of a loss of linear models; ``intercept`` as in ``Problem``.

    ``slope(score, label)``, a function of two numbers, takes the place of the loss's own derivative: any linear model
    then has an oracle (``loss`` still says which labels are valid). Rows may be dense or SciPy's CSR.
    """

    loss: Loss
    intercept: bool = False
    slope: Callable[[float, float], float] | None = None

    def answer(self, query: Query, batch: Batch) -> Clipped:
        answer = Clipped(np.zeros(query.points[0].size), 0)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for features, labels in batch.chunks:
                sparse = is_sparse(features)
                rows: Any = CsrRows.of(features) if sparse else features
                for start in range(0, len(labels), size := SPARSE_BLOCK_ROWS if sparse else BLOCK_ROWS):
                    a, y = rows[start : start + size], labels[start : start + size]
                    answer += sparse_block(self, query, a, y) if sparse else self._block(query, (a, y))
        return answer

    def _block(self, query: Query, chunk: Chunk) -> Clipped:
        a, y, lengths, zeroed = self._usable_rows(chunk, pad=query.rowwise)
        k = self.loss.outputs
        c = np.zeros((len(y), k))
        for weight, point in zip(query.weights, query.points, strict=True):
            c += weight * self.slopes(_scores(a, point.reshape(k, -1), query.rowwise), y)
        norms = row_norms(c) * lengths
        zeroed |= ~(norms <= LARGEST_NORM)  # also finite rows so large that their score is not
        c[zeroed], norms[zeroed] = 0.0, 0.0
        scale, over = clip_scale(norms, query.clip, a.shape[1] + k)
        c *= scale[:, None]
        rows = len(chunk[1])
        tallies = {"clipped_rows": int(np.sum(over)), "zeroed_rows": int(np.sum(zeroed[:rows]))}
        if query.rowwise:
            contributions = to_grid(c[:, :, None] * a[:, None, :], query.grid)
            return Clipped(contributions.sum(axis=0).ravel(), rows, **tallies)
        return Clipped(to_grid((c.T @ a).ravel(), query.grid), rows, **tallies)

    def slopes(self, scores: Array, labels: Labels) -> Array:
        """d loss / d score of each row and class, both of shape (rows, classes)."""
        if self.slope is not None:
            pairs = zip(scores[:, 0].tolist(), labels.tolist(), strict=True)
            return np.array([self.slope(score, label) for score, label in pairs], dtype=np.float64).reshape(-1, 1)
        if self.loss.outputs == 1:
            return self.loss.slope(scores[:, 0], labels)[:, None]
        return self.loss.slope(scores, labels)

    def _usable_rows(self, chunk: Chunk, *, pad: bool) -> tuple[Array, Labels, Array, NDArray[np.bool_]]:
        """Rows in float64, labels, row norms; rows that are not finite or have no valid label are set to 0.

        Always a copy in one layout, and padded to whole blocks where a deleted row shifts the others: the
        arithmetic on a row must not depend on what is beside it.
        """
        rows = len(chunk[1])
        size = BLOCK_ROWS if pad else rows
        width = chunk[0].shape[1]
        a, y = np.zeros((size, width + self.intercept)), np.zeros(size, dtype=np.asarray(chunk[1]).dtype)
        a[:rows, :width], y[:rows] = chunk
        if self.intercept:
            a[:rows, -1] = 1.0
        lengths = row_norms(a)
        zeroed = ~((lengths <= LARGEST_NORM) & self.loss.valid(y))
        y[zeroed] = 0
        nothing = zeroed | (lengths < SMALLEST_NORM)
        a[nothing], lengths[nothing] = 0.0, 0.0
        return a, y, lengths, zeroed


def _scores(a: Array, x: Array, rowwise: bool) -> Array:
    """<a_i, x_k> for every row and class; if rowwise by a sum that does not depend on the row's position."""
    if rowwise:
        return np.stack([np.sum(a * x_k, axis=1) for x_k in x], axis=1)
    return a @ x.T
