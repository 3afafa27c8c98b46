"""Rows of a stream in a mixed order, within blocks of a public size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.csr import is_sparse

__all__ = ["block_order", "in_blocks", "shuffled", "stacked"]

PIECE_ROWS = 4096


def shuffled(chunks: Iterable[tuple[Any, Any]], rows: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """The rows of ``chunks``, each block of ``rows`` rows permuted; dense or CSR.

    Guarantee: the order is a function of ``rows``, ``seed`` and each row's position, never of a value, and the same
    however the rows are cut into chunks: a resumed run meets the same order. The order need not be secret.
    Cost: memory of one block twice over. A file sorted over more than a block stays sorted from block to block.
    """
    for number, (features, labels) in enumerate(in_blocks(chunks, rows)):
        order = block_order(seed, number, len(labels))
        for start in range(0, len(order), PIECE_ROWS):
            picked = order[start : start + PIECE_ROWS]
            yield features[picked], labels[picked]


def block_order(seed: int, number: int, rows: int) -> NDArray[np.int64]:
    """Which row of block ``number`` comes first, second and so on."""
    return np.random.default_rng([seed, number]).permutation(rows)


def stacked(parts: list[Any]) -> Any:
    """One matrix (or vector) of the rows of several."""
    if len(parts) == 1:
        return parts[0]
    if is_sparse(parts[0]):
        from scipy.sparse import vstack

        return vstack(parts, format="csr")
    return np.concatenate(parts)


def in_blocks(chunks: Iterable[tuple[Any, Any]], rows: int, first: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Exactly ``rows`` rows at a time (``first`` in the first block), fewer at the end; views within a chunk."""
    waiting: list[tuple[Any, Any]] = []
    size, wanted = 0, first or rows
    for features, labels in chunks:
        start = 0
        while start < len(labels):
            stop = min(len(labels), start + wanted - size)
            waiting.append((features[start:stop], labels[start:stop]))
            size += stop - start
            start = stop
            if size == wanted:
                yield stacked([x for x, _ in waiting]), stacked([y for _, y in waiting])
                waiting, size, wanted = [], 0, rows
    if waiting:
        yield stacked([x for x, _ in waiting]), stacked([y for _, y in waiting])
