"""Linear models at memory speed: compiled kernels over dense or sparse rows, in threads.

Guarantee: the contract of oracles, and the answers of ``LinearOracle`` to within 1e-12 for float64 rows and 1e-5 for
float32 rows, whose scores and sums are float32 (kernels/dense_rows.py counts the error), unless long rows cancel in a
score: it then has the absolute error of a sum of numbers of their size, in both oracles. Bits do not depend on the
number of threads or on the chunks of a batch: with a grid, sums are exact in any order; without one, each unit of rows
has its own sum, and these are added in order.
Cost: rows are read once. Compiling takes some seconds on the first use on a machine; after that, loading takes half a
second per process.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.borrowed_zeros import borrow, give_back
from dpsco.clipping.kernel_inputs import aligned_zeros, ask_of, flat, row_type
from dpsco.clipping.linear import LinearOracle, try_slope
from dpsco.clipping.softmax import SoftmaxOracle
from dpsco.lazy import cached_property
from dpsco.parallel import available_threads, team
from dpsco.problem.losses import Loss, Softmax
from dpsco.query import CHUNK_ROWS, Array, Batch, Chunk, Clipped, Query, chunk_multiple, to_grid
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["CompiledOracle", "finest_grid", "piece_edges"]

_PIECE_BYTES = 8 << 20
_GRAIN_BYTES = 1 << 18
_ALONE_BYTES = 3 << 20
"""Smaller rounds end before a second thread wakes up."""
_COPIED_BYTES = 1 << 21
_PIECE_VALUES = 1 << 20
_USES = 4
_PATIENCE = 1.0
_FLOAT64 = np.dtype(np.float64)
_INDICES = (np.dtype(np.int32), np.dtype(np.int64))

_LOADED: set[Any] = set()


class _Sums:
    """The sums of all threads. Sums on the grid are exact in any order, so each thread needs only one."""

    def __init__(self, size: int, threads: int, *, exact: bool, kernel: _Kernel) -> None:
        self.size, self.exact, self._origin, self._scale = size, exact, kernel.origin, kernel.scale
        self._moved = not isinstance(self._origin, float) or self._origin != 0.0
        self.tallies = np.zeros((threads, 8), np.int64)
        """Rows clipped and rows zeroed; each thread has its own cache line."""
        self._own: list[Array | None] = [None] * threads

    def of(self, thread: int) -> Array:
        """Return the sum of ``thread``, of shape (1, size)."""
        own = self._own[thread]
        if own is None:
            own = self._own[thread] = borrow(self.size).reshape(1, -1)
            if self._moved:
                own[:] = self._origin
        return own

    def add_to(self, answer: Clipped, grid: float) -> None:
        """Add the threads' sums, which may be on a finer grid, rounded to the grid."""
        owns = [own for own in self._own if own is not None]
        for own in owns if self._moved else ():
            own -= self._origin
        for own in owns[1:]:
            owns[0] += own
        for own in owns[:1]:
            total = own[0] if self._scale is None else own[0] * self._scale
            # Without an origin and a scale, the kernel adds multiples of the grid.
            answer.total += to_grid(total, grid) if self._moved or self._scale is not None else total
        for own in owns:
            give_back(own.reshape(-1))
        for clipped, zeroed, *_ in self.tallies.tolist():
            answer.clipped_rows += clipped
            answer.zeroed_rows += zeroed


class _Kernel(NamedTuple):
    """A kernel prepared for one query and one kind of rows."""

    ready: Callable[[Any, NDArray[Any]], tuple[Any, ...] | None]
    """Rows and labels as the kernel's arrays, or None if that needs a copy."""
    copied: Callable[[Any, NDArray[Any]], tuple[Any, ...]]
    """The same, with a copy if needed."""
    run: Callable[..., None]
    """``run(arrays, edges, counter, out, tallies)`` processes pieces until none is left."""
    unit: int
    grain: int
    most: int
    """Rows of the shortest and of the longest piece."""
    most_copied: int
    origin: float | Array = 0.0
    """Initial value of sums."""
    scale: Array | None = None
    """What the sum of a round is multiplied by; None: by nothing."""


