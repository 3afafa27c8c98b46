"""Streams: one pass, in order, T batches of public size."""

from __future__ import annotations

import collections
import math
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.rows.numbered_rows import P, plan, rows

import dpsco
from dpsco import (
    AcceleratedSRGD,
    Budget,
    DataError,
    InvalidArgument,
    L2Ball,
    Plan,
    Problem,
    SecondPassError,
    Squared,
    stream,
    train,
)
from dpsco.query import CHUNK_ROWS


def batches(source: dpsco.Stream, how: Plan) -> list[list[int]]:
    """Numbers of the rows of each batch, in order."""
    out = []
    for batch in source.open(how.layout):
        out.append([int(k) for features, _ in batch.chunks for k in features[:, 0]])
    return out


# --- batches ----------------------------------------------------------------------------------


def chunked(n: int, sizes: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    features, labels = rows(n)
    position = 0
    while position < n:
        for size in sizes:
            yield features[position : position + size], labels[position : position + size]
            position += size


SOURCES = {
    "arrays": lambda n: stream(*rows(n)),
    "one chunk": lambda n: stream([rows(n)]),
    "small chunks": lambda n: stream(chunked(n, [1, 0, 7, 2])),
    "single rows": lambda n: stream(zip(*rows(n), strict=True), items="rows"),
    "lists": lambda n: stream([(list(map(float, a)), int(y)) for a, y in zip(*rows(n), strict=True)], items="rows"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("there", "planned", "rounds"), [(60, 60, 4), (60, 60, 7), (100, 60, 4), (50, 60, 4), (15, 60, 4), (1, 60, 4)]
)
def test_batches_are_consecutive_rows_of_public_size(source: str, there: int, planned: int, rounds: int) -> None:
    """Round t has rows tB .. (t+1)B - 1; missing rows leave it short, surplus rows are never handed out."""
    how = plan(planned, rounds)
    size = planned // rounds
    expected = [[k for k in range(t * size, (t + 1) * size) if k < there] for t in range(rounds)]
    assert batches(SOURCES[source](there), how) == expected


@pytest.mark.parametrize("source", SOURCES)
def test_missing_and_surplus_rows_are_said_in_the_report(source: str) -> None:
    short = train(plan(), SOURCES[source](50)).report
    assert (short.rows_planned, short.rows_missing) == (60, 10)
    exact = train(plan(61, 4), SOURCES[source](61)).report
    assert (exact.rows_planned, exact.rows_missing) == (60, 0)
    if source == "arrays":
        assert exact.rows_unread == 1


def test_the_denominator_is_public_whatever_number_of_rows_comes() -> None:
    """Without noise, half the rows missing gives half the gradient: the sum is divided by B and not by their number."""
    problem = Problem(Squared(label_bound=1.0), L2Ball(1e9), 1)
    how = Plan(
        problem=problem, n=10, budget=Budget(math.inf, 1e-6), method=AcceleratedSRGD(rounds=1, beta=1.0, clip=math.inf)
    )
    full = train(how, stream(np.ones((10, 1)), np.ones(10))).model.coef
    half = train(how, stream(np.ones((5, 1)), np.ones(5))).model.coef
    assert full.tolist() == [1.0]
    assert half.tolist() == [0.5]


def test_chunks_hold_whole_blocks_and_large_batches_come_in_many() -> None:
    """Every chunk of a batch but the last is a multiple of CHUNK_ROWS rows, whatever the source yields."""
    n, width = 3 * CHUNK_ROWS + 17, 64
    features = np.zeros((n, width), dtype=np.float32)
    how = plan(n, 1, width=width)
    pieces = ((features[k : k + 1000], np.zeros(min(1000, n - k))) for k in range(0, n, 1000))
    for source in (stream(features, np.zeros(n)), stream(pieces)):
        sizes = [len(labels) for _, labels in next(iter(source.open(how.layout))).chunks]
        assert sum(sizes) == n
        assert all(size % CHUNK_ROWS == 0 for size in sizes[:-1])


def test_surplus_rows_of_an_iterable_are_never_read() -> None:
    read = []

    def source() -> Iterator[tuple[np.ndarray, int]]:
        for k in range(10**9):
            read.append(k)
            yield np.zeros(P), 0

    train(plan(), stream(source(), items="rows"))
    assert len(read) == 60


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """Peak of a streamed run at 16 times the rows is at most a chunk higher, not 16 times."""

    def peak(n: int) -> int:
        def source() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for _ in range(n // 1000):
                yield np.ones((1000, 20)), np.zeros(1000)

        tracemalloc.start()
        train(plan(n, 4, width=20), stream(source()))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    small, large = peak(32_000), peak(512_000)
    assert large < small + 3_000_000


# --- one pass ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_a_second_pass_is_refused(source: str) -> None:
    data = SOURCES[source](60)
    train(plan(), data)
    with pytest.raises(SecondPassError):
        train(plan(), data)


def test_only_one_of_many_threads_opens_a_stream() -> None:
    data, how = stream(*rows(60)), plan()
    barrier, outcomes = threading.Barrier(8), collections.Counter()

    def attempt() -> None:
        barrier.wait()
        try:
            data.open(how.layout)
            outcomes["opened"] += 1
        except SecondPassError:
            outcomes["refused"] += 1

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"opened": 1, "refused": 7}


def test_a_stream_refused_before_its_first_row_can_be_used_with_a_plan_that_fits() -> None:
    data = stream(*rows(60))
    with pytest.raises(DataError):
        train(plan(width=4), data)
    train(plan(), data)


def test_a_list_of_arrays_is_not_a_stream() -> None:
    with pytest.raises(InvalidArgument, match="stream"):
        train(plan(), rows(60))  # type: ignore[arg-type]


# --- rounds chosen by ids ---------------------------------------------------------------------


def test_a_rows_round_depends_on_its_id_alone() -> None:
    """Delete any row, or shuffle all: everybody else stays in the same round."""
    how = plan(200, 5, adjacency="add-remove")
    features, labels = rows(200)
    ids = [f"id {k}" for k in range(200)]
    rng = np.random.default_rng(0)
    home = {k: t for t, batch in enumerate(batches(stream(features, labels, ids=ids), how)) for k in batch}
    assert len(home) == 200
    assert set(home.values()) == set(range(5))
    for _ in range(20):
        kept = rng.permutation(200)[: rng.integers(1, 200)]
        again = batches(stream(features[kept], labels[kept], ids=[ids[k] for k in kept]), how)
        assert {k: t for t, batch in enumerate(again) for k in batch} == {k: home[k] for k in kept.tolist()}


def test_rounds_by_id_are_uniform_and_another_plan_deals_anew() -> None:
    """N = 20,000 ids over 8 rounds, fixed ids: counts within 6 standard deviations of N/8."""
    n = 20_000
    features, labels = rows(n)
    sizes = []
    for how in (plan(n, 8, adjacency="add-remove"), plan(n, 8, adjacency="add-remove", z_step="listed")):
        dealt = batches(stream(features, labels, ids=range(n)), how)
        assert max(abs(len(batch) - n / 8) for batch in dealt) < 6 * math.sqrt(n / 8)
        sizes.append([len(batch) for batch in dealt])
    assert sizes[0] != sizes[1]


def test_duplicate_ids_share_a_round_and_numpy_ids_are_the_same_as_plain_ones() -> None:
    how = plan(60, 4, adjacency="add-remove")
    features, labels = rows(60)
    dealt = batches(stream(features, labels, ids=["same"] * 60), how)
    assert sorted(map(len, dealt)) == [0, 0, 0, 60]
    plain = batches(stream(features, labels, ids=list(range(60))), how)
    assert plain == batches(stream(features, labels, ids=np.arange(60)), how)


class Nobody:
    pass


@pytest.mark.parametrize("ids", [[Nobody() for _ in range(60)], [1.5] * 60, [None] * 60, [["a"]] * 60])
def test_ids_without_a_stable_text_are_refused(ids: list[Any]) -> None:
    """The default text of an object is its address in memory: rounds would depend on the other rows."""
    with pytest.raises(InvalidArgument, match="id"):
        train(plan(adjacency="add-remove"), stream(*rows(60), ids=ids))


def test_a_wrong_number_of_ids_is_refused_without_saying_how_many_rows_there_are() -> None:
    with pytest.raises(InvalidArgument, match="id") as caught:
        stream(*rows(57), ids=range(59))
    assert "57" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="ids"):
        stream([rows(60)], ids=range(60))


def test_no_row_count_is_public_under_add_remove() -> None:
    for n in (0, 1, 59, 60, 500):
        report = train(plan(adjacency="add-remove"), stream(*rows(n), ids=range(n))).report
        assert (report.rows_planned, report.rows_missing, report.rows_unread) == (60, None, None)
