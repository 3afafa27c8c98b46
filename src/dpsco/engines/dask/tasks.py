"""What a worker does: read a shard, lend rows, sum a span, add sums. Pure functions of their arguments and files.

A task keeps nothing between calls, so a worker that dies costs time only: what it had is computed again, elsewhere, to
the same bits.
Cost: memory of the shard; one read of its row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dpsco.clipping import MappedOracle, Oracle
from dpsco.clipping.compiled import CompiledOracle, finest_grid
from dpsco.clipping.scaled import ScaledOracle
from dpsco.engines.dask.layout import Order, Shard, Span
from dpsco.engines.dask.messages import SensitivePick, SensitiveRows, SensitiveSum
from dpsco.errors import ClusterError, DataError
from dpsco.parallel import one_blas_thread
from dpsco.query import CHUNK_ROWS, Batch, Chunk, Query, chunk_multiple
from dpsco.rows.csr import is_sparse
from dpsco.rows.file_stream import RowForm
from dpsco.rows.readers.parquet import ParquetSource
from dpsco.rows.readers.stamps import CHANGED, Stamp, stamp
from dpsco.rows.rechunk import in_blocks, in_units, stacked

__all__ = ["added", "answer", "load", "part_of", "pick", "unit_of"]


def load(shard: Shard, form: RowForm, unreadable: str, shuffle: int) -> SensitiveRows:
    """Read the rows of ``shard``; a file that cannot be read raises, or (``unreadable="zero"``) gives zero rows."""
    _refuse_to_spill()
    chunks: list[Chunk] = []
    unread: list[tuple[int, int, str]] = []
    start = shard.start
    for place, (path, groups, rows) in enumerate(shard.parts):
        try:
            chunks += _read(path, groups, rows, form, shard.stamps[place : place + 1])
        except DataError:
            if unreadable != "zero":
                raise
            chunks.append(_zero_rows(rows, form))
            unread.append((start, start + rows, path.name))
        start += rows
    if shuffle:  # a chunk for each block, which is what will be gathered from
        chunks = list(in_blocks(chunks, shuffle, first=-shard.start % shuffle))
    return SensitiveRows(shard.start, shard.stop, tuple(chunks), tuple(unread))


def _refuse_to_spill() -> None:
    """Rows and sums stay in memory: a worker that writes results to its disk when that fills up gets none."""
    from distributed import get_worker
    from distributed.spill import SpillBuffer

    try:
        held = get_worker().data
    except ValueError:  # not in a worker
        return
    if isinstance(held, SpillBuffer):
        raise ClusterError(
            "A worker is set to spill to its disk, where rows would stay. Start workers with "
            "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False and DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False."
        )


def _read(path: Any, groups: Sequence[int], rows: int, form: RowForm, known: Sequence[Stamp | None]) -> list[Chunk]:
    """Return rows of one file, which has not changed since it had the ``known`` stamp, if there is one."""
    chunks = [form.encode(table) for table in ParquetSource.read_groups(path, groups, form.numbers, form.texts)]
    if sum(len(labels) for _, labels in chunks) != rows or any(before != stamp(path) for before in known):
        raise DataError(f"The file {path.name!r} {CHANGED}")
    return chunks


def _zero_rows(rows: int, form: RowForm) -> Chunk:
    """Rows without a label, which every oracle counts as zero."""
    labels = np.full(rows, np.nan)
    if not form.columns.sparse:
        return np.zeros((rows, form.columns.width), dtype=np.float32), labels
    from scipy.sparse import csr_matrix

    return csr_matrix((rows, form.columns.width), dtype=np.float32), labels


def pick(rows: SensitiveRows, order: Order, span: Span) -> SensitivePick:
    """Those rows of a shard that ``span`` needs, in the order of their places."""
    if order.shuffle:
        parts = [_mixed(rows, order, start, stop) for start, stop in order.stretches(span.start, span.stop)]
        places = np.concatenate([part.places for part in parts])
        chunks = [(part.features, part.labels) for part in parts]
        unread = tuple(entry for part in parts for entry in part.unread)
    else:
        places = np.arange(max(span.start, rows.start), min(span.stop, rows.stop))
        chunks, unread = list(rows.between(span.start, span.stop)), rows.unread_among(places)
    return SensitivePick(places, stacked([x for x, _ in chunks]), stacked([y for _, y in chunks]), unread)


def answer(
    query: Query, oracle: Oracle, order: Order, span: Span, home: SensitiveRows, *others: SensitivePick
) -> SensitiveSum:
    """Return the clipped sum of the rows of ``span``: those of ``home`` and of its neighbours."""
    _calm()
    unread = [entry for part in others for entry in part.unread]
    rows = _mixed_rows(order, span, home, others, unread) if order.shuffle else _rows(span, home, others, unread)
    features = home.chunks[0][0]
    chunks = in_units(rows, unit_of(features))
    part = part_of(oracle, query) if is_sparse(features) else None
    if part is None:
        clipped = oracle.answer(_of_a_part(query, oracle, features), Batch(query.step, chunks))
    else:
        clipped = part.answer(query, Batch(query.step, chunks))
    absent = sum(rows for _, rows in unread)
    return SensitiveSum(
        clipped.total, clipped.rows - absent, clipped.clipped_rows, clipped.zeroed_rows - absent, tuple(unread)
    )


def added(first: SensitiveSum, second: SensitiveSum) -> SensitiveSum:
    """Return the sum of two: exact on the grid of the query, which both are on."""
    return SensitiveSum(
        first.total + second.total,
        first.rows + second.rows,
        first.clipped_rows + second.clipped_rows,
        first.zeroed_rows + second.zeroed_rows,
        first.unread + second.unread,
    )


def unit_of(features: Any) -> int:
    """Rows that spans of such rows are cut at multiples of; see ``values.chunk_multiple``."""
    return CHUNK_ROWS if is_sparse(features) else chunk_multiple(features.shape[1])


def part_of(oracle: Oracle, query: Query) -> ScaledOracle | None:
    """Return the oracle of a part of a round's sparse rows, whose sums the driver scales; None if it does not."""
    return oracle.of_a_part(query) if isinstance(oracle, MappedOracle) else None


