"""The driver's half: sends the query of a round to where the rows are, and adds up what comes back.

    driver    query ->        <- one sum a span        release, step
    worker    load shards ahead | pick rows at the edges | answer

Shards are read in their order, so many ahead of the span that is waited for as the cluster has room: while a round is
summed, released and stepped, the shards of the next are being read.
Guarantee: sums on the grid are exact in any order; they are added in the order of the spans, so that a run without
noise repeats its bits as well. Neither the number of workers nor what became of them changes the result.
Cost: a worker holds a few shards; the driver a few p-vectors; p numbers cross the network a span. The many numbers of a
survey's moment are added up on the workers first. The map of the rows crosses the network once per worker. A round is
one message to the scheduler and one back, where its spans are few.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, TypeVar

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
_LONG_QUERY, _LONG_SUM = 1 << 16, 1 << 19  # bytes
_LOOK_AGAIN = 2.0  # seconds; workers come and go

T = TypeVar("T")


class DaskOracle:
    """Answers queries with the workers of ``client``; ``oracle`` is what each of them uses, until another is set."""

    def __init__(self, client: Any, stream: ShardStream, oracle: Oracle) -> None:
        self._client, self._stream, self.oracle = client, stream, oracle
        self._run = uuid.uuid4().hex[:12]  # runs that share a scheduler share no keys
        self._loads: dict[int, Any] = {}
        self._next = self._queries = self._room = 0
        self._looked = -math.inf
        self._sent: tuple[Oracle, Any] | None = None
        self._done: list[Any] = []
        """Results and shards that are used up. Letting go of them is a message, and the next query goes before it."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Return the clipped sum of one round, added up over its spans on the cluster."""
        if not isinstance(batch, SpanBatch):
            raise InvalidArgument(
                "A DaskOracle answers from the shards of its own stream: use dpsco.engines.dask.train."
            )
        with _told_plainly():
            return self._answer(query, batch.spans)

    def _answer(self, query: Query, spans: Sequence[Span]) -> Clipped:
        self._queries += 1
        ahead = self._ahead()
        total = Clipped(np.zeros(sum_length(query)), 0)
        size = ahead if len(spans) <= ahead else max(1, ahead // 2)  # two groups are under way
        todo = deque(spans[k : k + size] for k in range(0, len(spans), size))
        waiting = deque[tuple[Sequence[Span], list[Any]]]()
        while todo or waiting:
            while todo and len(waiting) < 2:
                waiting.append((todo[0], self._submit(query, todo.popleft())))
            self._read_up_to(waiting[0][0][0].home + ahead)
            group, futures = waiting.popleft()
            for part in self._client.gather(futures):
                total += part.clipped()
                self._note(part.unread)
            self._done += [*futures, *(self._loads.pop(number) for span in group for number in span.frees)]
        part = tasks.part_of(self.oracle, query) if self._stream.rows.form.columns.sparse else None
        whole = total.total if part is None else part.whole(query, total.total)
        total.total = to_grid(whole, query.grid)  # sparse rows are summed on a finer one
        return total

    def close(self) -> None:
        """Let go of everything on the workers."""
        self._loads.clear()
        self._done.clear()
        self._sent = None

    def _ahead(self) -> int:
        """How many shards may be read ahead: by each worker with all threads but one, which sums; two at least."""
        if time.monotonic() > self._looked + _LOOK_AGAIN:  # a question to the scheduler
            self._room = max(2, sum(max(2, threads - 1) for threads in self._client.nthreads().values()))
            self._looked = time.monotonic()
        return self._room

    def _oracle(self) -> Any:
        """Return the oracle as the result of a task that lasts: it may hold a map of p x p numbers.

        A task rather than scattered data: if the worker that holds it dies, Dask makes it again.
        """
        if self._sent is None or self._sent[0] is not self.oracle:
            name = f"oracle-{self._run}-{self._queries}"
            self._sent = self.oracle, self._client.submit(_same, self.oracle, key=name, priority=_FIRST)
        return self._sent[1]

    def _submit(self, query: Query, spans: Sequence[Span]) -> list[Any]:
        """Ask for the sums of some spans, all in one message, and return one future for each message that comes back.

        Long sums are added up in pairs on the workers if they are on a grid: additions are exact there, and the pairs
        depend on the number of workers.
        """
        self._read_up_to(max(number for span in spans for number in span.shards))
        oracle, order, graph = self._oracle(), self._stream.rows.order, dict[str, Any]()
        asked: Any = query
        if sum(point.nbytes for point in query.points) > _LONG_QUERY:  # it crosses the network once per worker
            graph[asked := f"query-{self._run}-{self._queries}-{spans[0].start}"] = (_same, query)
        sums = []
        for span in spans:
            name, lent = f"{self._run}-{span.start}", []
            for k in span.others:
                lent.append(f"pick-{name}-{k}")
                graph[lent[-1]] = (tasks.pick, self._loads[k], order, span)
            sums.append(f"answer-{name}")
            graph[sums[-1]] = (tasks.answer, asked, oracle, order, span, self._loads[span.home], *lent)
        while len(sums) > 1 and query.grid > 0 and 8 * sum_length(query) > _LONG_SUM:
            pairs = [sums[k : k + 2] for k in range(0, len(sums), 2)]
            for pair in pairs:
                if len(pair) == 2:
                    graph[f"{pair[0]}+"] = (tasks.added, *pair)
            sums = [pair[0] if len(pair) == 1 else f"{pair[0]}+" for pair in pairs]
        futures: list[Any] = self._client.get(graph, sums, sync=False, priority=_FIRST)
        self._done.clear()
        return futures

    def _read_up_to(self, number: int) -> None:
        """Have the shards up to ``number`` read, all in one message."""
        rows, graph = self._stream.rows, dict[str, Any]()
        shards = rows.shards[self._next : number + 1]
        for shard in shards:
            given = shard, rows.form, rows.unreadable, rows.order.shuffle
            graph[f"load-{self._run}-{shard.number}"] = (tasks.load, *given)
        if graph:
            futures = self._client.get(graph, list(graph), sync=False, priority=_LATER)
            self._loads |= {shard.number: future for shard, future in zip(shards, futures, strict=True)}
            self._next = shards[-1].number + 1

    def _note(self, unread: Sequence[tuple[str, int]]) -> None:
        for name, rows in unread:
            if rows:
                self._stream.forget(rows)
                logging.getLogger("dpsco").warning("dpsco: %s cannot be read; its rows count as zero rows.", name)


def _same(sent: T) -> T:
    return sent


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
