"""Rows of files that go straight to their places in a shuffled block, where their number is known beforehand.

    columns of some rows  ->  rows, each written once, at block_order's place       compare shuffle.shuffled

Guarantee: the rows of ``shuffled`` in the same order.
Cost: each row is written once. Two blocks are being filled at most, and one or two are with whoever reads. Cells of a
part are converted once, whatever number of threads write its rows. A block that nobody refers to any more is filled
again: the system clears new memory page by page.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.parallel import available_threads, in_order
from dpsco.rows.readers.source import CountedPart, Table
from dpsco.rows.shuffle import block_order
from dpsco.rows.table_rows import TableRows

__all__ = ["mixed_blocks"]

PIECE_BYTES, PIECE_ROWS = 16 << 20, 4096
_PART_BYTES = 4 << 20


class _Block(NamedTuple):
    features: NDArray[np.float32]
    labels: NDArray[np.float64]
    places: NDArray[np.int64]


def mixed_blocks(
    parts: Iterable[CountedPart], total: int, width: int, rows: int, seed: int, encode: Callable[[Table], TableRows]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float64]]]:
    """Yield the rows of ``parts``, each block of ``rows`` rows permuted, in pieces.

    Parameters
    ----------
    parts : iterable of CountedPart
        Rows in the order of the files.
    total : int
        All rows of the parts.
    width : int
        Features per row.
    rows, seed : int
        As in ``shuffled``.
    encode : callable
        What makes rows of cells, once per part; called in several threads.

    Raises
    ------
    DataError
        If there are more or fewer rows than ``total``.
    """
    size = PIECE_ROWS * max(1, PIECE_BYTES // (4 * PIECE_ROWS * width))
    filled = 0
    for block, count in in_order(_tasks(parts, total, width, rows, seed, encode), available_threads()):
        filled += count
        if filled == len(block.labels):
            for start in range(0, filled, size):
                yield block.features[start : start + size], block.labels[start : start + size]
            filled = 0


def _tasks(
    parts: Iterable[CountedPart], total: int, width: int, rows: int, seed: int, encode: Callable[[Table], TableRows]
) -> Iterator[Callable[[], tuple[_Block, int]]]:
    """Yield functions that fill some rows of a block."""
    most = max(1024, min(1 << 15, _PART_BYTES // (4 * width)))
    done, block = 0, _Block(np.empty((0, width), np.float32), np.empty(0), np.empty(0, np.int64))
    free: deque[NDArray[np.float32]] = deque()
    for part in parts:
        at, once = 0, _Once(part, encode)
        if done + part.rows > total:
            _refuse()
        while at < part.rows:
            number, offset = divmod(done, rows)
            if offset == 0:
                memory = free.pop() if free else np.empty((min(rows, total), width), np.float32)
                block = _new(seed, number, np.asarray(_Lent(memory, free))[: total - done])
            stop = min(part.rows, at + most, at + len(block.labels) - offset)
            yield partial(_fill, once, at, stop, block, offset)
            done, at = done + stop - at, stop
    if done != total:
        _refuse()


class _Lent:
    """Memory that is free again when the last array in it is gone."""

    def __init__(self, memory: NDArray[np.float32], free: deque[NDArray[np.float32]]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__: dict[str, Any] = memory.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._memory)


def _new(seed: int, number: int, features: NDArray[np.float32]) -> _Block:
    rows = len(features)
    order = block_order(seed, number, rows)
    places = np.empty(rows, np.int64)
    places[order] = np.arange(rows)
    return _Block(features, np.empty(rows), places)


class _Once:
    """The rows of a part, made ready by the first thread that needs them."""

    def __init__(self, part: CountedPart, encode: Callable[[Table], TableRows]) -> None:
        self._part, self._encode = part, encode
        self._lock = threading.Lock()
        self._made: TableRows | None = None

    def __call__(self) -> TableRows:
        with self._lock:
            if self._made is None:
                self._made = self._encode(self._part())
            return self._made


def _fill(once: _Once, start: int, stop: int, block: _Block, offset: int) -> tuple[_Block, int]:
    places = block.places[offset : offset + stop - start]
    once().write(start, stop, block.features, block.labels, places)
    return block, stop - start


def _refuse() -> NoReturn:
    raise DataError("The files have another number of rows than when the run began. They must stay as they are.")
