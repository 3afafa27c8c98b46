"""What a plan assumes that clipping costs."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.planning.clip_cost import clip_cost, clip_cost_tables, clip_costs, label_spread

STILL = np.zeros(1)


def both(chance):
    return np.stack([chance, 1 - chance], axis=1), np.full(len(chance), 1 / len(chance))


def test_a_clip_costs_nothing_where_it_cuts_nothing_or_all_labels_alike() -> None:
    chances, weights = both(np.array([0.1, 0.4, 0.8]))
    assert clip_cost(clip_costs(label_spread(chances, weights), 0.0), 1.0, STILL)[0] < 1e-10
    even = clip_costs(label_spread(*both(np.array([0.5, 0.5]))), 0.3)
    assert clip_cost(even, 0.3, STILL)[0] < 1e-10


def test_the_cost_grows_as_the_clip_falls_the_rows_differ_and_the_iterates_move() -> None:
    chances, weights = both(np.linspace(0.02, 0.6, 20))
    table = clip_costs(label_spread(chances, weights), 0.2)
    by_share = [float(clip_cost(table, share, STILL)[0]) for share in (0.4, 0.6, 0.8, 1.0, 1.3)]
    assert by_share == sorted(by_share, reverse=True)
    assert by_share[0] > 10 * by_share[3] > 0
    assert clip_cost(clip_costs(label_spread(chances, weights), 0.6), 1.2, STILL)[0] > clip_cost(table, 1.2, STILL)[0]
    still, moving = clip_cost(table, 0.8, np.array([0.0, 0.5]))
    assert moving > still
    assert moving == pytest.approx(clip_cost(table, 0.8 / np.sqrt(1.5), STILL)[0])


def test_two_classes_of_softmax_cost_what_their_longer_gradients_lose() -> None:
    """A third class without mass changes nothing but the length of the gradients, sqrt 2 times that of one score."""
    chance = np.linspace(0.05, 0.9, 15)
    chances, weights = both(chance)
    three = np.column_stack([chances, np.zeros(len(chance))])
    one, many = (clip_costs(label_spread(rows, weights), 0.1) for rows in (chances, three))
    assert clip_cost(many, 0.6 * np.sqrt(2.0), STILL)[0] == pytest.approx(clip_cost(one, 0.6, STILL)[0], rel=0.05)


@pytest.mark.parametrize(("rate", "signal"), [(-3.0, 1.5), (0.0, 1.5), (-1.5, 1.0)])
def test_the_cost_is_about_the_excess_of_the_minimiser_of_clipped_gradients(rate, signal) -> None:
    """Logistic regression: Newton steps on the mean of clipped gradients, labels averaged out."""
    rng = np.random.default_rng(3)
    p, n = 12, 20_000
    rows = rng.standard_normal((n, p))
    rows[:, -1] = 1.0
    optimum = np.append(rng.standard_normal(p - 1) * signal / np.sqrt(p), rate)
    chance = 1 / (1 + np.exp(-rows @ optimum))
    lengths = np.linalg.norm(rows, axis=1)
    rms = np.sqrt(np.mean(lengths**2))
    x = optimum.copy()
    for _ in range(60):
        q = 1 / (1 + np.exp(-rows @ x))
        one, zero = (np.minimum(1.0, 0.7 * rms / (slope * lengths)) for slope in (1 - q, q))
        mean = chance * one * (q - 1) + (1 - chance) * zero * q
        x -= np.linalg.solve((rows * (q * (1 - q))[:, None]).T @ rows, rows.T @ mean)
    scores, best = rows @ x, rows @ optimum
    found = float(np.mean(np.logaddexp(0, scores) - chance * scores - np.logaddexp(0, best) + chance * best))
    tail = float(np.var(lengths**2) / rms**4)
    table = clip_costs(label_spread(np.stack([chance, 1 - chance], axis=1), np.full(n, 1 / n)), tail)
    assert 0.4 < float(clip_cost(table, 0.7, STILL)[0]) / found < 2.5


def test_tables_of_many_tails_and_chances_are_those_of_each_alone() -> None:
    spreads = [label_spread(*both(np.linspace(low, 0.6, 31))) for low in (0.02, 0.2, 0.5)]
    for tails in ([0.02, 0.3, 1.1], [0.0, 0.4], [0.0, 0.0]):
        tables = clip_cost_tables(spreads, tails)
        alone = np.array([[clip_costs(spread, tail) for spread in spreads] for tail in tails])
        np.testing.assert_array_equal(tables, alone)
