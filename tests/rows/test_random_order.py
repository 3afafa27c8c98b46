"""Random batches of rows: a partition, whatever the cuts, and as random as a permutation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpsco.rows.random_order import Permutation, Positions, RandomOrder, adjacent_rows, ranks_of


def order(rows: int, seed: int = 0, adjacent: int = 1) -> RandomOrder:
    return RandomOrder(rows, np.random.default_rng(seed), adjacent)


@pytest.mark.parametrize(
    ("rows", "adjacent"),
    [(1, 1), (7, 1), (3000, 1), (200_000, 1), (700_000, 1), (1, 4), (7, 2), (3000, 7), (200_000, 64)],
)
def test_batches_part_the_rows_and_are_ascending(rows: int, adjacent: int) -> None:
    ranks = order(rows, adjacent=adjacent)
    for size in (1 + rows // 40, rows // 3 + 1, rows):
        batches = [ranks.batch(k, min(k + size, rows)) for k in range(0, rows, size)]
        assert [len(batch) for batch in batches] == [min(size, rows - k) for k in range(0, rows, size)]
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(rows))
        assert all(np.all(np.diff(batch) > 0) for batch in batches)


@pytest.mark.parametrize("adjacent", [1, 3])
def test_a_batch_is_the_union_of_its_parts_also_among_equal_keys(adjacent: int) -> None:
    """200,000 groups share 65,536 keys: almost every cut is among equal keys."""
    ranks = order(200_000 * adjacent, adjacent=adjacent)
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


@pytest.mark.parametrize("rows", [1003, 50_000])
def test_rows_of_a_group_have_consecutive_ranks(rows: int) -> None:
    """1003 rows in groups of 5: the last one has 3, wherever its rank is."""
    ranks = order(rows, adjacent=5)
    ranked = np.concatenate([ranks.batch(k, k + 1) for k in range(1003 if rows == 1003 else 300)])
    group = ranked // 5
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    assert len(set(group[begins].tolist())) == len(begins)  # no group comes twice
    sizes = np.diff(begins)
    assert np.all((sizes == 5) | ((sizes == 3) & (group[begins[:-1]] == rows // 5)))
    assert all(np.array_equal(part, np.sort(part)) for part in np.split(ranked, begins[1:]))


def test_a_batch_has_its_share_of_every_part_of_the_table() -> None:
    """Of each 16 neighbouring groups about as many: also of a table that is sorted. Random ones would differ by 2.4."""
    ranks = order(64 * 16 * 8, adjacent=8)
    for first, share in ((0, 5.0), (512 * 3, 4.0), (700, 2.5)):
        picked = ranks.batch(first, first + int(512 * share))
        groups = np.bincount(picked // (16 * 8), minlength=64) / 8
        assert np.max(np.abs(groups - share)) < 2.0
        assert np.std(groups) < 0.6


def test_groups_are_in_random_order() -> None:
    """Each of 8 groups is first equally often, within five deviations."""
    firsts = [int(order(40, seed, adjacent=5).batch(0, 1)[0]) for seed in range(2000)]
    counts = np.bincount(np.array(firsts) // 5, minlength=8)
    assert np.max(np.abs(counts - 250)) < 5 * np.sqrt(250)
    assert np.all(np.array(firsts) % 5 == 0)


def test_large_tables_have_groups_of_two_pages() -> None:
    assert adjacent_rows(1_000_000, 256) == 32
    assert adjacent_rows(1_000_000, 1024) == 8
    assert adjacent_rows(1_000_000, 100_000) == 1
    assert adjacent_rows(100_000, 256) == 1


def test_positions_are_as_they_are() -> None:
    assert np.array_equal(Positions(9).batch(2, 5), [2, 3, 4])
    assert len(Positions(9)) == 9


def test_small_tables_have_one_permutation() -> None:
    small = ranks_of(500, 160, np.random.default_rng(0))
    assert isinstance(small, Permutation)
    parts = [small.batch(first, first + 100) for first in range(0, 500, 100)]
    assert np.array_equal(np.concatenate(parts), small.batch(0, 500))
    assert sorted(small.batch(0, 500).tolist()) == list(range(500))
    assert isinstance(ranks_of(10_000, 160, np.random.default_rng(0)), RandomOrder)
    assert type(ranks_of(500, 160, None)) is Positions
