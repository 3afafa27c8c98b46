"""Random batches of rows: a partition, whatever the cuts, and as random as a permutation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpsco.rows.random_order import Positions, RandomOrder


def order(rows: int, seed: int = 0) -> RandomOrder:
    return RandomOrder(rows, np.random.default_rng(seed))


@pytest.mark.parametrize("rows", [1, 7, 3000, 200_000, 700_000])
def test_batches_part_the_rows_and_are_ascending(rows: int) -> None:
    ranks = order(rows)
    for size in (1 + rows // 40, rows // 3 + 1, rows):
        batches = [ranks.batch(k, min(k + size, rows)) for k in range(0, rows, size)]
        assert [len(batch) for batch in batches] == [min(size, rows - k) for k in range(0, rows, size)]
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(rows))
        assert all(np.all(np.diff(batch) > 0) for batch in batches)


def test_a_batch_is_the_union_of_its_parts_also_among_equal_keys() -> None:
    """200,000 rows share 65,536 keys: almost every cut is among equal keys."""
    ranks = order(200_000)
    whole = ranks.batch(1000, 1040)
    ones = np.sort(np.concatenate([ranks.batch(k, k + 1) for k in range(1000, 1040)]))
    assert np.array_equal(whole, ones)
    assert len(ranks.batch(5, 5)) == 0


def test_ranks_are_those_of_sorted_keys() -> None:
    """Keys are counted in blocks, and places of a key are kept where a batch ends: neither moves a row."""
    ranks = order(300_000)
    counts = np.bincount(ranks._keys, minlength=1 << 16)
    assert np.array_equal(ranks._starts, [0, *np.cumsum(counts)])
    cuts = [0, 100_000, 100_007, 250_000, 300_000]
    anew = [order(300_000).batch(first, last) for first, last in itertools.pairwise(cuts)]
    for batch, (first, last) in zip(anew, itertools.pairwise(cuts), strict=True):
        assert np.array_equal(ranks.batch(first, last), batch)


def few_keys(rows: int) -> RandomOrder:
    """An order of 64 keys, so that every batch begins and ends among equal keys."""
    ranks = order(rows)
    ranks._keys %= 64
    ranks._starts = np.concatenate([[0], np.cumsum(np.bincount(ranks._keys, minlength=1 << 16))])
    return ranks


@pytest.mark.parametrize("rows", [300, 20_000])
def test_small_batches_in_any_order_are_those_that_all_rows_would_give(rows: int) -> None:
    """Windows only save time: an order that has made none, and ranks found by sorting, give the same rows."""
    ranks = few_keys(rows)
    ties = (np.random.default_rng([*ranks._seed, k]).permutation(np.flatnonzero(ranks._keys == k)) for k in range(64))
    ranked = np.concatenate(list(ties))
    firsts = np.random.default_rng(1).permutation(np.arange(0, rows - 20, max(1, rows // 50)))
    for first in (*firsts.tolist(), rows - 5, 0):
        last = min(first + 13 + first % 7, rows)
        expected = np.sort(ranked[first:last])
        assert np.array_equal(ranks.batch(first, last), expected)
        assert np.array_equal(few_keys(rows).batch(first, last), expected)
    assert ranks._window is not None


def test_every_row_is_in_every_batch_equally_often_and_with_every_other_row() -> None:
    """Ranks of 4 rows are one of 24 permutations: each within five deviations of its expectation."""
    draws, found = 6000, {}
    for seed in range(draws):
        ranks = order(4, seed)
        told = tuple(int(ranks.batch(k, k + 1)[0]) for k in range(4))
        found[told] = found.get(told, 0) + 1
    assert len(found) == 24
    assert max(abs(count - draws / 24) for count in found.values()) < 5 * np.sqrt(draws / 24)


def test_equal_keys_are_in_random_order() -> None:
    """Were ties decided by position, the earlier of two rows would always have the lower rank."""
    earlier = 0
    for seed in range(400):
        ranks = order(3, seed)
        ranks._keys[:] = 9
        ranks._starts = np.where(np.arange(ranks._starts.size) > 9, 3, 0)
        earlier += int(ranks.batch(0, 1)[0] == 0)
    assert abs(earlier - 400 / 3) < 5 * np.sqrt(400 * 2 / 9)


def test_positions_are_as_they_are() -> None:
    assert np.array_equal(Positions(9).batch(2, 5), [2, 3, 4])
    assert len(Positions(9)) == 9
