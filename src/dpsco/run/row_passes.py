"""Rows of one objective, read again for every pass of a solver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsco.clipping import LinearOracle
from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale, row_norms
from dpsco.methods.objective_perturbation import BLOCK
from dpsco.problem import Problem
from dpsco.query import Array, Batch, Chunk
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.one_pass import Again

__all__ = ["RowPasses", "within"]

_WITHIN = 1.0 - 1e-12
_TINY = np.finfo(np.float64).tiny
_KEPT = 1 << 30
"""Bytes of rows that are kept between passes, where they could be read again."""

Block = tuple[Array, Any, Array]
"""Rows, labels, norms of the rows."""


class RowPasses:
    """SENSITIVE: sums of derivatives over all rows of a batch, in float64.

    Rows are shortened to the problem's feature norm and get the column ``constant``, if there is one. The slope of a
    row is clamped, so that its gradient is at most ``clip`` long. Rows that are not usable are zero rows.

    Cost: rows are kept in memory up to a gigabyte; more are read again in every pass, where their source allows it.
    """

    rows = 0
    """Rows of the last pass."""

    def __init__(self, problem: Problem, batch: Batch, clip: float, constant: float) -> None:
        self._problem, self._chunks, self._clip, self._constant = problem, batch.chunks, clip, constant
        self._linear = LinearOracle(problem.loss)
        self._kept: list[Block] | None = None

    def derivatives(self, x: Array, damping: float | None) -> tuple[Array, Array | None]:
        """Sum of the gradients at ``x``, added with compensation, and of the Hessians unless ``damping`` is None.

        ``damping`` moves the curvature of each row towards the largest that the loss has, by that share.
        """
        outputs = self._problem.loss.outputs
        points = x.reshape(outputs, -1)
        total, lost = np.zeros(x.size), np.zeros(x.size)
        hessian = None if damping is None else np.zeros((x.size, x.size))
        self.rows = 0
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for a, y, lengths in self._blocks():
                scores = a @ points.T
                c = self._linear.slopes(scores, y)
                scale, _ = clip_scale(row_norms(c) * lengths, self._clip, a.shape[1] + outputs)
                part = ((c * scale[:, None]).T @ a).ravel() - lost
                after = total + part
                lost, total = (after - total) - part, after
                if hessian is not None and damping is not None:
                    self._add_hessian(hessian, a, scores, y, damping)
                self.rows += len(y)
        return total, hessian

    def _add_hessian(self, hessian: Array, a: Array, scores: Array, labels: Any, damping: float) -> None:
        loss, width = self._problem.loss, a.shape[1]
        more = damping * loss.smoothness(1.0)
        if loss.outputs == 1:
            weights = (1 - damping) * loss.curvature(scores[:, 0], labels) + more
            hessian += (a * weights[:, None]).T @ a
            return
        weights = (1 - damping) * loss.curvature(scores, labels) + more * np.eye(loss.outputs)
        for k in range(loss.outputs):
            for j in range(k + 1):
                part = (a * weights[:, k, j, None]).T @ a
                rows, columns = slice(k * width, (k + 1) * width), slice(j * width, (j + 1) * width)
                hessian[rows, columns] += part
                if j < k:
                    hessian[columns, rows] += part.T

    def _blocks(self) -> Iterator[Block]:
        if self._kept is not None:
            yield from self._kept
            return
        again, kept, size = isinstance(self._chunks, Again), [], 0
        for block in self._read():
            size += block[0].nbytes
            if not again or size <= _KEPT:
                kept.append(block)
            yield block
        if not again or size <= _KEPT:
            self._kept = kept

    def _read(self) -> Iterator[Block]:
        loss, width = self._problem.loss, self._problem.dimension
        columns = width + bool(self._constant)
        for features, labels in within(self._chunks, self._problem.feature_norm):
            for start in range(0, len(labels), BLOCK):
                y = labels[start : start + BLOCK]
                a = np.full((len(y), columns), self._constant)
                a[:, :width] = features[start : start + BLOCK]
                lengths, valid = row_norms(a), loss.valid(y)
                unusable = ~(lengths <= LARGEST_NORM) | ~valid | (lengths < SMALLEST_NORM)
                a[unusable], lengths[unusable] = 0.0, 0.0
                yield a, np.where(valid, y, 0).astype(np.int64 if loss.outputs > 1 else np.float64), lengths


def within(chunks: Any, feature_norm: float) -> Iterator[Chunk]:
    """Dense chunks in float64 with rows longer than ``feature_norm`` shortened to it; a row depends on itself alone."""
    for features, labels in chunks:
        if is_sparse(features):
            features = CsrRows.of(features).dense()
        a = np.array(features, dtype=np.float64)
        lengths = row_norms(a)
        with np.errstate(all="ignore"):
            long = lengths > feature_norm * _WITHIN
            if np.any(long):
                factor = feature_norm * _WITHIN / lengths[long]
                factor[~(factor >= _TINY)] = 0.0  # a subnormal factor has too few digits: the row counts as zero
                a[long] *= factor[:, None]
        yield a, labels
