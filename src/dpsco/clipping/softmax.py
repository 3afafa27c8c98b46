"""Softmax on dense rows by matrix products: BLAS for scores and sums, one class vector c and one norm per row.

    c = w_0 (softmax(X_0 a) - e_y) + w_1 (softmax(X_1 a) - e_y),     ||c a'|| = ||c|| ||a||,     sum = C' A,

with the scores of both points from one product of the rows with a p x 2K matrix.
Guarantee: as in kernels/dense_rows.py: float32 sums of 64 rows (64 gamma_65 of the clip, in any order of addition) or
float64 sums of 256 rows, rounded to the grid. Rows that are not finite, or whose squares leave the safe range, are
excluded from the products and processed one at a time by ``LinearOracle``. Bits do not depend on the number of
threads, because each BLAS call uses one.
Cost: two products per row; one read of memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.kernel_inputs import ask_of, flat, row_type
from dpsco.clipping.linear import LinearOracle
from dpsco.parallel import available_threads, in_order, one_blas_thread
from dpsco.problem.losses import Loss
from dpsco.query import Array, Batch, Clipped, Query, chunk_multiple, to_grid
from dpsco.rows.csr import is_sparse

__all__ = ["SoftmaxOracle"]

TASK_ROWS = 1024


@dataclass(frozen=True)
class SoftmaxOracle:
    """``LinearOracle`` for a loss with several scores per row, in threads."""

    loss: Loss
    intercept: bool = False
    threads: int | None = None

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        answer = Clipped(np.zeros(query.points[0].size), 0)
        with one_blas_thread():
            for part in in_order(self._tasks(query, batch), self.threads or available_threads()):
                answer += part
        return answer

    def _tasks(self, query: Query, batch: Batch) -> Iterator[Callable[[], Clipped]]:
        plain = LinearOracle(self.loss, self.intercept)
        x = np.stack([query.points[0], query.points[-1]]).reshape(2 * self.loss.outputs, -1).T
        for features, labels in batch.chunks:
            if is_sparse(features):
                yield functools.partial(plain.answer, query, Batch(batch.step, [(features, labels)]))
                continue
            points = np.ascontiguousarray(x, row_type(features.dtype, query))
            size = min(TASK_ROWS, chunk_multiple(features.shape[1]))
            for start in range(0, len(labels), size):
                rows = slice(start, start + size)
                yield functools.partial(self._task, query, points, features, labels, rows)

    def _task(self, query: Query, points: NDArray[Any], chunk: Any, all_labels: NDArray[Any], taken: slice) -> Clipped:
        from dpsco.clipping.kernels.dense_rows import block_rows
        from dpsco.clipping.kernels.slopes import CAREFUL, CUSTOM
        from dpsco.clipping.kernels.softmax_parts import class_factors, squares

        features, labels = chunk[taken], all_labels[taken]
        a = np.ascontiguousarray(features, points.dtype)
        rows, width = a.shape
        square, state = np.empty(rows), np.empty(rows, np.uint8)
        squares(flat(a, a.dtype), width, square)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            scores = a @ points[:width]
            if self.intercept:
                scores, square = scores + points[width], square + 1.0
        ask = ask_of(query, width + self.loss.outputs, a.itemsize == 4, kind=CUSTOM, parameter=0.0, intercept=False)
        c = np.empty((rows, self.loss.outputs), a.dtype)
        shares = np.array(getattr(self.loss, "weights", ()) or np.ones(self.loss.outputs))
        over = class_factors(ask, scores, square, flat(labels, np.dtype(np.float64)), shares, c, state)
        slow = np.flatnonzero(state == CAREFUL)
        if slow.size:
            a = a.copy()
            a[slow] = 0.0
        clipped = Clipped(self._sum(query, c, a, features, labels, slow, block_rows(a.itemsize)), rows)
        clipped.clipped_rows = over
        for row in slow.tolist():
            part = self._alone(query, features, labels, row)
            clipped.clipped_rows += part.clipped_rows
            clipped.zeroed_rows += part.zeroed_rows
        return clipped

    def _alone(self, query: Query, features: NDArray[Any], labels: NDArray[Any], row: int) -> Clipped:
        """Compute one row's contribution without rounding to the grid."""
        chunk = np.asarray(features[row : row + 1], dtype=np.float64), labels[row : row + 1]
        return LinearOracle(self.loss, self.intercept).answer(replace(query, grid=0.0), Batch(query.step, [chunk]))

    def _sum(
        self,
        query: Query,
        c: NDArray[Any],
        a: NDArray[Any],
        features: NDArray[Any],
        labels: NDArray[Any],
        slow: NDArray[np.int64],
        block: int,
    ) -> Array:
        """Sum to_grid(C' A + the slow rows of the block) over blocks."""
        from dpsco.clipping.kernels.softmax_parts import settle

        k, width = c.shape[1], a.shape[1]
        total: Array = np.zeros((k, width + self.intercept))
        whole = 0 if slow.size else len(a) // block * block
        if whole:  # all whole blocks at once: fewer calls that hold the interpreter lock
            blocks = c[:whole].reshape(-1, block, k)
            settle(blocks.transpose(0, 2, 1) @ a[:whole].reshape(-1, block, width), query.grid, total)
            if self.intercept:
                lasts = np.asarray(np.sum(blocks, axis=1, dtype=np.float64))
                total[:, -1] += np.sum(to_grid(lasts, query.grid), axis=0)
        for start in range(whole, len(a), block):
            rows = slice(start, start + block)
            part = c[rows].T @ a[rows]
            if self.intercept:
                part = np.column_stack([part, np.sum(c[rows], axis=0, dtype=np.float64)])
            inside = [] if not slow.size else slow[(slow >= start) & (slow < start + block)].tolist()
            if not inside:
                settle(part[None], query.grid, total)
                continue
            mixed = part.astype(np.float64)
            for row in inside:
                mixed = mixed + self._alone(query, features, labels, row).total.reshape(k, -1)
            total += to_grid(mixed, query.grid)
        return total.ravel()
