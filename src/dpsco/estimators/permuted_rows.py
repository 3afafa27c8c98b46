"""What an estimator streams: its arrays in an order that no value decides, each row in the unit ball."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import CHUNK_ROWS, Array, Batch, Chunk, Portion
from dpsco.rows.check_beside import CheckBeside
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.layout import Layout
from dpsco.rows.on_demand import RowsOnDemand, Source
from dpsco.rows.one_pass import whole
from dpsco.rows.random_order import SMALL_BYTES, Ranks
from dpsco.rows.row_norm import unit_rows
from dpsco.rows.stream import Sample, Stream

__all__ = ["PermutedRows"]

_CHUNK_BYTES = 16 << 20
"""Of a chunk of CSR rows."""
_STORED_BYTES = 16
"""Of a stored value and its column, while rows are gathered and divided."""


class PermutedRows(Stream):
    """Rows of ``features`` (dense or CSR) and ``targets``, in ``order``; a target that is NaN marks a zero row.

    ``check`` is one of all rows that may still run. ``cap`` is how many rows of one id have a target.

    A batch holds its rows in the order of memory: which rows they are is what the order decides.
    Cost: the arrays are not copied. Threads of the oracle gather dense rows, a piece each at a time; CSR rows come in
    chunks of about 16 MB. A dense table of at most 1 MB is gathered as a whole, once.
    """

    _gathered_once: tuple[NDArray[Any], Array] | None = None

    def __init__(
        self,
        features: Any,
        targets: Array,
        order: Ranks,
        feature_norm: float,
        check: CheckBeside | None = None,
        *,
        cap: int | None = None,
    ) -> None:
        super().__init__()
        self._features, self._targets, self._order, self._norm = features, targets, order, feature_norm
        self._beside, self.cap = check, None if cap is None else (cap, None)
        self.rows_available = len(targets)

    def confirm(self) -> None:
        """Wait for the check of the rows."""
        if self._beside is not None:
            self._beside.wait()

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        for step in range(layout.rounds):
            first = step * layout.batch_size
            yield Batch(step, self._chunks(first, min(first + layout.batch_size, len(self._order))))

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        """Any portions of whole rows will do: the rows stay at hand."""
        deque(whole(portions), maxlen=0)

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        for step, portion in enumerate(whole(portions)):
            last = min(portion.last, len(self._order))
            yield Batch(step, self._chunks(min(portion.first, last), last))

    def _chunks(self, first: int, last: int) -> Iterator[Chunk]:
        width = max(1, self._features.shape[1])
        if not is_sparse(self._features):
            self.rows_read = (self.rows_read or 0) + last - first
            if len(self._order) * width * self._features.dtype.itemsize <= SMALL_BYTES:
                gathered, targets = self._whole()
                yield gathered[first:last], targets[first:last]
                return
            picked = self._order.batch(first, last)
            shape, source = (last - first, width), Source(self._features, picked, self._norm)
            made = RowsOnDemand(partial(self._gathered, picked), shape, self._features.dtype, source)
            yield made, self._targets.take(picked)
            return
        stored = _STORED_BYTES * CsrRows.of(self._features).mean_width
        rows = max(1, _CHUNK_BYTES // (stored * CHUNK_ROWS)) * CHUNK_ROWS
        places = self._order.batch(first, last)
        for start in range(0, len(places), rows):
            picked = places[start : start + rows]
            self.rows_read = (self.rows_read or 0) + len(picked)
            yield unit_rows(self._features[picked], self._norm), self._targets[picked]

    def _whole(self) -> tuple[NDArray[Any], Array]:
        if self._gathered_once is None:
            places = self._order.batch(0, len(self._order))
            self._gathered_once = self._gathered(places, 0, len(places)), self._targets.take(places)
        return self._gathered_once

    def _gathered(self, picked: NDArray[np.int64], first: int, last: int) -> NDArray[Any]:
        """Make some rows of a chunk, in one order of memory: norms are summed along it."""
        places = picked[first:last]
        if isinstance(self._features, np.ndarray) and self._features.flags.c_contiguous:
            rows = self._features.take(places, axis=0)  # twice as fast as an index, but copies any other layout whole
        else:
            rows = self._features[places]
        return np.asarray(unit_rows(np.ascontiguousarray(rows), self._norm, in_place=True))