@dataclass(frozen=True)
class CompiledOracle:
    """``LinearOracle`` with compiled kernels.

    Parameters
    ----------
    loss : Loss
    intercept : bool
        As in ``Problem``.
    slope : callable, optional
        ``slope(score, label)`` replaces the derivative of the loss, as in ``LinearOracle``. numba must be able to
        compile it; the compiled code is not cached on disk. Compiled functions that it calls, by their names, are
        compiled again: in all of them an index beyond an array makes a zero row.
    threads : int, optional
        All available processors by default.
    """

    loss: Loss
    intercept: bool = False
    slope: Callable[[float, float], float] | None = None
    threads: int | None = None

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        if query.rowwise:  # one row per block: in the plain path a row's bits depend on that row only
            return self._plain.answer(query, batch)
        if self.loss.outputs > 1:
            if isinstance(self.loss, Softmax):
                return SoftmaxOracle(self.loss, self.intercept, self.threads).answer(query, batch)
            return self._plain.answer(query, batch)
        if self.slope is not None:
            try_slope(self.slope)
        size = query.points[0].size
        threads = self.threads or (1 if 8 * query.size * size < _ALONE_BYTES else available_threads())
        exact, answer = query.grid > 0.0, Clipped(np.zeros(size), 0)
        prepared: dict[Any, tuple[_Kernel, _Sums]] = {}
        with team(threads) as share:
            for features, labels in batch.chunks:
                rows: Any = self._given(features)
                if isinstance(rows, CsrRows) and not _one_block(query, answer.rows + len(labels)):
                    answer.add(self._plain.answer(query, Batch(batch.step, self._plain_rows(features, labels))))
                    continue
                kind = type(rows), rows.dtype
                if kind not in prepared:
                    kernel = self._prepare(query, rows, exact)
                    prepared[kind] = kernel, _Sums(size, threads, exact=exact, kernel=kernel)
                kernel, sums = prepared[kind]
                for start, stop in _spans(len(labels), kernel, threads, exact):
                    left = max(stop - start, query.size - answer.rows)
                    whole = stop - start == len(labels)
                    part = rows if whole else rows[start:stop]
                    job = _Pieces(kernel, part, labels[start:stop], sums, left, threads)
                    share(job, functools.partial(job.add_to, answer))
                    answer.rows += stop - start
        for _, sums in prepared.values():
            sums.add_to(answer, self._rounded_to(query))
        return answer

    def _rounded_to(self, query: Query) -> float:
        """Return the grid of the answer."""
        return query.grid

    def _given(self, features: Any) -> Any:
        """Return the rows of a chunk as kernels take them."""
        return CsrRows.of(features) if is_sparse(features) else features

    @property
    def _plain(self) -> LinearOracle:
        return LinearOracle(self.loss, self.intercept, self.slope)

    def _plain_rows(self, features: Any, labels: NDArray[Any]) -> Iterable[Chunk]:
        """Return the rows of a chunk as the plain oracle takes them."""
        return [(features, labels)]

    def _prepare(self, query: Query, rows: Any, exact: bool) -> _Kernel:
        dtype = row_type(rows.dtype, query)
        kernel = (self._sparse if isinstance(rows, CsrRows) else self._dense)(query, dtype, rows, exact)
        key = type(self), self.slope, type(rows), dtype
        if key not in _LOADED:
            nothing = kernel.copied(rows[:0], np.empty(0)), np.zeros(1, np.int64), np.zeros(1, np.int64)
            self.load(functools.partial(kernel.run, *nothing, np.zeros((1, 1)), np.zeros(8, np.int64)))
            _LOADED.add(key)
        return kernel

    def _dense(self, query: Query, dtype: np.dtype[Any], rows: NDArray[Any], exact: bool) -> _Kernel:
        width, kernel, shape = rows.shape[1], self._kernel("dense"), _shape(rows.shape[1], self.intercept, dtype, exact)
        size, points = query.points[0].size, aligned_zeros(2 * shape.padded, dtype)
        points[:size], points[shape.padded : shape.padded + size] = query.points[0], query.points[-1]
        ask, fixed = self.ask(query, width, dtype.itemsize == 4), (shape.unit, shape.block, shape.tile)

        def ready(rows: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, ...] | None:
            same = isinstance(rows, np.ndarray) and rows.dtype == dtype and rows.flags.c_contiguous
            return copied(rows, labels) if same and _is_flat(labels) else None

        def copied(rows: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, ...]:
            return flat(rows, dtype), flat(labels, _FLOAT64)

        def run(arrays: Any, edges: Any, counter: Any, out: Array, tallies: Any) -> None:
            kernel(ask, arrays[0], width, arrays[1], points, edges, counter, *fixed, out, tallies)

        return _Kernel(ready, copied, run, shape.unit, *shape.pieces)

    def _sparse(self, query: Query, dtype: np.dtype[Any], rows: CsrRows, exact: bool) -> _Kernel:
        width, kernel = rows.shape[1], self._kernel("sparse")
        from dpsco.clipping.kernels.sparse_rows import origin

        grid = finest_grid(query)
        ask = self.ask(replace(query, grid=grid), width, False)
        points = np.zeros((width + 1, 2), dtype)
        for j, point in enumerate((query.points[0], query.points[-1])):
            points[: point.size, j] = point
        points = points.ravel()

        def run(arrays: Any, edges: Any, counter: Any, out: Array, tallies: Any) -> None:
            merged = borrow(width)
            kernel(ask, *arrays, points, merged, edges, counter, CHUNK_ROWS, out, tallies)
            give_back(merged)

        return self._sparse_kernel(run, dtype, rows, origin(grid) if exact else 0.0, None)

    def _sparse_kernel(
        self, run: Callable[..., None], dtype: np.dtype[Any], rows: CsrRows, origin: float | Array, scale: Array | None
    ) -> _Kernel:
        """Return a kernel of sparse rows; ``origin`` is 0 without a grid."""

        def ready(rows: CsrRows, labels: NDArray[Any]) -> tuple[Any, ...] | None:
            same = rows.data.dtype == dtype and rows.indices.dtype == rows.indptr.dtype
            return copied(rows, labels) if same and rows.indices.dtype in _INDICES and _is_flat(labels) else None

        def copied(rows: CsrRows, labels: NDArray[Any]) -> tuple[Any, ...]:
            return *(flat(part, part.dtype) for part in _standard(rows, dtype)), flat(labels, _FLOAT64)

        if not np.any(origin):
            return _Kernel(ready, copied, run, CHUNK_ROWS, CHUNK_ROWS, CHUNK_ROWS, CHUNK_ROWS)
        # Each piece loads points and sums into the cache again, so it should use them several times.
        grain = min(CHUNK_ROWS, max(256, _USES * rows.shape[1] // rows.mean_width))
        longest = max(4 * grain, _PIECE_VALUES // rows.mean_width)
        return _Kernel(ready, copied, run, CHUNK_ROWS, grain, longest, longest, origin, scale)

    def ask(self, query: Query, width: int, single: bool) -> Array:
        """Return the query as kernels take it."""
        return ask_of(query, width, single, **self._facts)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """What all queries have in common."""
        from dpsco.clipping.kernels.slopes import CUSTOM, KINDS

        kind = CUSTOM if self.slope is not None else KINDS[self.loss.kind]
        parameter = getattr(self.loss, "label_bound", getattr(self.loss, "width", 0.0))
        shares = () if self.slope is not None else tuple(getattr(self.loss, "weights", ()))
        return {"kind": kind, "parameter": parameter, "intercept": self.intercept, "shares": shares}

    def load(self, call: Callable[[], None]) -> None:
        """Load or compile a kernel by a call without rows, once per process; log a message if it takes long."""
        message = "dpsco: compiling kernels for this machine; later processes load them from the cache."
        timer = threading.Timer(_PATIENCE, logging.getLogger("dpsco").warning, (message,))
        timer.daemon = True
        timer.start()
        call()
        timer.cancel()

    def _kernel(self, name: str) -> Any:
        return _kernels()(self.slope)[name]


@functools.cache
def _kernels() -> Callable[[Any], dict[str, Any]]:
    """Import numba once, with the first kernel; an import statement in every round takes as long as a short vector."""
    from dpsco.clipping.kernels.custom import kernels

    return kernels


class _Shape(NamedTuple):
    """Public sizes of a kernel of dense rows."""

    padded: int
    """Length of a point, filled up to whole vectors."""
    unit: int
    block: int
    tile: int
    pieces: tuple[int, int, int]
    """Rows of the shortest and of the longest piece, and of the longest that is copied."""


@functools.lru_cache(maxsize=64)
def _shape(width: int, intercept: bool, dtype: np.dtype[Any], exact: bool) -> _Shape:
    """Return the sizes for rows of ``width`` numbers. Rounds are alike, so results are cached."""
    from dpsco.clipping.kernels.dense_rows import block_rows, padded, tile_of_kernel

    unit, block, size = chunk_multiple(width), block_rows(dtype.itemsize), width * dtype.itemsize
    grain = block if exact else unit
    pieces = (max(1, limit // (size * grain)) * grain for limit in (_GRAIN_BYTES, _PIECE_BYTES, _COPIED_BYTES))
    least, most, most_copied = pieces
    length, tile = padded(width + intercept, dtype.itemsize), tile_of_kernel(width, dtype.itemsize)
    return _Shape(length, unit, block, tile, (least, most, most_copied))


class _Pieces:
    """Rows of a chunk, cut into pieces for threads; pieces become shorter towards the end of the round."""

    def __init__(self, kernel: _Kernel, rows: Any, labels: NDArray[Any], sums: _Sums, left: int, threads: int) -> None:
        self._kernel, self._rows, self._labels, self._sums = kernel, rows, labels, sums
        self._arrays = kernel.ready(rows, labels)
        most = kernel.most if self._arrays is not None else kernel.most_copied
        self._edges = piece_edges(len(labels), left, kernel.grain, most, threads)
        self._counter, self._next = np.zeros(1, np.int64), itertools.count()
        self._apart = None if sums.exact else np.zeros((-(-len(labels) // kernel.unit), sums.size))

    def __call__(self, thread: int) -> None:
        kernel, edges, tallies = self._kernel, self._edges, self._sums.tallies[thread]
        out = self._sums.of(thread) if self._apart is None else self._apart
        if self._arrays is not None:
            kernel.run(self._arrays, edges, self._counter, out, tallies)
            return
        while (i := next(self._next)) < len(edges) - 1:
            start, stop = int(edges[i]), int(edges[i + 1])
            arrays = kernel.copied(self._rows[start:stop], self._labels[start:stop])
            own = out if self._apart is None else out[start // kernel.unit :]
            kernel.run(arrays, np.array([0, stop - start]), np.zeros(1, np.int64), own, tallies)

    def add_to(self, answer: Clipped) -> None:
        """Add the sums of units in order, if there is no grid."""
        for total in () if self._apart is None else self._apart:
            answer.total += total


def finest_grid(query: Query) -> float:
    """Return the grid for sums of sparse rows of a round: the finest on which they are exact in any order."""
    from dpsco.clipping.kernels.sparse_rows import finest

    if query.grid == 0.0 or math.isinf(query.clip):
        return query.grid
    return finest(query.size, query.clip)


def _one_block(query: Query, rows: int) -> bool:
    """Whether sparse rows, ``rows`` of them so far, can be summed as one block."""
    # The work on few rows is not public, and sums of more than 2^50 steps of the grid are not exact.
    return query.size >= CHUNK_ROWS and (query.grid == 0.0 or (rows <= query.size and finest_grid(query) <= query.grid))


def _spans(rows: int, kernel: _Kernel, threads: int, exact: bool) -> Iterator[tuple[int, int]]:
    """Yield a whole chunk, or without a grid a few units per thread, to limit the memory for their sums."""
    size = rows if exact else 2 * threads * kernel.unit
    for start in range(0, rows, max(1, size)):
        yield start, min(start + size, rows)


@functools.lru_cache(maxsize=64)
def piece_edges(rows: int, left: int, grain: int, most: int, threads: int) -> NDArray[np.int64]:
    """Cut ``rows`` rows into pieces, each a share of the ``left`` rows of the round, so that threads end together.

    Results are cached, because rounds are alike; kernels only read them.
    """
    edges = [0]
    while (at := edges[-1]) < rows:
        size = min(most, max(grain, (left - at) // (2 * threads * grain) * grain))
        edges.append(min(at + size, rows))
    return np.array(edges)


def _is_flat(array: NDArray[Any]) -> bool:
    return array.dtype == _FLOAT64 and array.flags.c_contiguous


def _standard(features: CsrRows, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return values, indices and row ends in types of the kernel, without a copy if possible."""
    if features.data.dtype != dtype:
        start = features.indptr[0]
        span = slice(start, features.indptr[-1])
        features = CsrRows(
            features.data[span].astype(dtype), features.indices[span], features.indptr - start, features.shape[1]
        )
    wide = np.int32 if features.indices.dtype == features.indptr.dtype == np.int32 else np.int64
    return features.data, features.indices.astype(wide, copy=False), features.indptr.astype(wide, copy=False)
