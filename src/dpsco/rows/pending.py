"""Rows that wait until there are enough of them: the one place where chunks of any size are cut anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Chunk
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["PendingRows"]


class PendingRows:
    """SENSITIVE: chunks in the order of their rows. Chunks are views of what was given until two are joined."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self.rows = 0

    def put(self, features: Any, labels: NDArray[Any]) -> None:
        """Add rows at the end."""
        if len(labels):
            self._chunks.append((features, labels))
            self.rows += len(labels)

    def take(self, rows: int) -> Chunk:
        """The first ``rows`` rows that wait, which must be there."""
        parts: list[Chunk] = []
        wanted = rows
        while wanted:
            features, labels = self._chunks.pop(0)
            if len(labels) > wanted:
                self._chunks.insert(0, (features[wanted:], labels[wanted:]))
                features, labels = features[:wanted], labels[:wanted]
            parts.append((features, labels))
            wanted -= len(labels)
        self.rows -= rows
        if len(parts) == 1:
            return parts[0]
        pieces: Any = [features for features, _ in parts]
        if is_sparse(pieces[0]):
            joined: Any = CsrRows.joined([CsrRows.of(piece) for piece in pieces])
        else:
            joined = np.concatenate(pieces)
        return joined, np.concatenate([labels for _, labels in parts])
