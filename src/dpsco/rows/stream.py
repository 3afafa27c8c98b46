"""Streams: one pass over the rows, in order, exactly T batches of public size B, in chunks that fit memory.

    containers  ->  gate  ->  batches

Missing rows count as zero rows (the denominator stays B), surplus rows are never read, and a stream opens once: one
plan pays for one pass. A method with a schedule of its own says which ``Portion`` of the rows each round sees: batches
of uneven size from any stream, the same rows again or a sample of them from arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, one_of, positive_integer
from dpsco.query import Batch, Chunk, Portion
from dpsco.rows.chunk_stream import ChunkStream
from dpsco.rows.containers import is_frame, is_rows, plain_column
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.gate import admit, admit_labels, all_finite, container, container_width, declared_by
from dpsco.rows.ids import NO_ROUND, rounds_of_ids
from dpsco.rows.layout import LabelRule, Layout
from dpsco.rows.one_pass import COPY_BYTES, Again, Sample, Stream, chunk_rows, whole
from dpsco.rows.shuffle import block_order

__all__ = ["ArrayStream", "ChunkStream", "HashedStream", "Sample", "Stream", "stream"]

_VIEW_BYTES = 1 << 30  # a chunk of an array in memory is a view: large ones cost nothing

CHECKED_WHOLE = 1 << 26
"""Numbers of a dense table (256 MB of float32) from which the rows of the first round alone are checked beforehand."""

_REMEDY = "Clean them, or pass stream(..., non_finite='zero') to count such rows as zero rows. Nothing was spent."


class ArrayStream(Stream):
    """Rows of a container in memory (or memory-mapped), batch after batch."""

    _order: NDArray[np.int64] | None = None
    """Which row comes first, second and so on; None keeps the order of the container."""
    _look: Callable[[], None] | None = None
    """Raises if a row of the first round does not fit; None if that is known already."""

    def __init__(self, data: Any, labels: Any, non_finite: str, width: int | None, dtype: str | None) -> None:
        super().__init__()
        data = container(data)
        container_width(data)
        self._data, self._non_finite, self._dtype, self._width = data, non_finite, dtype, width
        self._rows_there = data.shape[0] if hasattr(data, "shape") else len(data)
        self._labels = admit_labels(labels, self._rows_there)
        self._features: Any = None
        self._rows_at_once = 0
        self.rows_available = self._rows_there

    def _check(self, layout: Layout) -> None:
        super()._check(layout)
        self._check_rows(layout)

    def _check_rows(self, layout: Layout) -> None:
        width = self._width if layout.width is None else layout.width
        if width is None and self._non_finite == "error" and is_rows(self._data):
            width = _same_width(self._data)
        self._features = admit(self._data, declared_by(self._data, width, self._dtype))
        views = isinstance(self._features, (np.ndarray, CsrRows))
        self._rows_at_once = chunk_rows(self._features, _VIEW_BYTES if views else COPY_BYTES)
        if self._non_finite == "error":
            if getattr(getattr(self._data, "dtype", None), "kind", "") == "c":
                raise DataError(f"Complex data not supported: X holds complex numbers. {_REMEDY}")
            # Public numbers decide. A large table would be read twice: only the rows of its first round are checked,
            # after the oracle has read them, and later rows that do not fit are zero rows.
            fresh = layout.portions is None and layout.coming is None and layout.adjacency != "add-remove"
            large = math.prod(self._features.shape) >= CHECKED_WHOLE and not isinstance(self._features, CsrRows)
            if fresh and large:
                self._look = partial(self._refuse_unfit_first, layout)
            else:
                _refuse_unfit(self._features, self._labels[:], layout)

    def _refuse_unfit_first(self, layout: Layout) -> None:
        for features, labels in self._views(0, min(layout.batch_size, self._rows_there)):
            _refuse_unfit(features, labels, layout)

    def answered(self, zero_rows: int) -> None:
        """Look for rows that do not fit only if there are zero rows."""
        if not zero_rows:
            self._look = None

    def confirm(self) -> None:
        """Raise if a row of the first round does not fit."""
        if self._look is not None:
            self._look()
            self._look = None

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        for step in range(layout.rounds):
            first = step * layout.batch_size
            yield Batch(step, self._chunks(first, min(first + layout.batch_size, self._rows_there)))

    def _chunks(self, first: int, last: int) -> Iterator[Chunk]:
        for features, labels in self._views(first, last):
            self.rows_read = (self.rows_read or 0) + len(labels)
            yield features, labels

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        """Any portion will do: the rows stay at hand."""

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        for step, portion in enumerate(portions):
            last = min(portion.last, self._rows_there)
            self.rows_read = max(self.rows_read or 0, last)
            if portion.rate < 1.0:
                if sample is None:
                    raise InvalidArgument("Portions with a rate need the run's own sample(step, rows, rate).")
                yield Batch(step, Again(partial(self._sampled, step, portion, sample)))
            else:
                yield Batch(step, Again(partial(self._views, min(portion.first, last), last)))

    def shuffle(self) -> None:
        """Mix the rows by a fixed public permutation of their positions: no value decides it, a resume repeats it."""
        self._order = block_order(0, 0, self._rows_there)

    def _views(self, first: int, last: int) -> Iterator[Chunk]:
        if self._order is not None:
            yield from self._picked(self._order[first:last])
            return
        rows = self._rows_at_once
        for start in range(first, last, rows):
            stop = min(start + rows, last)
            yield self._features[start:stop], self._labels[start:stop]

    def _sampled(self, step: int, portion: Portion, sample: Sample) -> Iterator[Chunk]:
        positions = portion.first + sample(step, portion.rows, portion.rate)
        yield from self._picked(positions[positions < self._rows_there])

    def _picked(self, positions: NDArray[np.int64]) -> Iterator[Chunk]:
        rows = chunk_rows(self._features, COPY_BYTES)
        for start in range(0, max(1, len(positions)), rows):  # a chunk states the width of rows that do not come
            picked = positions[start : start + rows]
            yield self._features[picked], self._labels[picked]


class HashedStream(ArrayStream):
    """Rows that choose their round by a hash of their id, so that no row's place depends on another row.

    Batch sizes then vary and stay secret; every denominator is the public B. No round sees a row without an id.
    """

    rows_read = None

    def __init__(self, data: Any, labels: Any, ids: Any, non_finite: str, width: int | None, dtype: str | None) -> None:
        super().__init__(data, labels, non_finite, width, dtype)
        self.rows_available = None
        ids = plain_column(ids, "The column of ids")
        if len(ids) != self._rows_there:
            raise InvalidArgument("Expected one id for each row of X; their numbers differ.")
        self._ids = ids

    def _check(self, layout: Layout) -> None:
        if layout.adjacency != "add-remove":
            raise InvalidArgument(
                "Rows with ids choose their round by themselves, which is what adjacency='add-remove' is for; the "
                f"plan has {layout.adjacency!r}. Plan with 'add-remove' (the noise of 'zero-out'), or leave the ids "
                "out."
            )
        self._check_rows(layout)
        self._rounds = rounds_of_ids(self._ids, bytes.fromhex(layout.digest), layout.places)
        if self._non_finite == "error" and np.any(self._rounds == NO_ROUND):
            raise InvalidArgument(
                "Expected every id to be a whole number or text: a row's round is a hash of it. Pass "
                "stream(..., non_finite='zero') to leave rows without an id out."
            )

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        return self._portions((Portion(step, step + 1) for step in range(layout.rounds)), None)

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        if portions:
            raise InvalidArgument(
                "adjacency='add-remove' is for algorithms with fresh batches of one size: here rounds see rows by "
                "position, and deleting one row would shift the others. Plan with 'zero-out' and use stream(X, y)."
            )

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        """Each portion is a stretch of the places that ids are hashed to."""
        order = np.argsort(self._rounds, kind="stable")
        places = self._rounds[order]
        for step, portion in enumerate(whole(portions)):
            first, last = np.searchsorted(places, [portion.first, portion.last])
            yield Batch(step, self._picked(order[first:last]))


def stream(
    data: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    items: str = "chunks",
    non_finite: str = "error",
    dtype: str | None = None,
    width: int | None = None,
    sparse: bool | None = None,
    shuffle: bool = False,
) -> Stream:
    """Rows to train on, once.

    ``stream(X, y)``
        a container of rows and one of labels, in their order: arrays, lists, pandas, polars, Arrow, a sparse matrix
        of SciPy (read as CSR). Checked before anything is spent, as ``non_finite`` says.
    ``stream(X, y, ids=ids)``
        each row's round is a hash of its id: the form that ``adjacency="add-remove"`` needs.
    ``stream(chunks)``
        any iterable of chunks (X, y), each as above, read lazily and in order. Where chunks begin and end does not
        matter.
    ``stream(pairs, items="rows")``
        any iterable of single rows (row, label). Each item is one row, whatever it holds.

    Parameters
    ----------
    data, labels
        The rows; ``labels=None`` beside a table gives every row the label 0.
    ids
        One id per row; 7, 7.0 and "7" are one id. No round sees a row without an id.
    items
        What an item of an iterable is: "chunks" or "rows".
    non_finite
        "error" refuses containers with rows that do not fit: an outcome that rows decide. Of a dense table of 2^26
        numbers or more, in rounds of fresh rows, it checks the rows of the first round; later ones that do not fit are
        zero rows. "zero" counts each such row as a zero row and never fails. Iterables are always read as with "zero".
    dtype
        "float64" or "float32", the type that rows are held and summed in. By default float32 for NumPy arrays and
        sparse matrices of float32, float64 for everything else (``rows/gate.py`` says why). State it if the array was
        joined from parts of several types: NumPy then lets one part decide on the type of all.
    width
        Features per row, where neither the problem nor the container states it (lists under a ``CustomLoss``).
    sparse
        Whether chunks are kept as CSR; the default is dense. A single container says so itself.
    shuffle
        Mix the rows of a container by a fixed permutation of their positions. One pass over rows that are sorted (by
        label, by date) learns what comes last.

    Returns
    -------
    Stream
        To hand to ``dpsco.train``.

    Guarantee: what becomes of a row, and its place, depend on that row alone. A row that does not fit counts as a zero
    row. Cost: arrays of float32 and float64 are shared, not copied; memory does not grow with an iterable's length.
    """
    one_of("non_finite", non_finite, ("error", "zero"))
    one_of("items", items, ("chunks", "rows"))
    if dtype is not None:
        one_of("dtype", dtype, ("float32", "float64"))
    if width is not None:
        width = positive_integer("width", width, "It is the number of features of a row.")
    if labels is None and not _is_table(data):
        if ids is not None:
            raise InvalidArgument("ids go with arrays: stream(X, y, ids=ids).")
        if shuffle:
            raise InvalidArgument("shuffle=True is for containers: mix an iterable where it is made.")
        return ChunkStream(data, items, width, dtype, sparse)
    if items == "rows" or sparse is not None:
        raise InvalidArgument("items and sparse are about iterables: leave them out beside stream(X, y).")
    if ids is not None:
        if shuffle:
            raise InvalidArgument("Rows with ids choose their round by a hash, which mixes them: leave shuffle out.")
        return HashedStream(data, labels, ids, non_finite, width, dtype)
    made = ArrayStream(data, labels, non_finite, width, dtype)
    if not made.rows_available:
        raise DataError("X is empty: no row was found. Nothing was spent.")
    if shuffle:
        made.shuffle()
    return made


def _is_table(data: Any) -> bool:
    return is_sparse(data) or is_frame(data) or len(getattr(data, "shape", ())) == 2


def _same_width(rows: Any) -> int:
    """Return how long the rows of a list are, where an error that rows decide is allowed.

    The array that NumPy makes of the list has a type that one row decides, so it is not what is trained on.
    """
    try:
        array = np.asarray(rows if isinstance(rows, (list, tuple)) else rows.tolist())
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(0)
    if array.ndim != 2:
        raise DataError("Expected X to have rows of one length. State it as width=..., or pass an array or a table.")
    return int(array.shape[1])


def _refuse_unfit(features: Any, targets: Any, layout: Layout) -> None:
    """Raise if a row does not fit: allowed where the caller asked for it."""
    if not all_finite(features):
        raise DataError(f"X has cells that are NaN or infinite, or not numbers. {_REMEDY}")
    loss: LabelRule | None = layout.labels
    if loss is None and layout.label_rule is not None:
        loss = layout.label_rule(features.shape[1])
    if not np.all(np.isfinite(targets)):
        raise DataError(f"y has cells that are NaN or infinite, or not numbers. {_REMEDY}")
    if loss is not None and not np.all(loss.valid(targets)):
        raise DataError(f"y has labels that the {loss.kind} loss cannot take: expected {loss.labels_are}. {_REMEDY}")
