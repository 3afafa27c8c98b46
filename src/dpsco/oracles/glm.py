"""Linear models in plain NumPy, block by block.

A row's weighted difference is ``c a`` with the scalar (or one number per class)

    c = sum_j weights[j] slope(<a, points[j]>, y),

so its norm is ||c|| ||a||: clipping needs no gradient to be formed.
Cost: for each block of 256 rows two products, one sum; memory of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsco.oracles.clipping import LARGEST_NORM, clip_scale, row_norms
from dpsco.problem.losses import Labels, Loss
from dpsco.values import Array, Batch, Chunk, Clipped, Query, to_grid

__all__ = ["LinearOracle"]


@dataclass(frozen=True)
class LinearOracle:
    """Oracle of a loss of linear models."""

    loss: Loss

    def answer(self, query: Query, batch: Batch) -> Clipped:
        answer = Clipped(np.zeros(query.points[0].size), 0)
        rows = 256 if query.block == 1 else query.block
        for features, labels in batch.chunks:
            for start in range(0, len(labels), rows):
                answer += self._block(query, (features[start : start + rows], labels[start : start + rows]))
        return answer

    def _block(self, query: Query, chunk: Chunk) -> Clipped:
        a, y, lengths, zeroed = self._usable_rows(chunk)
        k = self.loss.outputs
        with np.errstate(over="ignore", invalid="ignore"):
            c = np.zeros((len(y), k))
            for weight, point in zip(query.weights, query.points, strict=True):
                c += weight * self._slope(_scores(a, point.reshape(k, -1), query.block), y)
            bad = ~np.all(np.isfinite(c), axis=1)  # finite rows so large that their score overflows
            c[bad | zeroed] = 0.0
            norms = row_norms(c) * lengths
        scale, over = clip_scale(norms, query.clip, query.points[0].size + k)
        c *= scale[:, None]
        tallies = {"clipped_rows": int(np.sum(over & ~zeroed)), "zeroed_rows": int(np.sum(zeroed | bad))}
        if query.block == 1:  # every row rounded by itself: the sum then depends on no row's position
            contributions = to_grid(c[:, :, None] * a[:, None, :], query.grid)
            return Clipped(contributions.sum(axis=0).ravel(), len(y), **tallies)
        return Clipped(to_grid((c.T @ a).ravel(), query.grid), len(y), **tallies)

    def _slope(self, scores: Array, labels: Labels) -> Array:
        if self.loss.outputs == 1:
            return self.loss.slope(scores[:, 0], labels)[:, None]
        return self.loss.slope(scores, labels)

    def _usable_rows(self, chunk: Chunk) -> tuple[Array, Labels, Array, NDArray[np.bool_]]:
        """Rows in float64, labels, row norms; rows that are not finite or have no valid label are set to 0."""
        a = np.asarray(chunk[0], dtype=np.float64)
        y = np.asarray(chunk[1])
        lengths = row_norms(a)
        zeroed = ~((lengths <= LARGEST_NORM) & self.loss.valid(y))
        if np.any(zeroed):
            a, y, lengths = np.where(zeroed[:, None], 0.0, a), np.where(zeroed, 0, y), np.where(zeroed, 0.0, lengths)
        return a, y, lengths, zeroed


def _scores(a: Array, x: Array, block: int) -> Array:
    """<a_i, x_k> for every row and class; for block = 1 by a sum that does not depend on the row's position."""
    if block == 1:
        return np.stack([np.einsum("ij,j->i", a, x_k) for x_k in x], axis=1)
    return a @ x.T
