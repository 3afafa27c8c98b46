"""Linear models at the speed of memory: compiled kernels over dense or sparse rows, in threads.

The same contract and the same answers as ``LinearOracle``: within 1e-12 of it for float64 rows, 1e-5 for float32 rows,
whose scores and sums are float32 (oracles/kernels/dense.py counts the error). Bits do not depend on the number of
threads or on how a batch is cut into chunks: a task is a whole number of units of rows, each summed by itself and
added in order.
Cost: the rows are read once; compiling takes some seconds on the first use on a machine, loading the compiled code
half a second in each process after that.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.oracles.csr import CsrRows, is_sparse
from dpsco.oracles.glm import LinearOracle
from dpsco.oracles.parallel import available_threads, in_order
from dpsco.oracles.softmax import SoftmaxOracle
from dpsco.problem.losses import Loss
from dpsco.values import CHUNK_ROWS, Array, Batch, Clipped, Query, chunk_multiple

__all__ = ["FusedOracle", "ask_of", "flat", "row_type"]

_TASK_BYTES = 8 << 20
_PATIENCE = 1.0
_FLOAT32_RANGE = 2.0**60

_LOADED: set[Any] = set()
_MEMORY = threading.local()


class _Part(NamedTuple):
    """What a task found."""

    totals: Array
    """Sums to add in order, one a row; none if they are in the thread's own."""
    rows: int
    clipped: int
    zeroed: int


Task = Callable[[], _Part]


class _Sums:
    """Where tasks add up: sums on the grid are exact in any order, so a thread keeps one; others stay apart."""

    def __init__(self, size: int, *, exact: bool) -> None:
        self._size, self._exact, self._local = size, exact, threading.local()
        self.by_thread: list[Array] = []

    def of(self, units: int) -> Array:
        if not self._exact:
            return np.zeros((units, self._size))
        if not hasattr(self._local, "total"):
            self._local.total = np.zeros((1, self._size))
            self.by_thread.append(self._local.total)
        total: Array = self._local.total
        return total

    def own(self, sums: Array) -> Array:
        """What the task has to hand on."""
        return sums[:0] if self._exact else sums


