"""Rows that can be read once: what every stream shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, SecondPassError
from dpsco.query import CHUNK_ROWS, Batch, Chunk, Portion, chunk_multiple
from dpsco.rows.csr import CsrRows
from dpsco.rows.layout import Layout

__all__ = ["COPY_BYTES", "Again", "Sample", "Stream", "chunk_rows", "whole"]

COPY_BYTES = 1 << 20
"""Bytes of a chunk that is a copy: converted, gathered from short ones, or from rows here and there."""

Sample = Callable[[int, int, float], NDArray[np.int64]]
"""``sample(step, rows, rate)``: positions that enter round ``step``; ``Releaser.sample``."""


class Again:
    """Chunks that can be read again; nothing is read before the first time."""

    def __init__(self, chunks: Callable[[], Iterator[Chunk]]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks()


class Stream:
    """Rows that can be read once. Made by ``dpsco.stream``."""

    rows_available: int | None = None
    """Rows there are, where that is known before reading and public."""
    rows_read: int | None = 0
    """Rows handed out so far; None where the count is not public (add-remove)."""

    cap: tuple[int, str | None] | None = None
    """Rows of one id that count, and the column of ids, where the rows come capped."""
    fast = True
    """Whether rows come faster than plain NumPy takes them, so that compiled kernels pay early."""

    def __init__(self) -> None:
        self._unopened = threading.Lock()

    def open(self, layout: Layout, sample: Sample | None = None) -> Iterator[Batch]:
        """Return the batches of ``layout``, in order; ``sample`` draws where a portion has a rate.

        Everything that can be checked is checked before a row is used.
        """
        if not self._unopened.acquire(blocking=False):
            raise SecondPassError(
                "This stream was opened already. A plan pays for one pass over its rows: make a new stream for a new "
                "run, and charge both runs to one Account if they see the same people."
            )
        try:
            self._check(layout)
            if layout.portions is not None:
                self._check_portions(layout.portions)
            if layout.coming is not None:
                self._check_portions(())
        except BaseException:
            self._unopened.release()  # nothing was read: it may be opened with a plan that fits
            raise
        portions = layout.portions if layout.coming is None else layout.coming()
        return self._batches(layout) if portions is None else self._portions(portions, sample)

    def answered(self, zero_rows: int) -> None:
        """Take note of how many rows of the round just read are zero rows, every row that does not fit among them.

        SENSITIVE. A stream that would look for such rows in ``confirm`` need not, if there is none.
        """

    def confirm(self) -> None:
        """Wait for checks of rows that run beside the first round, and raise what they found.

        It is called before an account is charged and before anything is released.
        """

    def _check(self, layout: Layout) -> None:
        if layout.adjacency == "add-remove":
            raise InvalidArgument(
                "adjacency='add-remove' needs rows that choose their round by themselves: here batches are cut by "
                "position, and deleting one row would shift every later batch. Use stream(X, y, ids=...), or "
                "adjacency='zero-out'."
            )

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        raise InvalidArgument(
            "This algorithm decides by itself how many rows each round sees, and these rows can only be cut as the "
            "plan says. Use stream(X, y)."
        )

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        raise NotImplementedError

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        raise NotImplementedError


def whole(portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yield the portions; ``InvalidArgument`` if one samples among its rows, for streams that hand out all of them."""
    for portion in portions:
        if portion.rate < 1.0:
            raise InvalidArgument(
                f"Expected portions of whole rows here, got one with rate={portion.rate:g}: its noise is made for a "
                "sample. Use stream(X, y)."
            )
        yield portion


def chunk_rows(features: Any, limit: int) -> int:
    """Return the rows per chunk of such features: whole units, at least one, about ``limit`` bytes of float64."""
    sparse = isinstance(features, CsrRows)
    unit = CHUNK_ROWS if sparse else chunk_multiple(features.shape[1])
    width = features.mean_width if sparse else features.shape[1]
    return max(1, limit // (8 * width * unit)) * unit
