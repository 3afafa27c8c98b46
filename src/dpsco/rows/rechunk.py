"""Chunks cut anew: the same rows in the same order, in pieces of another size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["WaitingRows", "copied", "in_blocks", "in_units", "stacked"]


class WaitingRows:
    """Chunks that wait to be taken, in order. SENSITIVE: it holds rows.

    Cost: rows that lie within one chunk are taken as a view, others are copied once.
    """

    def __init__(self) -> None:
        self._chunks: deque[tuple[Any, Any]] = deque()
        self.rows = 0

    def put(self, features: Any, labels: Any) -> None:
        """Add rows at the end."""
        if len(labels):
            self._chunks.append((features, labels))
            self.rows += len(labels)

    @property
    def first(self) -> tuple[Any, Any]:
        """The chunk whose rows come next."""
        return self._chunks[0]

    def take(self, rows: int) -> tuple[Any, Any]:
        """Return the next ``rows`` rows; so many must be waiting."""
        parts: list[tuple[Any, Any]] = []
        self.rows -= rows
        while rows:
            features, labels = self._chunks.popleft()
            if len(labels) > rows:
                self._chunks.appendleft((features[rows:], labels[rows:]))
                features, labels = features[:rows], labels[:rows]
            parts.append((features, labels))
            rows -= len(labels)
        return stacked([features for features, _ in parts]), stacked([labels for _, labels in parts])

    def own_last(self) -> None:
        """Copy the rows that came last: whoever gave them may use their memory again."""
        if self._chunks:
            features, labels = self._chunks.pop()
            self._chunks.append((copied(features), copied(labels)))


def copied(part: Any) -> Any:
    """Return rows or labels in memory of their own."""
    if isinstance(part, CsrRows):
        first, last = part.indptr[0], part.indptr[-1]
        own = np.array(part.data[first:last]), np.array(part.indices[first:last]), part.indptr - first
        return CsrRows(*own, part.shape[1])
    return part.copy() if is_sparse(part) else np.array(part)


def in_blocks(chunks: Iterable[tuple[Any, Any]], rows: int, first: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield ``rows`` rows at a time (``first`` in the first block), fewer at the end."""
    waiting, wanted = WaitingRows(), first or rows
    for features, labels in chunks:
        waiting.put(features, labels)
        while waiting.rows >= wanted:
            yield waiting.take(wanted)
            wanted = rows
    if waiting.rows:
        yield waiting.take(waiting.rows)


def in_units(chunks: Iterable[tuple[Any, Any]], unit: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows in chunks of whole units, as long as they are without a copy; fewer rows at the end.

    Cost: a copy of one unit where a chunk ends inside of it.
    """
    waiting = WaitingRows()
    for features, labels in chunks:
        waiting.put(features, labels)
        while waiting.rows >= unit:
            own = len(waiting.first[1]) // unit * unit
            yield waiting.take(own or unit)
    if waiting.rows:
        yield waiting.take(waiting.rows)


def stacked(parts: list[Any]) -> Any:
    """Return one matrix (or vector) of the rows of several; the part itself if there is one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], CsrRows):
        return CsrRows.joined(parts)
    if is_sparse(parts[0]):
        from scipy.sparse import vstack

        return vstack(parts, format="csr")
    return np.concatenate(parts)
