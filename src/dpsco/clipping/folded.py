"""Rounds in the coordinates of a survey, without mapping the rows: b = P a is never made.

Scores are <a, P'u>, the clip is on a bound of ||P a|| (leading_directions.py), and the sum of each unit of rows is
multiplied by P once: P sum_i c_i a_i = sum_i c_i b_i. One compiled pass reads the rows where they are, in any order.

Guarantee: the contract of oracles. Each unit's sum is rounded to the grid after P, so sums of units are exact in any
order, and bits depend neither on threads nor on chunks. Which rounds are served like this is decided by public numbers:
the map, the clip, the points and the declared type of the rows.
Cost: one read of the rows, 5 multiply-adds per number, k more for rows whose first bound is above the clip (between
none and half of them in the tables tried), p^2 per unit of rows.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.compiled import CompiledOracle, piece_edges
from dpsco.clipping.kernel_inputs import flat, row_type
from dpsco.clipping.leading_directions import WIDEST, Leading, doubt, first_doubt, rounding, slack
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.clipping.row_map import NORMS, RowMap
from dpsco.clipping.survey import dense
from dpsco.errors import InvalidArgument
from dpsco.parallel import available_threads, for_each, team
from dpsco.query import Array, Batch, Clipped, Query, chunk_multiple, to_grid
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.on_demand import Source

__all__ = ["can_fold", "folded_sum", "is_foldable"]

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_ROUNDOFF = {_FLOAT32: 2.0**-24, _FLOAT64: 2.0**-53}
_MOST_DOUBT = 0.01
"""Share of the squared clip that the doubt of float32 products may take; beyond it, products are float64."""
_SCORE_ROUNDING = 40 * 2.0**-24
"""Error of a float32 score at most, per ||a|| ||x||: 16 lanes add up 512 products at a time (kernels/directions.py)."""
_MOST_INEXACT = 2.0**-5
"""What the errors of both scores may amount to, weighted; beyond it, products are float64. It is about utility."""
_MOST_ROUNDING = 2.0**-12
"""Share of the clip by which sums of a unit may be off: half of what the contract of oracles allows."""
_TILE_BYTES = 1 << 17
"""Rows of a tile may be anywhere: long tiles give those of the next one time to come."""
_COPIED_BYTES = 1 << 21
_TURNED_NUMBERS = 1 << 13
"""Numbers of the sums that one thread maps at a time."""
_ALONE_BYTES = 3 << 20
_LOADED: set[Any] = set()
_NO_PLACES = np.zeros(0, np.int64)
_FEATURE_NORM = 6
"""Place of the feature norm among the kernel's numbers."""


def can_fold(inner: Any, row_map: RowMap, query: Query) -> bool:
    """Whether a round can be served without mapping its rows. Public."""
    if not isinstance(inner, CompiledOracle) or inner.slope is not None or inner.intercept or inner.loss.outputs > 1:
        return False
    return not query.rowwise and query.squares == 0 and is_foldable(row_map)


def is_foldable(row_map: RowMap) -> bool:
    """Whether a map has the norm, the width and the condition for which sums of rows are proven."""
    low, high = NORMS[_FLOAT64]
    narrow = row_map.columns <= WIDEST or isinstance(row_map, LowRankMap)
    if not narrow or not low <= row_map.feature_norm <= high:
        return False
    leading, p = row_map.leading, row_map.columns
    if leading is None or not leading.usable:
        return False
    factors = row_map.directions.shape[1] if isinstance(row_map, LowRankMap) else p
    return rounding(leading, chunk_multiple(max(1, p - (row_map.constant > 0))), factors) <= _MOST_ROUNDING


def folded_sum(inner: CompiledOracle, row_map: RowMap, query: Query, batch: Batch) -> Clipped:
    """Return the clipped sum of the mapped rows of ``batch``."""
    leading, answer = row_map.leading, Clipped(np.zeros(row_map.columns), 0)
    if leading is None:
        raise InvalidArgument("The map of the rows is not finite: nothing bounds the norm of a mapped row.")
    threads = inner.threads or (1 if 8 * query.size * answer.total.size < _ALONE_BYTES else available_threads())
    prepared: dict[Any, _Round] = {}
    with team(threads) as share:
        for features, labels in batch.chunks:
            rows: Any = CsrRows.of(features) if is_sparse(features) else features
            given = _FLOAT64 if isinstance(rows, CsrRows) else np.dtype(rows.dtype)
            if given not in prepared:
                prepared[given] = _Round(inner, row_map, leading, query, given)
            job = _Pieces(prepared[given], rows, labels, threads)
            share(job, partial(job.add_to, answer, query.grid))
            answer.rows += len(labels)
    return answer