@dataclass(frozen=True)
class FusedOracle:
    """``LinearOracle``, compiled. ``slope(score, label)`` may be any function that numba compiles; it is not cached."""

    loss: Loss
    intercept: bool = False
    slope: Callable[[float, float], float] | None = None
    threads: int | None = None

    def answer(self, query: Query, batch: Batch) -> Clipped:
        if query.rowwise:  # one row a block: the plain path does it, and a row's bits there depend on it alone
            return LinearOracle(self.loss, self.intercept, self.slope).answer(query, batch)
        if self.loss.outputs > 1:
            return SoftmaxOracle(self.loss, self.intercept, self.threads).answer(query, batch)
        size = query.points[0].size
        sums, answer = _Sums(size, exact=query.grid > 0.0), Clipped(np.zeros(size), 0)
        threads = self.threads or available_threads()
        for part in in_order(self._tasks(query, batch, sums, threads), threads):
            for total in part.totals:
                answer.total += total
            answer.rows += part.rows
            answer.clipped_rows += part.clipped
            answer.zeroed_rows += part.zeroed
        for total in sums.by_thread:
            answer.total += total[0]
        return answer

    def _tasks(self, query: Query, batch: Batch, sums: _Sums, threads: int) -> Iterator[Task]:
        prepared: dict[Any, Callable[..., Task]] = {}
        plain = LinearOracle(self.loss, self.intercept, self.slope)
        for features, labels in batch.chunks:
            rows: Any = CsrRows.of(features) if is_sparse(features) else features
            if isinstance(rows, CsrRows) and query.size < CHUNK_ROWS:  # how much there is to do is not public: see B
                yield functools.partial(_plain, plain, query, Batch(batch.step, [(features, labels)]))
                continue
            kind = type(rows), rows.dtype
            if kind not in prepared:
                dtype = row_type(rows.dtype, query)
                make = self._sparse if isinstance(rows, CsrRows) else self._dense
                prepared[kind] = make(query, dtype, rows.shape[1], sums)
                self._load(prepared[kind](rows[:0], labels[:0]), (type(rows), dtype))
            unit = CHUNK_ROWS if isinstance(rows, CsrRows) else chunk_multiple(rows.shape[1])
            size = unit if isinstance(rows, CsrRows) else _task_rows(rows.shape[1], rows.dtype.itemsize)
            size = min(size, -(-len(labels) // (2 * threads * unit)) * unit)  # small batches: work for every thread
            for start in range(0, len(labels), max(1, size)):
                yield prepared[kind](rows[start : start + size], labels[start : start + size])

    def _dense(self, query: Query, dtype: np.dtype[Any], width: int, sums: _Sums) -> Callable[..., Task]:
        from dpsco.oracles.kernels import dense as kernels

        single = dtype.itemsize == 4
        ask, size = self._ask(query, width, single), kernels.padded(width + self.intercept, dtype.itemsize)
        points = np.zeros((2, size), dtype)
        for j, point in enumerate((query.points[0], query.points[-1])):
            points[j, : point.size] = point
        unit, block = chunk_multiple(width), kernels.block_rows(dtype.itemsize)
        step, kernel = kernels.tile_rows(width, dtype.itemsize), self._kernel("dense")

        def run(features: NDArray[Any], labels: NDArray[Any]) -> _Part:
            rows, y = flat(features, dtype), flat(labels, np.dtype(np.float64))
            out = sums.of(-(-len(y) // unit))
            tallies = kernel(ask, rows, width, y, points.ravel(), unit, block, step, out)
            return _Part(sums.own(out), len(y), *tallies)

        return lambda features, labels: functools.partial(run, features, labels)

    def _sparse(self, query: Query, dtype: np.dtype[Any], width: int, sums: _Sums) -> Callable[..., Task]:
        from dpsco.oracles.kernels.sparse import SPARSE_BLOCK

        ask, kernel = self._ask(query, width, False), self._kernel("sparse")
        points = np.zeros((width + 1, 2), dtype)
        for j, point in enumerate((query.points[0], query.points[-1])):
            points[: point.size, j] = point

        def run(features: CsrRows, labels: NDArray[Any]) -> _Part:
            y, parts = (
                flat(labels, np.dtype(np.float64)),
                (flat(part, part.dtype) for part in _standard(features, dtype)),
            )
            out = sums.of(-(-len(y) // SPARSE_BLOCK))
            tallies = kernel(ask, *parts, y, points.ravel(), *_zeros(width), out)
            return _Part(sums.own(out), len(y), *tallies)

        return lambda features, labels: functools.partial(run, features, labels)

    def _ask(self, query: Query, width: int, single: bool) -> Array:
        from dpsco.oracles.kernels.slopes import CUSTOM, KINDS

        kind = CUSTOM if self.slope is not None else KINDS[self.loss.kind]
        parameter = getattr(self.loss, "label_bound", getattr(self.loss, "width", 0.0))
        return ask_of(query, width, single, kind=kind, parameter=parameter, intercept=self.intercept)

    def _load(self, nothing: Task, kind: Any) -> None:
        """Load or compile a kernel by a task without rows, once in a process; say so if it takes long."""
        if (self.slope, kind) in _LOADED:
            return
        message = "dpsco: compiling kernels for this machine; later processes find them in the cache."
        timer = threading.Timer(_PATIENCE, logging.getLogger("dpsco").warning, (message,))
        timer.daemon = True
        timer.start()
        nothing()
        timer.cancel()
        _LOADED.add((self.slope, kind))

    def _kernel(self, name: str) -> Any:
        from dpsco.oracles.kernels.custom import kernels

        return kernels(self.slope)[name]


def _plain(oracle: LinearOracle, query: Query, batch: Batch) -> _Part:
    answer = oracle.answer(query, batch)
    return _Part(answer.total[None], answer.rows, answer.clipped_rows, answer.zeroed_rows)


def ask_of(query: Query, width: int, single: bool, *, kind: int, parameter: float, intercept: bool) -> Array:
    """The query in a kernel's numbers (kernels/slopes.py), with the margins of float32 (``single``) or float64."""
    from dpsco.oracles.kernels.slopes import Ask

    weight_0, weight_1 = (float(weight) for weight in (*query.weights, 0.0)[:2])
    margin = 2.0**-19 if single else (width + 32) * 2.0**-53
    low, high = (2.0**-70, 2.0**100) if single else (1e-250, 1e250)
    clip, least = float(query.clip), 2.0**-100 if single else 0.0
    facts = kind, float(parameter), intercept, weight_0, weight_1
    return np.array(Ask(*facts, clip, clip * (1.0 - margin), query.grid, low, high, least))


def row_type(given: np.dtype[Any], query: Query) -> np.dtype[Any]:
    """float32 for rows that float32 holds exactly, if clip and points are far from the ends of its range."""
    size = max(float(np.max(np.abs(point), initial=0.0)) for point in query.points)
    fits = size < _FLOAT32_RANGE and (1 / _FLOAT32_RANGE <= query.clip <= _FLOAT32_RANGE or math.isinf(query.clip))
    return np.dtype(np.float32 if fits and np.can_cast(given, np.float32, "safe") else np.float64)


def _task_rows(width: int, itemsize: int) -> int:
    unit = chunk_multiple(width)
    return max(1, _TASK_BYTES // (width * itemsize * unit)) * unit


def flat(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers in one row, C order and native; without a copy if they are so already.

    Kernels only read. An alias without the read-only mark spares a second compilation for memory-mapped files.
    """
    flat = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    return flat if flat.flags.writeable or not flat.size else np.asarray(_Alias(flat))


class _Alias:
    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # keeps the memory alive
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _standard(features: CsrRows, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Values, indices and row ends in types the kernel knows, without a copy where they are."""
    if features.data.dtype != dtype:
        start = features.indptr[0]
        span = slice(start, features.indptr[-1])
        features = CsrRows(
            features.data[span].astype(dtype), features.indices[span], features.indptr - start, features.shape[1]
        )
    wide = np.int32 if features.indices.dtype == features.indptr.dtype == np.int32 else np.int64
    return features.data, features.indices.astype(wide, copy=False), features.indptr.astype(wide, copy=False)


def _zeros(width: int) -> tuple[Array, Array]:
    """This thread's working memory of the sparse kernel, which leaves it zero."""
    if getattr(_MEMORY, "width", None) != width:
        _MEMORY.width, _MEMORY.zeros = width, (np.zeros(width + 1), np.zeros(width))
    zeros: tuple[Array, Array] = _MEMORY.zeros
    return zeros
