"""Who reads what, and which rows a sum is over: decided before the first round, from public numbers alone.

A *shard* is some whole row groups, read once, by one worker. A *span* is a stretch of rows of one round that one worker
sums. Rounds begin anywhere in a row group, and a sum is made of units of rows counted from the start of its round; so a
span ends at the unit nearest to the end of its shard and takes the few rows in between from the neighbour.

Guarantee: the spans of a round are disjoint, cover its rows, and begin at whole units: the blocks that an oracle rounds
to the grid are those of the same round in one process. Nothing here depends on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.readers.stamps import Stamp
from dpsco.rows.shuffle import block_order

__all__ = ["Order", "Shard", "Span", "open_round", "shards_of", "spans_of"]

SHARD_BYTES = 128 << 20
"""Rows of a shard, as they are held: small enough to have several in memory, large enough to be worth a task."""


@dataclass(frozen=True)
class Shard:
    """Rows ``start`` to ``stop`` of all files together."""

    number: int
    start: int
    stop: int
    parts: tuple[tuple[Any, tuple[int, ...], int], ...]
    """(file, its row groups, their rows) in order."""
    stamps: tuple[Stamp | None, ...] = ()
    """What each of the files was when the run began; empty where nobody looked."""


@dataclass(frozen=True)
class Order:
    """In which order the rows of the files are used: as ``data.shuffle.shuffled`` puts them."""

    rows: int
    """All rows of the files."""
    shuffle: int = 0
    seed: int = 0

    def stretches(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Places ``start`` to ``stop``, cut where blocks of the shuffle end."""
        inner = range((start // self.shuffle + 1) * self.shuffle, stop, self.shuffle)
        return list(pairwise([start, *inner, stop]))

    def source(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the row of the files that each place of one stretch of a shuffle is taken from."""
        block = start // self.shuffle
        first = block * self.shuffle
        order = block_order(self.seed, block, min(self.shuffle, self.rows - first))
        return first + order[start - first : stop - first]

    def reach(self, start: int, stop: int) -> tuple[int, int]:
        """Return the rows of the files between which those of these places lie."""
        if not self.shuffle:
            return start, stop
        return start // self.shuffle * self.shuffle, min(self.rows, -(-stop // self.shuffle) * self.shuffle)


@dataclass(frozen=True)
class Span:
    """Places ``start`` to ``stop`` of the order, all in round ``step``."""

    step: int
    start: int
    stop: int
    home: int
    """The shard most of it lies in: it is summed where that shard is."""
    others: tuple[int, ...] = ()
    """Shards that lend it rows."""
    frees: tuple[int, ...] = ()
    """Shards that no later span needs."""

    @property
    def shards(self) -> tuple[int, ...]:
        """All shards that the span needs, its home first."""
        return (self.home, *self.others)


def shards_of(files: Iterable[tuple[Any, Sequence[int]]], row_bytes: int) -> tuple[Shard, ...]:
    """Row groups, in order, gathered to shards of about ``SHARD_BYTES``; a larger group is a shard by itself."""
    shards: list[Shard] = []
    parts: list[tuple[Any, tuple[int, ...], int]] = []
    start = stop = 0

    def close() -> None:
        nonlocal parts, start
        if stop > start:
            shards.append(Shard(len(shards), start, stop, tuple(parts)))
        parts, start = [], stop

    for path, groups in files:
        for group, rows in enumerate(groups):
            if (stop + rows - start) * row_bytes > SHARD_BYTES:
                close()
            if parts and parts[-1][0] == path:
                parts[-1] = (path, (*parts[-1][1], group), parts[-1][2] + rows)
            else:
                parts.append((path, (group,), rows))
            stop += rows
    close()
    return tuple(shards)


def spans_of(
    shards: Sequence[Shard], rounds: Sequence[tuple[int, int]], order: Order, unit: int
) -> tuple[tuple[Span, ...], ...]:
    """Return the spans of each round, the rounds being stretches of places one after the other."""
    ends = [shard.stop for shard in shards]
    cuts = ends if not order.shuffle else [round(end / order.shuffle) * order.shuffle for end in ends]
    spans = []
    for step, (first, last) in enumerate(rounds):
        last = min(last, order.rows)
        near = {first + round((cut - first) / unit) * unit for cut in _between(cuts, first - unit, last + unit)}
        edges = [first, *sorted(cut for cut in near if first < cut < last), last]
        spans.append([_span(step, a, b, shards, ends, order) for a, b in pairwise(edges) if a < b])
    return _with_frees(spans)


def open_round(shards: Sequence[Shard], step: int, first: int, last: int, order: Order, unit: int) -> tuple[Span, ...]:
    """Return the spans of one round whose successors are not known yet: shards with rows for them are kept."""
    (spans,) = spans_of(shards, [(first, last)], order, unit)
    behind, _ = order.reach(last, last + 1)
    return tuple(
        replace(span, step=step, frees=tuple(k for k in span.frees if shards[k].stop <= behind)) for span in spans
    )


def _between(sorted_numbers: Sequence[int], low: int, high: int) -> Sequence[int]:
    left, right = np.searchsorted(sorted_numbers, [low, high])
    return sorted_numbers[int(left) : int(right)]


def _span(step: int, start: int, stop: int, shards: Sequence[Shard], ends: Sequence[int], order: Order) -> Span:
    low, high = order.reach(start, stop)
    first, last = np.searchsorted(ends, [low + 1, high])
    needed = shards[int(first) : int(last) + 1]
    shared = [min(stop, shard.stop) - max(start, shard.start) for shard in needed]
    home = needed[int(np.argmax(shared))].number
    return Span(step, start, stop, home, tuple(shard.number for shard in needed if shard.number != home))


def _with_frees(rounds: Sequence[Sequence[Span]]) -> tuple[tuple[Span, ...], ...]:
    """Note with each span which shards it is the last to need."""
    flat = [span for spans in rounds for span in spans]
    last = {number: place for place, span in enumerate(flat) for number in span.shards}
    noted = [
        Span(s.step, s.start, s.stop, s.home, s.others, tuple(k for k in s.shards if last[k] == place))
        for place, s in enumerate(flat)
    ]
    edges = [0, *accumulate(len(spans) for spans in rounds)]
    return tuple(tuple(noted[a:b]) for a, b in pairwise(edges))
