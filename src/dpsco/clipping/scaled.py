"""Rounds on rows whose columns are scaled one by one (``DiagonalMap``): a kernel scales sparse rows as it reads them.

Guarantee: the contract of oracles. Sums of sparse rows are exact on a grid per column, in any order, so bits depend
neither on threads nor on chunks; the rows of a round are one block, multiplied by the scales once and rounded to the
query's grid. The product is off by at most 2^-53 of the sum, B 2^-53 clip. Public numbers decide whether the kernel
serves a round; otherwise mapped rows, sparse ones in CSR, are served by the oracle of linear models.
Cost: that of rounds without a map, and one more number per stored value from the same cache line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.borrowed_zeros import borrow, give_back
from dpsco.clipping.compiled import CompiledOracle, finest_grid
from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.clipping.row_map import NORMS
from dpsco.query import CHUNK_ROWS, Array, Batch, Chunk, Query
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.on_demand import RowsOnDemand

__all__ = ["ScaledOracle", "can_scale", "scaled_chunks"]

_SCALES = 2.0**-60, 2.0**60
"""Scales for which no square of a mapped row leaves the range of float64."""
_SAFE = 1.0 + 2.0**-40
_SQUARES: dict[np.dtype[Any], tuple[float, float, float]] = {
    np.dtype(np.float32): (2.0**-70, 2.0**100, 2.0**-23),
    np.dtype(np.float64): (1e-250, 1e250, 2.0**-52),
}
"""Least and largest sums of squares that are far from the limits of a type, and twice its unit roundoff."""


def can_scale(inner: Any, row_map: DiagonalMap, query: Query) -> bool:
    """Whether the kernel can serve the sparse rows of a round. Public."""
    if not isinstance(inner, CompiledOracle) or inner.slope is not None or inner.intercept or inner.loss.outputs > 1:
        return False
    if query.rowwise or query.squares or query.grid == 0.0 or math.isinf(query.clip):
        return False
    (low, high), (least, most) = NORMS[np.dtype(np.float64)], _SCALES
    inside = bool(np.all((row_map.scales >= least) & (row_map.scales <= most)))
    constant = row_map.constant == 0.0 or least <= row_map.constant <= most
    fine = 2 * finest_grid(query) <= query.grid
    return low <= row_map.feature_norm <= high and inside and constant and fine


def scaled_chunks(row_map: DiagonalMap, batch: Batch, *, rowwise: bool) -> Iterator[Chunk]:
    """Yield the mapped rows of a batch: CSR for sparse rows, a few thousand at a time, and dense ones on demand."""
    for features, labels in batch.chunks:
        if not is_sparse(features):
            yield _on_demand(row_map, features, rowwise=rowwise), labels
            continue
        rows = CsrRows.of(features)
        for start in range(0, len(labels), CHUNK_ROWS):
            yield row_map.rows(rows[start : start + CHUNK_ROWS]), labels[start : start + CHUNK_ROWS]


def _on_demand(row_map: DiagonalMap, features: Any, *, rowwise: bool) -> RowsOnDemand:
    mapped = row_map.rows_one_by_one if rowwise else row_map.rows
    return RowsOnDemand(partial(_some, mapped, features), (features.shape[0], row_map.columns), np.float64)


def _some(mapped: Any, rows: Any, first: int, last: int) -> NDArray[Any]:
    return np.asarray(mapped(rows[first:last]))


@dataclass(frozen=True, kw_only=True)
class ScaledOracle(CompiledOracle):
    """``CompiledOracle`` of the mapped rows, given the rows as they are. Queries must satisfy ``can_scale``.

    One for a ``part`` of a round's sparse rows leaves the scales out: ``whole`` multiplies by them the exact sum of all
    parts, once, as if they had come together.
    """

    map: DiagonalMap
    part: bool = False

    def whole(self, query: Query, total: Array) -> Array:
        """Return the sum of a round, from that of its parts."""
        return total * _grids_and_factor(self.map, query)[1]

    def _rounded_to(self, query: Query) -> float:
        return 0.0 if self.part else query.grid

    def _given(self, features: Any) -> Any:
        return CsrRows.of(features) if is_sparse(features) else _on_demand(self.map, features, rowwise=False)

    def _plain_rows(self, features: Any, labels: NDArray[Any]) -> Iterator[Chunk]:
        return scaled_chunks(self.map, Batch(0, [(features, labels)]), rowwise=False)

    def _sparse(self, query: Query, dtype: np.dtype[Any], rows: CsrRows, exact: bool) -> Any:
        from dpsco.clipping.kernels.scaled_rows import STRIDE, scaled

        row_map, width = self.map, rows.shape[1]
        points = np.zeros((width + 1, STRIDE), dtype)
        for j, point in enumerate((query.points[0], query.points[-1])):
            points[: row_map.columns, j] = row_map.turned_back(point)
        points[: row_map.columns, 2] = row_map.scales  # exact: they have 24 digits
        points = points.ravel()
        start, factor = _grids_and_factor(row_map, query)
        square = factor[-1] ** 2 if row_map.constant > 0 else 0.0
        numbers = np.array([row_map.feature_norm, row_map.constant, square, *_SQUARES[dtype]])
        ask = self.ask(query, width, False)

        def run(arrays: Any, edges: Any, counter: Any, out: Array, tallies: Any) -> None:
            merged = borrow(width)
            scaled(ask, numbers, *arrays, points, merged, edges, counter, out[0], tallies)
            give_back(merged)

        return self._sparse_kernel(run, dtype, rows, start, None if self.part else factor)


def _grids_and_factor(row_map: DiagonalMap, query: Query) -> tuple[Array, Array]:
    """Return the initial values of sums, which have a grid per column, and what they are multiplied by."""
    from dpsco.clipping.kernels.sparse_rows import origin

    of = query.size, query.clip
    if of not in row_map.kept:  # rounds are alike, and this takes as long as some thousand rows
        factor = row_map.scales.copy()
        if row_map.constant > 0:
            factor[-1] *= row_map.constant
        grids = np.ldexp(1.0, np.frexp(_SAFE * query.size * query.clip / factor)[1] - 50)
        row_map.kept[of] = np.asarray(origin(grids)), factor
    return row_map.kept[of]
