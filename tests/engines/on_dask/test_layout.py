"""Spans cover each round once, begin at whole units, and hang on shards that are read once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsco.engines.dask import layout
from dpsco.engines.dask.layout import Order, open_round, shards_of, spans_of
from dpsco.rows.shuffle import shuffled

FILES = st.lists(st.lists(st.integers(0, 50), max_size=5), min_size=1, max_size=5)


@given(FILES, st.integers(1, 12), st.integers(1, 70), st.integers(1, 9), st.integers(0, 40), st.integers(1, 90))
def test_spans_cut_every_round_at_whole_units(groups, rounds, size, unit, shuffle, shard_rows) -> None:
    files = [(f"f{k}", tuple(rows)) for k, rows in enumerate(groups)]
    total = sum(map(sum, groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "SHARD_BYTES", shard_rows)
        shards = shards_of(files, row_bytes=1)
    read = [(path, group) for shard in shards for path, part, _ in shard.parts for group in part]
    assert len(read) == len(set(read))
    assert [shard.start for shard in shards] == [0, *(shard.stop for shard in shards[:-1])][: len(shards)]
    assert (shards[-1].stop if shards else 0) == total
    order = Order(total, shuffle)
    bounds = [(t * size, (t + 1) * size) for t in range(rounds)]
    found = spans_of(shards, bounds, order, unit)
    assert len(found) == rounds
    freed: list[int] = []
    for step, (spans, (first, last)) in enumerate(zip(found, bounds, strict=True)):
        places = [place for span in spans for place in range(span.start, span.stop)]
        assert places == list(range(first, min(last, total)))
        for span in spans:
            assert span.step == step
            assert (span.start - first) % unit == 0
            assert not set(freed) & set(span.shards)
            sources = (
                {s for a, b in order.stretches(span.start, span.stop) for s in order.source(a, b)}
                if shuffle
                else {*range(span.start, span.stop)}
            )
            held = {row for k in span.shards for row in range(shards[k].start, shards[k].stop)}
            assert sources <= held
            freed += span.frees
    assert sorted(freed) == sorted({k for spans in found for span in spans for k in span.shards})
    gone: set[int] = set()
    for step, (spans, (first, last)) in enumerate(zip(found, bounds, strict=True)):  # one round at a time
        alone = open_round(shards, step, first, last, order, unit)
        assert [(s.step, s.start, s.stop, s.shards) for s in alone] == [
            (s.step, s.start, s.stop, s.shards) for s in spans
        ]
        for span in alone:
            assert not gone & set(span.shards)
            gone |= set(span.frees)
    assert gone <= set(freed)


@given(st.integers(1, 300), st.integers(1, 70), st.integers(0, 3))
def test_the_order_is_that_of_a_stream_in_one_process(total, shuffle, seed) -> None:
    rows = np.arange(total)
    streamed = np.concatenate([labels for _, labels in shuffled([(rows[:, None], rows)], shuffle, seed)])
    order = Order(total, shuffle, seed)
    assert np.concatenate([order.source(a, b) for a, b in order.stretches(0, total)]).tolist() == streamed.tolist()


def test_a_row_group_larger_than_a_shard_is_a_shard() -> None:
    groups = [10, 3 * layout.SHARD_BYTES, 10, 10]
    assert [shard.stop - shard.start for shard in shards_of([("f", groups)], 1)] == [10, 3 * layout.SHARD_BYTES, 20]


def test_a_shard_lends_no_more_than_half_a_unit_without_a_shuffle() -> None:
    shards = shards_of([("f", [layout.SHARD_BYTES] * 9)], 1)
    spans = [span for spans in spans_of(shards, [(0, shards[-1].stop)], Order(shards[-1].stop), 4096) for span in spans]
    assert len(spans) == len(shards)
    for span, shard in zip(spans, shards, strict=True):
        assert span.home == shard.number
        assert abs(span.stop - shard.stop) <= 2048
