"""The driver's half: sends the query of a round to where the rows are, and adds up what comes back.

    driver    query ->        <- one sum a span        release, step
    worker    load shards ahead | pick rows at the edges | answer

Shards are read in their order, so many ahead of the span that is waited for as the cluster has room: while a round is
summed, released and stepped, the shards of the next are being read.
Guarantee: sums on the grid are exact in any order; they are added in the order of the spans, so that a run without
noise repeats its bits as well. Neither the number of workers nor what became of them changes the result.
Cost: a worker holds a few shards; the driver a few p-vectors; p numbers cross the network a span
(those of the moment in a survey), and the map of the rows crosses it once per round and worker.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpsco.clipping import Oracle
from dpsco.clipping.survey import sum_length
from dpsco.engines.dask import tasks
from dpsco.engines.dask.layout import Span
from dpsco.engines.dask.stream import ShardStream, SpanBatch
from dpsco.errors import ClusterError, DpscoError, InvalidArgument
from dpsco.query import Batch, Clipped, Query, to_grid

__all__ = ["DaskOracle"]

_FIRST, _LATER = 1, 0  # a sum that the driver waits for goes before reading ahead


class DaskOracle:
    """Answers queries with the workers of ``client``; ``oracle`` is what each of them uses, until another is set."""

    def __init__(self, client: Any, stream: ShardStream, oracle: Oracle) -> None:
        self._client, self._stream, self.oracle = client, stream, oracle
        self._run = uuid.uuid4().hex[:12]  # runs that share a scheduler share no keys
        self._loads: dict[int, Any] = {}
        self._next = self._queries = 0

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Return the clipped sum of one round, added up over its spans on the cluster."""
        if not isinstance(batch, SpanBatch):
            raise InvalidArgument(
                "A DaskOracle answers from the shards of its own stream: use dpsco.engines.dask.train."
            )
        with _told_plainly():
            return self._answer(query, batch.spans)

    def _answer(self, query: Query, spans: Sequence[Span]) -> Clipped:
        # A task rather than scattered data: if the worker that holds it dies, Dask makes it again.
        self._queries += 1
        name = f"query-{self._run}-{self._queries}"
        asked = self._client.submit(_same, (query, self.oracle), key=name, priority=_FIRST)
        ahead = self._ahead()
        total = Clipped(np.zeros(sum_length(query)), 0)
        todo, waiting = deque(spans), deque[tuple[Span, Any]]()
        while todo or waiting:
            while todo and len(waiting) < ahead:
                waiting.append((todo[0], self._submit(asked, todo.popleft())))
            self._read_up_to(waiting[0][0].home + ahead)
            span, future = waiting.popleft()
            part = future.result()
            total += part.clipped()
            self._note(part.unread)
            for number in span.frees:
                del self._loads[number]
        total.total = to_grid(total.total, query.grid)  # sparse rows are summed on a finer one
        return total

    def close(self) -> None:
        """Let go of everything on the workers."""
        self._loads.clear()

    def _ahead(self) -> int:
        """How many shards the workers may hold: one for each thread, two for each worker."""
        return max(2, sum(max(2, threads) for threads in self._client.nthreads().values()))

    def _submit(self, asked: Any, span: Span) -> Any:
        self._read_up_to(max(span.shards))
        order, name = self._stream.rows.order, f"{self._run}-{span.start}"
        lent = [
            self._client.submit(
                tasks.pick, self._loads[k], order, span, key=f"pick-{name}-{k}", priority=_FIRST, pure=False
            )
            for k in span.others
        ]
        return self._client.submit(
            tasks.answer,
            asked,
            order,
            span,
            self._loads[span.home],
            *lent,
            key=f"answer-{name}",
            priority=_FIRST,
        )

    def _read_up_to(self, number: int) -> None:
        rows = self._stream.rows
        for shard in rows.shards[self._next : number + 1]:
            self._loads[shard.number] = self._client.submit(
                tasks.load,
                shard,
                rows.form,
                rows.unreadable,
                rows.order.shuffle,
                key=f"load-{self._run}-{shard.number}",
                priority=_LATER,
            )
            self._next = shard.number + 1

    def _note(self, unread: Sequence[tuple[str, int]]) -> None:
        for name, rows in unread:
            if rows:
                self._stream.forget(rows)
                logging.getLogger("dpsco").warning("dpsco: %s cannot be read; its rows count as zero rows.", name)


def _same(asked: tuple[Query, Oracle]) -> tuple[Query, Oracle]:
    return asked


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Errors of a worker as they are, those of the cluster as ours."""
    import dask
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):  # a query has long vectors
            yield
    except DpscoError:
        raise
    except KilledWorker:
        raise ClusterError(
            "Several workers died over the same rows: their memory is probably too small for a row group. What was "
            "released is in the checkpoint, if there is one: go on with resume=True and larger workers."
        ) from None
    except (CancelledError, CommClosedError, TimeoutError, OSError):
        raise ClusterError(
            "The connection to the cluster was lost. What was released is in the checkpoint, if there is one: go on "
            "with resume=True once the scheduler is back."
        ) from None
