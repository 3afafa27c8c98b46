"""Linear models in plain NumPy, block by block.

A row's weighted difference is ``c a`` with a scalar c (or one number per class)

    c = sum_j weights[j] slope(<a, points[j]>, y),

so its norm is ||c|| ||a||, and clipping does not need the gradient itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.clipping.linear_blocks import DenseBlock, SparseBlock
from dpsco.clipping.no_warnings import no_warnings
from dpsco.clipping.synthetic import must_answer_once
from dpsco.problem.losses import Labels, Loss
from dpsco.query import CHUNK_ROWS, Array, Batch, Chunk, Clipped, Query
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.on_demand import RowsOnDemand

__all__ = ["LinearOracle", "try_slope"]

Slope = Callable[[float, float], float]


@dataclass(frozen=True)
class LinearOracle:
    """Oracle of a loss of linear models, for dense or SciPy CSR rows.

    Parameters
    ----------
    loss : Loss
        Supplies the derivative and decides which labels are valid.
    intercept : bool
        As in ``Problem``.
    slope : callable, optional
        ``slope(score, label)`` replaces the derivative of the loss, so any linear model has an oracle. A row on which
        it fails counts as 0. Its error is raised if it fails on all synthetic scores and labels.
    """

    loss: Loss
    intercept: bool = False
    slope: Slope | None = None

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        answer = Clipped(np.zeros(query.points[0].size * (2 if query.squares else 1)), 0)
        if self.slope is not None:
            try_slope(self.slope)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for features, labels in batch.chunks:
                rows: Any = CsrRows.of(features) if is_sparse(features) else features
                kind = SparseBlock if isinstance(rows, CsrRows) else DenseBlock
                size, own = kind.rows(rows.shape[1], self.loss.outputs), isinstance(rows, RowsOnDemand)  # made for us
                for a, y in _pieces(rows, labels, size):
                    block = kind.of(a, y, self.loss, intercept=self.intercept, pad=query.rowwise, own=own)
                    answer += self._clipped_sum(query, block, len(y))
        return answer

    def _clipped_sum(self, query: Query, block: DenseBlock | SparseBlock, rows: int) -> Clipped:
        k = self.loss.outputs
        c = np.zeros((len(block.labels), k))
        for weight, point in zip(query.weights, query.points, strict=True):
            c += weight * self.slopes(block.scores(point.reshape(k, -1), rowwise=query.rowwise), block.labels)
        norms = row_norms(c) * block.lengths
        zeroed = block.zeroed
        zeroed |= ~(norms <= LARGEST_NORM)  # includes finite rows whose score overflows
        c[zeroed], norms[zeroed] = 0.0, 0.0
        scale, over = clip_scale(norms, query.gradient_clip, block.width + k)
        c *= scale[:, None]
        c[rows:] = 0.0  # padding
        clipped, uncounted = int(np.sum(over[:rows])), int(np.sum(zeroed[:rows]))
        return Clipped(block.total(c, query), rows, clipped_rows=clipped, zeroed_rows=uncounted)

    def slopes(self, scores: Array, labels: Labels) -> Array:
        """Compute d loss / d score per row and class; scores and result have shape (rows, classes)."""
        if self.slope is not None:
            pairs = zip(scores[:, 0].tolist(), labels.tolist(), strict=True)
            with no_warnings():  # np.errstate does not know those of Python code
                return np.array([_slope_or_nan(self.slope, *pair) for pair in pairs], dtype=np.float64).reshape(-1, 1)
        if self.loss.outputs == 1:
            return self.loss.slope(scores[:, 0], labels)[:, None]
        return self.loss.slope(scores, labels)


def _pieces(rows: Any, labels: Any, size: int) -> Iterator[Chunk]:
    """Cut a chunk into blocks of ``size`` rows; rows on demand are made for several blocks at once."""
    many = CHUNK_ROWS if isinstance(rows, RowsOnDemand) else max(1, len(labels))
    for first in range(0, len(labels), many):
        part: Any = rows[first : first + many] if isinstance(rows, RowsOnDemand) else rows
        for start in range(0, min(many, len(labels) - first), size):
            yield part[start : start + size], labels[first + start : first + start + size][: len(part) - start]


def try_slope(slope: Slope) -> None:
    """Raise the error of a user's slope if it fails on all synthetic scores and labels, before it sees a row."""
    pairs = product((0.0, 0.5, -1.0), (0.0, 1.0, -1.0))
    with np.errstate():  # a slope may call np.seterr: that ends here
        must_answer_once(partial(slope, score, label) for score, label in pairs)


def _slope_or_nan(slope: Slope, score: float, label: float) -> float:
    try:
        with np.errstate():
            return float(slope(score, label))
    except KeyboardInterrupt:  # of the user, not of a row
        raise
    except BaseException:  # an error that depends on a row is an output, SystemExit too
        return float("nan")
