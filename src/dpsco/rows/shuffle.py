"""Rows of a stream in a mixed order, within blocks of a public size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.rechunk import in_blocks

__all__ = ["block_order", "shuffled"]

PIECE_ROWS, PIECE_BYTES = 4096, 4 << 20
_REUSED_BYTES = 256 << 20


def shuffled(chunks: Iterable[tuple[Any, Any]], rows: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of ``chunks``, each block of ``rows`` rows permuted; dense or CSR.

    Guarantee: the order is a function of ``rows``, ``seed`` and each row's position, never of a value, and the same
    however the rows are cut into chunks: a resumed run meets the same order. The order need not be secret.
    Cost: memory of one block. A file sorted over more than a block stays sorted from block to block.
    """
    for number, (features, labels) in enumerate(_blocks(iter(chunks), rows)):
        order, dense = block_order(seed, number, len(labels)), isinstance(features, np.ndarray)
        size = PIECE_ROWS * max(1, PIECE_BYTES // (PIECE_ROWS * features[:1].nbytes)) if dense else PIECE_ROWS
        for start in range(0, len(order), size):
            picked = order[start : start + size]
            yield np.take(features, picked, axis=0) if dense else features[picked], labels[picked]


def _blocks(chunks: Iterator[tuple[Any, Any]], rows: int) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of ``rows`` rows; a dense one lasts until the next, which lies in the same memory.

    New memory costs more than the copy: the system clears it page by page.
    """
    held: tuple[NDArray[Any], NDArray[Any]] | None = None
    filled = 0
    for features, labels in chunks:
        if held is None:
            if not isinstance(features, np.ndarray) or rows * features[:1].nbytes > _REUSED_BYTES:
                yield from in_blocks(chain([(features, labels)], chunks), rows)
                return
            held = np.empty((rows, features.shape[1]), features.dtype), np.empty(rows, labels.dtype)
        start = 0
        while start < len(labels):
            stop = min(len(labels), start + rows - filled)
            for block, part in zip(held, (features, labels), strict=True):
                block[filled : filled + stop - start] = part[start:stop]
            filled, start = filled + stop - start, stop
            if filled == rows:
                yield held
                filled = 0
    if held is not None and filled:
        yield held[0][:filled], held[1][:filled]


def block_order(seed: int, number: int, rows: int) -> NDArray[np.int64]:
    """Which row of block ``number`` comes first, second and so on."""
    return np.random.default_rng([seed, number]).permutation(rows)
