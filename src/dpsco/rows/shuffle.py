"""Rows of a stream in a mixed order, within blocks of a public size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.rechunk import in_blocks

__all__ = ["block_order", "shuffled"]

PIECE_ROWS = 4096


def shuffled(chunks: Iterable[tuple[Any, Any]], rows: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of ``chunks``, each block of ``rows`` rows permuted; dense or CSR.

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
