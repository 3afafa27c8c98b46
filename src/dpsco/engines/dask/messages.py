"""What passes between worker and driver besides queries. SENSITIVE, all of it, and made to travel.

``Clipped`` refuses to be pickled, so that a sum never leaves a process by accident. On a cluster sums do leave a
process, and rows of neighbouring shards go from worker to worker: these types say so. They travel between machines that
are inside the trust boundary (docs/cluster.md), they do not print, and the library writes them nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array, Chunk, Clipped

__all__ = ["SensitivePick", "SensitiveRows", "SensitiveSum"]

_STAYS = 64


class _Hidden:
    """Prints nothing of what it holds: Dask logs the arguments of a task that fails."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<sensitive>)"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class SensitiveRows(_Hidden):
    """The rows of a shard, encoded, in the order of the files; a chunk for each block if shuffled."""

    start: int
    stop: int
    chunks: tuple[Chunk, ...]
    unread: tuple[tuple[int, int, str], ...] = ()
    """Rows (first, last, file) that could not be read and are zero rows."""

    def between(self, first: int, last: int) -> Iterator[Chunk]:
        """Those of rows ``first`` to ``last`` that are here; views."""
        start = self.start
        for features, labels in self.chunks:
            own = slice(max(0, first - start), max(0, min(len(labels), last - start)))
            if own.start < own.stop:
                yield features[own], labels[own]
            start += len(labels)

    def unread_among(self, rows: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
        """Files, and how many of ``rows`` could not be read from each."""
        return tuple((name, int(np.sum((rows >= first) & (rows < last)))) for first, last, name in self.unread)

    def __sizeof__(self) -> int:
        """Return what Dask weighs when it decides where a sum is made: so much that no shard is worth moving.

        Dask guesses how long tasks take. On a busy machine it guessed that a sum begins sooner where its shard is not,
        and sent a third of the shards to another worker.
        """
        return _STAYS * sum(_bytes(features) + labels.nbytes for features, labels in self.chunks)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class SensitivePick(_Hidden):
    """Rows of one shard that a span needs, and the places of the order that they have."""

    places: NDArray[np.int64]
    features: Any
    labels: Array
    unread: tuple[tuple[str, int], ...] = ()
    """Files, and how many of these rows could not be read from each."""

    def __sizeof__(self) -> int:
        return int(self.places.nbytes + _bytes(self.features) + self.labels.nbytes)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class SensitiveSum(_Hidden):
    """The clipped sum of a span, not yet noised, on its way to the driver."""

    total: Array
    rows: int
    clipped_rows: int
    zeroed_rows: int
    unread: tuple[tuple[str, int], ...] = ()
    """Files, and how many rows could not be read from each; such rows are in none of the counts."""

    def clipped(self) -> Clipped:
        """Return the same for ``release``."""
        return Clipped(self.total, self.rows, clipped_rows=self.clipped_rows, zeroed_rows=self.zeroed_rows)


def _bytes(features: Any) -> int:
    if isinstance(features, np.ndarray):
        return features.nbytes
    return int(features.data.nbytes + features.indices.nbytes + features.indptr.nbytes)
