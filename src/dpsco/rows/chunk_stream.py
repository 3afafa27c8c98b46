"""Rows from an iterable of chunks or of single rows, read lazily and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np

from dpsco.errors import DataError, InvalidArgument
from dpsco.query import CHUNK_ROWS, Batch, Chunk, Portion
from dpsco.rows.containers import is_rows, width_message
from dpsco.rows.gate import Declared, container, container_width
from dpsco.rows.layout import Layout
from dpsco.rows.one_pass import COPY_BYTES, Again, Sample, Stream, chunk_rows, whole
from dpsco.rows.rechunk import WaitingRows, copied

__all__ = ["ChunkStream"]


class ChunkStream(Stream):
    """Rows from an iterable of chunks (X, y) of any size, or of single rows; read as far as needed."""

    def __init__(
        self, items: Iterable[Any], kind: str, width: int | None, dtype: str | None, sparse: bool | None
    ) -> None:
        super().__init__()
        said: Declared | None = getattr(items, "declared", None)  # an iterable may state what its rows are
        self._items = items if getattr(items, "again", False) else None  # files: what can be read again
        self._trusted = isinstance(said, Declared)  # the library's readers make every chunk anew
        self._source = iter(items)
        self.fast, self.cap = bool(getattr(items, "fast", False)), getattr(items, "cap", None)
        self._kind, self._width = kind, width if said is None else said.width
        self._dtype = dtype or ("float64" if said is None else said.dtype)
        self._sparse = sparse if sparse is not None else said is not None and said.sparse
        self._declared: Declared | None = None
        self._waiting = WaitingRows()

    def open(self, layout: Layout, sample: Sample | None = None) -> Iterator[Batch]:
        """Return the batches of ``layout``; ``DataError`` if the source has no row."""
        batches = super().open(layout, sample)
        if not self._read(1):
            raise DataError("The stream is empty: no row was found. Check the source; nothing was spent.")
        return batches

    def _check(self, layout: Layout) -> None:
        super()._check(layout)
        width = self._width if layout.width is None else layout.width
        if self._width is not None and layout.width is not None and layout.width != self._width:
            raise DataError(width_message(self._width, layout.width))
        if width is not None:
            self._declared = Declared(width, self._dtype, self._sparse)
        elif self._kind == "rows":
            raise InvalidArgument("Single rows do not state how many features a row has. Pass width=....")

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        for step in range(layout.rounds):
            yield Batch(step, self._chunks(layout.batch_size))

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        at = 0
        for portion in portions:
            if portion.first != at or portion.rate < 1.0:
                raise InvalidArgument(
                    "This algorithm goes over rows more than once or samples among them, and a stream of chunks is "
                    "read once. Hand over arrays: stream(X, y)."
                )
            at = portion.last

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        only = isinstance(portions, Sequence) and len(portions) == 1
        for step, portion in enumerate(whole(portions)):
            if only and self._items is not None:
                yield Batch(step, Again(partial(self._from_start, portion.rows)))
            elif self._items is not None:
                yield Batch(step, Again(partial(self._again, portion, count())))
            else:
                yield Batch(step, self._chunks(portion.rows))

    def _from_start(self, size: int) -> Iterator[Chunk]:
        """Yield the first ``size`` rows, in every call."""
        if self.rows_read and self._items is not None:
            self._source, self._waiting, self.rows_read = iter(self._items), WaitingRows(), 0
        yield from self._chunks(size)

    def _again(self, portion: Portion, reads: Iterator[int]) -> Iterator[Chunk]:
        """Yield the rows that come next; in later calls the same rows, behind those of the portions before."""
        if next(reads) and self._items is not None:
            self._source, self._waiting, self.rows_read = iter(self._items), WaitingRows(), 0
            deque(self._chunks(portion.first), maxlen=0)
        yield from self._chunks(portion.rows)

    def _chunks(self, size: int) -> Iterator[Chunk]:
        left = size
        while left and (self._waiting.rows or self._read(left)):
            wanted = self._whole(left) or min(chunk_rows(self._waiting.first[0], COPY_BYTES), left)
            while self._waiting.rows < wanted and self._read(wanted - self._waiting.rows):
                pass
            features, labels = self._waiting.take(min(wanted, self._waiting.rows))
            left -= len(labels)
            self.rows_read = (self.rows_read or 0) + len(labels)
            yield features, labels

    def _whole(self, left: int) -> int:
        """Rows, in whole units, that the first chunk holds by itself: they need no copy."""
        features, labels = self._waiting.first
        unit = chunk_rows(features, 0)
        return left if len(labels) >= left else len(labels) // unit * unit

    def _read(self, wanted: int) -> bool:
        """Read on until a row more is waiting, at most ``wanted`` single rows; False at the end of the source."""
        before = self._waiting.rows
        while self._waiting.rows == before:
            items = list(islice(self._source, min(wanted, CHUNK_ROWS) if self._kind == "rows" else 1))
            if not items:
                return False
            if self._kind == "rows" and self._declared is not None:
                self._waiting.put(*self._declared.row_pairs(items))
            else:
                self._waiting.put(*self._typed(items[0]))
        return True

    def _typed(self, item: Any) -> Chunk:
        try:
            features, labels = item
        except (TypeError, ValueError):
            raise DataError(
                "Expected the stream to yield chunks (X, y), or with items='rows' pairs (row, label)."
            ) from None
        features = container(features)
        if self._declared is None:
            if (width := container_width(features)) is None:
                raise InvalidArgument("A list of rows does not state how many features a row has. Pass width=....")
            self._declared = Declared(width, self._dtype, self._sparse)
        if not is_rows(features):
            container_width(features)  # a single row in place of a chunk
        rows, targets = self._declared.chunk(features, labels)
        if self._trusted:
            return rows, targets
        # Rows wait while the source reads on, and a source may fill one buffer again and again: a row that it
        # overwrites would count as another one many times.
        return _own(rows, features), _own(targets, labels)


def _own(typed: Any, given: Any) -> Any:
    """Return typed rows or labels in memory that the source does not hold: a copy, unless they were made anew."""
    anew = isinstance(typed, np.ndarray) and typed.base is None and typed is not given
    return typed if anew else copied(typed)