class _Inputs(NamedTuple):
    """Rows as the kernel reads them."""

    rows: NDArray[Any]
    places: NDArray[np.int64]
    feature_norm: float


class _Round:
    """The numbers of one query for rows of one type."""

    def __init__(
        self, inner: CompiledOracle, row_map: RowMap, leading: Leading, query: Query, given: np.dtype[Any]
    ) -> None:
        self.map, p = row_map, row_map.columns
        self.width = p - (row_map.constant > 0)
        points = [row_map.turned_back(point) for point in (query.points[0], query.points[-1])]
        dtype = row_type(given, Query(0, tuple(points), (1.0,), query.clip, query.size))
        low, high = NORMS[_FLOAT32]
        square = 1.0 + row_map.constant**2
        bound = math.isfinite(query.clip)
        few = leading.gains, leading.rest
        last_bound = few if leading.everything is None else (leading.everything[1], 0.0)
        doubtful = doubt(leading, _ROUNDOFF[_FLOAT32], *last_bound) * square > _MOST_DOUBT * query.clip**2
        far = sum(abs(w) * float(np.linalg.norm(x)) for w, x in zip(query.weights, points, strict=False))
        inexact = _SCORE_ROUNDING * math.sqrt(square) * far > _MOST_INEXACT
        if doubtful or inexact or not low <= row_map.feature_norm <= high:
            dtype = _FLOAT64
        self.dtype, self.unit = dtype, chunk_multiple(self.width)
        none = np.zeros((p, 0)), np.zeros(0)
        vector, gain = leading.first if bound else (np.zeros(p), 0.0)
        self._first = self._vectors([*points, vector])
        self._few = self._columns(*((leading.directions, leading.gains) if bound else none))
        self._all = self._columns(*(leading.everything if bound and leading.everything is not None else none))
        last = [row_map.constant * vector[-1] if row_map.constant > 0 else 0.0 for vector in (*points, vector)]
        u = _ROUNDOFF[dtype]
        doubts = [first_doubt(leading, u), doubt(leading, u, *few), doubt(leading, u, *last_bound)]
        doubts = doubts if bound else [0.0, 0.0, 0.0]
        largest, rest = (leading.norm, leading.rest) if bound else (1.0, 1.0)
        self._numbers = [*last, largest**2, gain**2, doubts[0], 1.0, row_map.constant**2, rest**2, *doubts[1:]]
        self._ask = inner.ask(query, self.width, dtype == _FLOAT32)
        if dtype not in _LOADED:
            inner.load(partial(self.run, _Inputs(np.zeros(0, dtype), _NO_PLACES, 1.0), np.zeros(0), *_nothing(p)))
            _LOADED.add(dtype)

    def _vectors(self, vectors: list[Array]) -> NDArray[Any]:
        """Return the entries that meet features, each vector filled up so that it can be read 64 bytes at a time."""
        lanes = 64 // self.dtype.itemsize
        filled = np.zeros((len(vectors), -(-self.width // lanes) * lanes), self.dtype)
        filled[:, : self.width] = [vector[: self.width] for vector in vectors]
        return filled.reshape(-1)

    def _columns(self, directions: Array, gains: Array) -> tuple[NDArray[Any], ...]:
        """Return columns in blocks of whole vectors, the constant times their last entries, gains and mask."""
        (p, k), lanes, constant = directions.shape, 64 // self.dtype.itemsize, self.map.constant
        size = -(-k // lanes) * lanes
        columns = np.zeros((p, size))
        columns[:, :k] = directions
        blocks = columns[: self.width].reshape(self.width, size // lanes, lanes).transpose(1, 0, 2)
        own, mask = np.zeros(size, self.dtype), np.zeros(size, self.dtype)
        enlarged = (gains * (1 + slack(_ROUNDOFF[self.dtype]))).astype(self.dtype)
        own[:k], mask[:k] = np.nextafter(enlarged, self.dtype.type(np.inf)), 1.0
        last = (constant * columns[-1] if constant > 0 else np.zeros(size)).astype(self.dtype)
        return np.ascontiguousarray(blocks, self.dtype).reshape(-1), last, own, mask

    def run(self, given: _Inputs, labels: Array, edges: Any, counter: Any, out: Array, tallies: Any) -> None:
        """Process pieces until none is left."""
        from dpsco.clipping.kernels.dense_rows import tile_rows
        from dpsco.clipping.kernels.mapped_rows import mapped

        numbers = np.array(self._numbers)
        numbers[_FEATURE_NORM] = given.feature_norm
        arrays = (self._ask, given.rows, self.width, given.places, labels, self._first, numbers, *self._few, *self._all)
        step = tile_rows(self.width, self.dtype.itemsize, _TILE_BYTES)
        mapped(*arrays, edges, counter, self.unit, step, out, tallies)

    def inputs(self, rows: Any) -> _Inputs | None:
        """Return the rows without a copy, or None if that is not possible."""
        array, places, norm = self._source(rows) or (rows, _NO_PLACES, self.map.feature_norm)
        return _Inputs(flat(array, self.dtype), places, norm) if self._fits(array) else None

    def copied(self, rows: Any, first: int, last: int) -> _Inputs:
        """Return some of the rows with a copy."""
        source = self._source(rows)
        if source is None:
            return _Inputs(flat(dense(rows[first:last]), self.dtype), _NO_PLACES, self.map.feature_norm)
        own = source.array[source.places[first:last]]
        return _Inputs(flat(dense(own), self.dtype), _NO_PLACES, source.feature_norm)

    def _source(self, rows: Any) -> Source | None:
        """Return where the rows come from, if the kernel is to divide them by their norms: public numbers decide."""
        source, (low, high) = getattr(rows, "source", None), NORMS[self.dtype]
        known = isinstance(source, Source) and self.map.feature_norm == 1.0 and low <= source.feature_norm <= high
        return source if known else None

    def _fits(self, rows: Any) -> bool:
        return isinstance(rows, np.ndarray) and rows.dtype == self.dtype and rows.flags.c_contiguous


class _Pieces:
    """Rows of a chunk, cut into pieces of whole units for threads."""

    def __init__(self, asked: _Round, rows: Any, labels: NDArray[Any], threads: int) -> None:
        self._round, self._rows = asked, rows
        self._labels = flat(labels, _FLOAT64)
        self._given = asked.inputs(rows)
        unit, count = asked.unit, len(labels)
        bytes_of_unit = unit * asked.width * asked.dtype.itemsize
        most = unit * (4 if self._given is not None else max(1, _COPIED_BYTES // bytes_of_unit))
        self._edges = piece_edges(count, count, unit, most, threads)
        self._counter, self._next = np.zeros(1, np.int64), itertools.count()
        self._sums = np.zeros((-(-count // unit), asked.width + 1))
        self._tallies = np.zeros((threads, 8), np.int64)

    def __call__(self, thread: int) -> None:
        asked, edges, tallies = self._round, self._edges, self._tallies[thread]
        if self._given is not None:
            asked.run(self._given, self._labels, edges, self._counter, self._sums, tallies)
            return
        while (i := next(self._next)) < len(edges) - 1:
            start, stop = int(edges[i]), int(edges[i + 1])
            given, own = asked.copied(self._rows, start, stop), self._sums[start // asked.unit :]
            one = np.array([0, stop - start]), np.zeros(1, np.int64)
            asked.run(given, self._labels[start:stop], *one, own, tallies)

    def add_to(self, answer: Clipped, grid: float) -> None:
        """Add the sums of units in order, mapped and rounded to the grid one by one."""
        row_map = self._round.map
        sums = self._sums if row_map.constant > 0 else self._sums[:, :-1]
        if row_map.constant > 0:
            sums[:, -1] *= row_map.constant
        mapped = np.empty_like(sums)

        def turn(units: range) -> None:
            for unit in units:
                mapped[unit] = to_grid(row_map.turned(sums[unit]), grid)

        edges = range(0, len(sums), max(1, _TURNED_NUMBERS // sums.shape[1]))
        for_each(turn, (range(first, min(first + edges.step, len(sums))) for first in edges))
        for total in mapped:
            answer.total += total
        self._sums.fill(0.0)  # the sums are sensitive
        clipped, zeroed, *_ = self._tallies.sum(axis=0).tolist()
        answer.clipped_rows += clipped
        answer.zeroed_rows += zeroed


def _nothing(size: int) -> tuple[Any, ...]:
    return np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((1, size + 1)), np.zeros(8, np.int64)