def _of_a_part(query: Query, oracle: Oracle, features: Any) -> Query:
    """Return the query for a part of a round's rows.

    The compiled oracle takes the sparse rows of a round as one block: it sums on the finest grid there is and rounds to
    the query's once. A part is therefore asked for on the finest, and the driver rounds.
    """
    one_block = isinstance(oracle, CompiledOracle) and oracle.loss.outputs == 1 and query.size >= CHUNK_ROWS
    if one_block and is_sparse(features) and (finest := finest_grid(query)) < query.grid:
        return replace(query, grid=finest)
    return query


def _rows(
    span: Span, home: SensitiveRows, others: Sequence[SensitivePick], unread: list[tuple[str, int]]
) -> Iterator[Chunk]:
    """Return the rows of ``span`` in the order of the files."""
    unread += home.unread_among(np.arange(span.start, span.stop))
    yield from ((part.features, part.labels) for part in others if part.places[0] < home.start)
    yield from home.between(span.start, span.stop)
    yield from ((part.features, part.labels) for part in others if part.places[0] >= home.stop)


def _mixed_rows(
    order: Order, span: Span, home: SensitiveRows, others: Sequence[SensitivePick], unread: list[tuple[str, int]]
) -> Iterator[Chunk]:
    """Return the rows of ``span`` in the order of the shuffle, one block at a time."""
    for start, stop in order.stretches(span.start, span.stop):
        own = _mixed(home, order, start, stop)
        unread += own.unread
        yield _merged([own, *(_within(part, start, stop) for part in others)], start, stop)


def _merged(parts: Sequence[SensitivePick], start: int, stop: int) -> Chunk:
    """Rows of several shards, each put at its place."""
    parts = [part for part in parts if len(part.labels)]
    if len(parts) == 1:
        return parts[0].features, parts[0].labels
    labels = np.empty(stop - start)
    for part in parts:
        labels[part.places - start] = part.labels
    if is_sparse(parts[0].features):
        return stacked([part.features for part in parts])[np.argsort(np.concatenate([p.places for p in parts]))], labels
    features = np.empty((stop - start, parts[0].features.shape[1]), dtype=parts[0].features.dtype)
    for part in parts:
        features[part.places - start] = part.features
    return features, labels


def _mixed(rows: SensitiveRows, order: Order, start: int, stop: int) -> SensitivePick:
    """Those rows of a shard that have places ``start`` to ``stop`` of one block."""
    low, high = order.reach(start, stop)
    chunk = next(rows.between(low, high), None)
    if chunk is None:
        features, labels = rows.chunks[0]
        return SensitivePick(np.zeros(0, dtype=np.int64), features[:0], labels[:0])
    source, first = order.source(start, stop), max(low, rows.start)
    here = np.flatnonzero((source >= first) & (source < first + len(chunk[1])))
    own = source[here]
    return SensitivePick(start + here, chunk[0][own - first], chunk[1][own - first], rows.unread_among(own))


def _within(picked: SensitivePick, start: int, stop: int) -> SensitivePick:
    own = slice(*np.searchsorted(picked.places, [start, stop]))
    return SensitivePick(picked.places[own], picked.features[own], picked.labels[own])


@cache
def _calm() -> Any:
    """One BLAS thread from the first task on, for good: tasks run side by side, and its threads change bits."""
    return one_blas_thread()
