"""What an estimator streams: its arrays in an order that no value decides, each row in the unit ball."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import CHUNK_ROWS, Array, Batch, Chunk, Portion, chunk_multiple
from dpsco.rows.csr import is_sparse
from dpsco.rows.layout import Layout
from dpsco.rows.row_norm import unit_rows
from dpsco.rows.stream import Sample, Stream

__all__ = ["PermutedRows"]

_CHUNK_BYTES = 4 << 20


class PermutedRows(Stream):
    """Rows of ``features`` (dense or CSR) and ``targets``, in ``order``; a target that is NaN marks a zero row.

    Cost: one gathered chunk at a time, about 4 MB of dense rows; the arrays are not copied.
    """

    def __init__(self, features: Any, targets: Array, order: NDArray[np.int64], feature_norm: float) -> None:
        super().__init__()
        self._features, self._targets, self._order, self._norm = features, targets, order, feature_norm
        self.rows_available = len(targets)

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        for step in range(layout.rounds):
            first = step * layout.batch_size
            yield Batch(step, self._chunks(first, min(first + layout.batch_size, len(self._order))))

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        """Any consecutive portions will do: the rows stay at hand."""

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        for step, portion in enumerate(portions):
            last = min(portion.last, len(self._order))
            yield Batch(step, self._chunks(min(portion.first, last), last))

    def _chunks(self, first: int, last: int) -> Iterator[Chunk]:
        width = max(1, self._features.shape[1])
        unit = CHUNK_ROWS if is_sparse(self._features) else chunk_multiple(width)
        rows = max(1, _CHUNK_BYTES // (8 * width * unit)) * unit
        for start in range(first, last, rows):
            picked = self._order[start : min(start + rows, last)]
            self.rows_read = (self.rows_read or 0) + len(picked)
            features = self._features[picked]
            if not is_sparse(features):  # in one order of memory: norms are summed along it
                features = np.ascontiguousarray(features)
            yield unit_rows(features, self._norm, in_place=True), self._targets[picked]
