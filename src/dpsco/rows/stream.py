"""Streams: one pass over the rows, in order, exactly T batches of public size B, in chunks that fit memory.

Missing rows count as zero rows (the denominator stays B), surplus rows are never read, and a stream opens
once: one plan pays for one pass. A method with a schedule of its own says which ``Portion`` of the rows each round
sees: batches of uneven size from any stream, the same rows again or a sample of them from arrays only.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.errors import DataError, InvalidArgument, SecondPassError, one_of
from dpsco.parallel import available_threads, in_order
from dpsco.query import CHUNK_ROWS, Batch, Chunk, Portion, chunk_multiple
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.layout import Layout

__all__ = ["ArrayStream", "ChunkStream", "HashedStream", "Stream", "stream"]

_VIEW_BYTES = 1 << 30  # a chunk of an array in memory is a view: large ones cost nothing
_COPY_BYTES = 1 << 20  # a chunk gathered from short ones, or from rows here and there, is a copy
_LOOK_BYTES = 32 << 20  # rows looked at by one thread


Sample = Callable[[int, int, float], NDArray[np.int64]]
"""``sample(step, rows, rate)``: positions that enter round ``step``; ``Releaser.sample``."""


class Again:
    """Chunks that can be gone over again; nothing is read before the first time."""

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

    fast = True
    """Whether rows come faster than plain NumPy takes them, so that compiled kernels pay early."""

    def __init__(self) -> None:
        self._unopened = threading.Lock()

    def open(self, layout: Layout, sample: Sample | None = None) -> Iterator[Batch]:
        """The batches of ``layout``, in order; ``sample`` draws where a portion has a rate.

        Checks everything that can be checked before a row is used.
        """
        if not self._unopened.acquire(blocking=False):
            raise SecondPassError(
                "This stream was opened already. A plan pays for one pass over its rows: make a new stream for a new "
                "run, and "
                "charge both runs to one Account if they see the same people."
            )
        try:
            self._check(layout)
            if layout.portions is not None:
                self._check_portions(layout.portions)
        except BaseException:
            self._unopened.release()  # nothing was read: it may be opened with a plan that fits
            raise
        return self._batches(layout) if layout.portions is None else self._portions(layout.portions, sample)

    def _check(self, layout: Layout) -> None:
        if layout.adjacency == "add-remove":
            raise InvalidArgument(
                "adjacency='add-remove' needs rows that choose their round by themselves: here batches are cut by "
                "position, "
                "and deleting one row would shift every later batch. Use stream(X, y, ids=...), or "
                "adjacency='zero-out'."
            )

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        raise InvalidArgument(
            "This algorithm decides by itself how many rows each round sees, and these rows can only be cut as the "
            "plan says. Use stream(X, y)."
        )

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        raise NotImplementedError

    def _portions(self, portions: Sequence[Portion], sample: Sample | None) -> Iterator[Batch]:
        raise NotImplementedError


class ArrayStream(Stream):
    """Rows of arrays in memory (or memory-mapped), batch after batch."""

    def __init__(self, features: NDArray[Any], labels: NDArray[Any], non_finite: str) -> None:
        super().__init__()
        self._features, self._labels, self._non_finite = features, labels, non_finite
        self.rows_available = len(labels)

    def _check(self, layout: Layout) -> None:
        super()._check(layout)
        self._check_rows(layout)

    def _check_rows(self, layout: Layout) -> None:
        _check_width(self._features, layout)
        if self._non_finite == "error":
            _check_values(self._features, self._labels, layout)

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        for step in range(layout.rounds):
            first = step * layout.batch_size
            yield Batch(step, self._chunks(first, min(first + layout.batch_size, len(self._labels))))

    def _chunks(self, first: int, last: int) -> Iterator[Chunk]:
        rows = _chunk_rows(self._features, _VIEW_BYTES)
        for start in range(first, last, rows):
            stop = min(start + rows, last)
            self.rows_read = (self.rows_read or 0) + stop - start
            yield self._features[start:stop], self._labels[start:stop]

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        """Any portion will do: the rows stay at hand."""

    def _portions(self, portions: Sequence[Portion], sample: Sample | None) -> Iterator[Batch]:
        for step, portion in enumerate(portions):
            last = min(portion.last, len(self._labels))
            self.rows_read = max(self.rows_read or 0, last)
            if portion.rate < 1.0:
                if sample is None:
                    raise InvalidArgument("Portions with a rate need the run's own sample(step, rows, rate).")
                yield Batch(step, Again(partial(self._sampled, step, portion, sample)))
            else:
                yield Batch(step, Again(partial(self._views, min(portion.first, last), last)))

    def _views(self, first: int, last: int) -> Iterator[Chunk]:
        rows = _chunk_rows(self._features, _VIEW_BYTES)
        for start in range(first, last, rows):
            stop = min(start + rows, last)
            yield self._features[start:stop], self._labels[start:stop]

    def _sampled(self, step: int, portion: Portion, sample: Sample) -> Iterator[Chunk]:
        positions = portion.first + sample(step, portion.rows, portion.rate)
        yield from self._picked(positions[positions < len(self._labels)])

    def _picked(self, positions: NDArray[np.int64]) -> Iterator[Chunk]:
        rows = _chunk_rows(self._features, _COPY_BYTES)
        for start in range(0, len(positions), rows):
            picked = positions[start : start + rows]
            yield self._features[picked], self._labels[picked]


class HashedStream(ArrayStream):
    """Rows that choose their round by a hash of their id, so that no row's place depends on another row.

    Batch sizes then vary and stay secret; every denominator is the public B.
    """

    rows_read = None

    def __init__(self, features: NDArray[Any], labels: NDArray[Any], ids: Sequence[Any], non_finite: str) -> None:
        super().__init__(features, labels, non_finite)
        self.rows_available = None
        self._ids = ids

    def _check(self, layout: Layout) -> None:
        if layout.adjacency != "add-remove":
            raise InvalidArgument(
                "Rows with ids choose their round by themselves, which is what adjacency='add-remove' is for; the "
                "plan has "
                f"{layout.adjacency!r}. Plan with 'add-remove' (the noise of 'zero-out'), or leave the ids out."
            )
        self._check_rows(layout)

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        salt = bytes.fromhex(layout.digest)
        rounds = np.array([_round_of(identity, salt, layout.rounds) for identity in self._ids], dtype=np.int64)
        order = np.argsort(rounds, kind="stable")
        edges = np.searchsorted(rounds[order], np.arange(layout.rounds + 1))
        for step in range(layout.rounds):
            yield Batch(step, self._picked(order[edges[step] : edges[step + 1]]))

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        raise InvalidArgument(
            "adjacency='add-remove' is for algorithms with fresh batches of one size: here rounds see rows by "
            "position, and deleting one row would shift the others. Plan with 'zero-out' and use stream(X, y)."
        )


class ChunkStream(Stream):
    """Rows from an iterable of (features, labels) chunks of any size; the iterable is read as far as needed."""

    def __init__(self, chunks: Iterable[Any]) -> None:
        super().__init__()
        self._source = iter(chunks)
        self.fast = bool(getattr(chunks, "fast", False))  # an iterable may say so of itself
        self._kept: list[Chunk] = []
        self._width: int | None = None
        self._sparse: bool | None = None

    def open(self, layout: Layout, sample: Sample | None = None) -> Iterator[Batch]:
        batches = super().open(layout, sample)
        self._width = layout.width
        if not self._fill():
            raise DataError("The stream is empty: no row was found. Check the source; nothing was spent.")
        return batches

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

    def _portions(self, portions: Sequence[Portion], sample: Sample | None) -> Iterator[Batch]:
        for step, portion in enumerate(portions):
            yield Batch(step, self._chunks(portion.rows))

    def _chunks(self, size: int) -> Iterator[Chunk]:
        left = size
        while left and self._fill():
            rows = self._whole(left) or min(_chunk_rows(self._kept[-1][0], _COPY_BYTES), left)
            features, labels = self._take(rows)
            left -= len(labels)
            self.rows_read = (self.rows_read or 0) + len(labels)
            yield features, labels

    def _whole(self, left: int) -> int:
        """Rows, in whole units, that the chunk at hand holds by itself: they need no copy."""
        features, labels = self._kept[-1]
        unit = _chunk_rows(features, 0)
        return left if len(labels) >= left else len(labels) // unit * unit

    def _take(self, rows: int) -> Chunk:
        """Exactly ``rows`` rows, fewer only at the end of the source."""
        parts: list[Chunk] = []
        wanted = rows
        while wanted and self._fill():
            features, labels = self._kept.pop()
            if len(labels) > wanted:
                self._kept.append((features[wanted:], labels[wanted:]))
                features, labels = features[:wanted], labels[:wanted]
            parts.append((features, labels))
            wanted -= len(labels)
        if len(parts) == 1:
            return parts[0]
        join: Any = CsrRows.joined if is_sparse(parts[0][0]) else np.concatenate
        return join([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _fill(self) -> bool:
        """Have a chunk with at least one row at hand, if the source still has one."""
        while not self._kept:
            try:
                item = next(self._source)
            except StopIteration:
                return False
            features, labels = _chunk(item)
            self._width = self._width or features.shape[1]
            if features.shape[1] != self._width:
                raise DataError(_width_message(features.shape[1], self._width))
            if self._sparse not in (None, is_sparse(features)):
                raise DataError(
                    "Expected the chunks of the stream to be all dense or all sparse. Convert those that differ."
                )
            self._sparse = is_sparse(features)
            if len(labels):
                self._kept.append((features, labels))
        return True


def stream(
    data: Any, labels: ArrayLike | None = None, *, ids: Sequence[Any] | None = None, non_finite: str = "error"
) -> Stream:
    """Rows to train on, once.

    ``stream(X, y)``
        arrays, in their order; checked up front for shape and finite values. X may be a sparse matrix of SciPy,
        which is read as CSR.
    ``stream(X, y, ids=ids)``
        each row's round is a hash of its id: the form that ``adjacency="add-remove"`` needs.
    ``stream(chunks)``
        any iterable of (X, y) chunks or (row, label) pairs, read lazily and in order; memory does not grow
        with its length. A row that is not finite or has an unknown label counts as a zero row. A chunk of
        another width, or that is not numbers, is an error of the source and stops the run.

    ``non_finite="zero"`` lets non-finite rows of arrays count as zero rows too, without a look ahead: an
    error is a data-dependent outcome, and this removes it.
    """
    one_of("non_finite", non_finite, ("error", "zero"))
    if labels is None and not _is_matrix(data):
        if ids is not None:
            raise InvalidArgument("ids go with arrays: stream(X, y, ids=ids).")
        return ChunkStream(data)
    features, targets = _arrays(data, labels)
    if ids is None:
        if not len(targets):
            raise DataError("X is empty: no row was found. Nothing was spent.")
        return ArrayStream(features, targets, non_finite)
    if len(ids) != len(targets):
        raise InvalidArgument("Expected one id for each row of X; their numbers differ.")
    return HashedStream(features, targets, ids, non_finite)


def _is_matrix(data: Any) -> bool:
    return getattr(data, "ndim", None) == 2


def _arrays(data: Any, labels: ArrayLike | None) -> Chunk:
    try:
        features: Any = CsrRows.of(data) if is_sparse(data) else np.asarray(data)
        targets = np.zeros(len(features)) if labels is None else np.asarray(labels)
    except DataError:
        raise
    except (ValueError, TypeError, OverflowError):
        raise DataError("Expected X and y to be numeric arrays of one shape: rows of equal width.") from None
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise DataError(
            f"Expected X to be a numeric array of shape (rows, features), got {features.dtype} {features.shape}."
        )
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1 or targets.dtype.kind not in "fiub":
        raise DataError(
            f"Expected y to be a numeric vector, got {targets.dtype} {targets.shape}. Map labels to numbers first."
        )
    if len(targets) != len(features):
        raise DataError(f"Expected one label a row, got {len(targets)} labels for {len(features)} rows.")
    return features, targets


def _chunk(item: Any) -> Chunk:
    try:
        features, labels = item
        features = CsrRows.of(features) if is_sparse(features) else np.asarray(features)
    except DataError:
        raise
    except (TypeError, ValueError):
        raise DataError("Expected the stream to yield pairs (features, labels) of numbers.") from None
    if features.ndim == 1:
        features, labels = features[None, :], np.atleast_1d(labels)
    return _arrays(features, labels)


def _check_width(features: NDArray[Any], layout: Layout) -> None:
    if layout.width is not None and features.shape[1] != layout.width:
        raise DataError(_width_message(features.shape[1], layout.width))


def _width_message(got: int, wanted: int) -> str:
    return f"Expected rows of {wanted} features (problem.dimension={wanted}), got {got}. Fix the data or the problem."


def _check_values(features: NDArray[Any], labels: NDArray[Any], layout: Layout) -> None:
    remedy = "Clean them, or pass stream(..., non_finite='zero') to count such rows as zero rows. Nothing was spent."
    rows = _chunk_rows(features, _LOOK_BYTES)
    parts = (features[start : start + rows] for start in range(0, len(labels), rows))
    if not all(in_order((partial(_finite, part) for part in parts), available_threads())):
        raise DataError(f"X has values that are NaN or infinite. {remedy}")
    if not np.all(np.isfinite(labels)):
        raise DataError(f"y has values that are NaN or infinite. {remedy}")
    loss = layout.labels
    if loss is not None and not np.all(loss.valid(labels)):
        raise DataError(f"y has labels that the {loss.kind} loss cannot take: expected {loss.labels_are}. {remedy}")


def _finite(part: Any) -> bool:
    """Whether every value is finite; a finite sum says so at the speed of memory."""
    values = part.values if isinstance(part, CsrRows) else part
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.sum(values))) or bool(np.all(np.isfinite(values)))


def _chunk_rows(features: Any, limit: int) -> int:
    """Rows of a chunk of such features: whole units, about ``limit`` bytes of float64 and at least one."""
    sparse = isinstance(features, CsrRows)
    unit = CHUNK_ROWS if sparse else chunk_multiple(features.shape[1])
    width = features.mean_width if sparse else features.shape[1]
    return max(1, limit // (8 * width * unit)) * unit


def _round_of(identity: Any, salt: bytes, rounds: int) -> int:
    """Round of a row: a keyed hash of its id, uniform over the rounds, a function of nothing else."""
    if isinstance(identity, np.generic):
        identity = identity.item()
    if not isinstance(identity, (int, str, bytes)):
        raise InvalidArgument("Expected every id to be an int, a str or bytes: a row's round is a hash of it.")
    data = repr(identity).encode()
    return int.from_bytes(hashlib.blake2b(data, key=salt[:32], digest_size=16).digest(), "little") % rounds
