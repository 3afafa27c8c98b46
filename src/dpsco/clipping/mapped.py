"""The oracle of rounds behind a survey: rows in the coordinates of the survey's map, in one of four ways.

    folded          compiled, one score per row: rows are read where they are (clipping/folded.py)
    scaled          a diagonal map: sparse rows stay sparse, compiled ones where they are (clipping/scaled.py)
    mapped          everything else: b = P a is made unit by unit, and any oracle of linear models serves the rows b
    one by one      add-remove: b is made number by number, so that no row's place matters

Guarantee: public numbers decide which way a round takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.clipping.folded import can_fold, folded_sum, is_foldable
from dpsco.clipping.oracle import Oracle
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.scaled import ScaledOracle, can_scale, scaled_chunks
from dpsco.parallel import one_blas_thread
from dpsco.query import CHUNK_ROWS, Batch, Chunk, Clipped, Query
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.on_demand import RowsOnDemand

__all__ = ["MappedOracle"]


@dataclass(frozen=True)
class MappedOracle:
    """An oracle of linear models without intercept, on mapped rows."""

    inner: Oracle
    map: RowMap

    def __post_init__(self) -> None:
        if isinstance(self.inner, CompiledOracle):
            with one_blas_thread():
                is_foldable(self.map)  # the map keeps its directions, and takes them along to other processes

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of the mapped rows of ``batch``."""
        if isinstance(self.map, DiagonalMap):  # it needs no matrix product, and to limit BLAS takes as long as a round
            return self._scaled(self.map, query, batch)
        with one_blas_thread():
            if isinstance(self.inner, CompiledOracle) and can_fold(self.inner, self.map, query):
                return folded_sum(self.inner, self.map, query, batch)
            return self.inner.answer(query, Batch(batch.step, self._mapped(batch, rowwise=query.rowwise)))

    def of_a_part(self, query: Query) -> ScaledOracle | None:
        """Return what sums a part of a round's sparse rows; None if ``answer`` does."""
        if not isinstance(self.map, DiagonalMap) or not isinstance(self.inner, CompiledOracle):
            return None
        if query.size < CHUNK_ROWS or not can_scale(self.inner, self.map, query):
            return None
        return ScaledOracle(self.inner.loss, threads=self.inner.threads, map=self.map, part=True)

    def _scaled(self, row_map: DiagonalMap, query: Query, batch: Batch) -> Clipped:
        if isinstance(self.inner, CompiledOracle) and can_scale(self.inner, row_map, query):
            return ScaledOracle(self.inner.loss, threads=self.inner.threads, map=row_map).answer(query, batch)
        return self.inner.answer(query, Batch(batch.step, scaled_chunks(row_map, batch, rowwise=query.rowwise)))

    def _mapped(self, batch: Batch, *, rowwise: bool) -> Iterator[Chunk]:
        for features, labels in batch.chunks:
            rows: Any = CsrRows.of(features) if is_sparse(features) else features
            given = np.dtype(np.float64) if isinstance(rows, CsrRows) else features.dtype  # CSR rows become float64
            shape, dtype = (len(labels), self.map.columns), np.float64 if rowwise else self.map.dtype(given)
            mapped = self.map.rows_one_by_one if rowwise else self.map.rows
            yield RowsOnDemand(partial(_some, mapped, rows), shape, dtype), labels


def _some(mapped: Callable[[Any], NDArray[Any]], rows: Any, first: int, last: int) -> NDArray[Any]:
    return mapped(rows[first:last])
