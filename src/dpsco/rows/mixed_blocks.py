"""Rows of files that go straight to their places in a shuffled block, where their number is known beforehand.

    columns of some rows  ->  rows, each written once, at block_order's place       compare shuffle.shuffled

Guarantee: the rows of ``shuffled`` in the same order.
Cost: each row is written once. Two blocks are being filled at most, and one or two are with whoever reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.parallel import available_threads, in_order
from dpsco.rows.readers.source import CutPart, Table
from dpsco.rows.shuffle import block_order

__all__ = ["Encode", "mixed_blocks"]

PIECE_BYTES, PIECE_ROWS = 16 << 20, 4096
_PART_BYTES = 4 << 20

Encode = Callable[[Table, NDArray[np.float32], NDArray[np.int64]], NDArray[np.float64]]
"""``encode(table, out, places)`` writes the rows of a table to their places in ``out`` and returns their labels."""


class _Block(NamedTuple):
    features: NDArray[np.float32]
    labels: NDArray[np.float64]
    places: NDArray[np.int64]


def mixed_blocks(
    parts: Iterable[CutPart], total: int, width: int, rows: int, seed: int, encode: Encode
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float64]]]:
    """Yield the rows of ``parts``, each block of ``rows`` rows permuted, in pieces.

    Parameters
    ----------
    parts : iterable of CutPart
        Rows in the order of the files.
    total : int
        All rows of the parts.
    width : int
        Features per row.
    rows, seed : int
        As in ``shuffled``.
    encode : Encode
        What makes rows of cells; called in several threads.

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
    parts: Iterable[CutPart], total: int, width: int, rows: int, seed: int, encode: Encode
) -> Iterator[Callable[[], tuple[_Block, int]]]:
    """Yield functions that fill some rows of a block."""
    most = max(1024, min(1 << 15, _PART_BYTES // (4 * width)))
    done, block = 0, _Block(np.empty((0, width), np.float32), np.empty(0), np.empty(0, np.int64))
    for part in parts:
        at = 0
        if done + part.rows > total:
            _refuse()
        while at < part.rows:
            number, offset = divmod(done, rows)
            if offset == 0:
                block = _new(seed, number, min(rows, total - done), width)
            stop = min(part.rows, at + most, at + len(block.labels) - offset)
            yield partial(_fill, encode, part.cut(at, stop), block, offset)
            done, at = done + stop - at, stop
    if done != total:
        _refuse()


def _new(seed: int, number: int, rows: int, width: int) -> _Block:
    order = block_order(seed, number, rows)
    places = np.empty(rows, np.int64)
    places[order] = np.arange(rows)
    return _Block(np.empty((rows, width), np.float32), np.empty(rows), places)


def _fill(encode: Encode, part: CutPart, block: _Block, offset: int) -> tuple[_Block, int]:
    places = block.places[offset : offset + part.rows]
    block.labels[places] = encode(part(), block.features, places)
    return block, part.rows


def _refuse() -> NoReturn:
    raise DataError("The files have another number of rows than when the run began. They must stay as they are.")
