"""The search widens a grid whose minimum lies on its edge, and always spends the same budget."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dpsco.research.compare.pattern_search import GridPoint, PatternSearch


def searched(
    score: Callable[[GridPoint], float], *, knobs: int, choices: tuple[int, ...] = (), budget: int
) -> PatternSearch:
    search = PatternSearch(knobs, choices, budget)
    while points := search.ask():
        for point in points:
            assert point not in search.scores
            search.tell(point, score(point))
    return search


@pytest.mark.parametrize("optimum", [-9.3, -2.0, 0.0, 0.4, 5.7, 11.0])
def test_a_minimum_outside_the_first_grid_is_reached_and_bracketed(optimum: float) -> None:
    search = searched(lambda point: (point.exponents[0] - optimum) ** 2, knobs=1, budget=16)
    assert abs(search.best.exponents[0] - optimum) <= 0.25
    assert search.edges == (False,)


def test_an_optimum_beyond_the_budget_is_reported_at_the_edge() -> None:
    search = searched(lambda point: -point.exponents[0], knobs=1, budget=5)
    assert search.edges == (True,)
    assert search.best.exponents[0] == max(point.exponents[0] for point in search.scores)


@pytest.mark.parametrize("optimum", [0.0, 1.0, 6.0, math.inf])
def test_every_search_spends_exactly_its_budget(optimum: float) -> None:
    def score(point: GridPoint) -> float:
        if math.isinf(optimum):
            return math.inf  # everything is refused
        return abs(point.exponents[0] - optimum) + 0.1 * point.places[0]

    assert len(searched(score, knobs=1, choices=(2,), budget=13).scores) == 13


def test_two_knobs_and_a_choice_are_searched_together() -> None:
    def score(point: GridPoint) -> float:
        a, b = point.exponents
        return (a - 3) ** 2 + (b + 2) ** 2 + (a - 3) * (b + 2) + (point.places[0] != 1)

    search = searched(score, knobs=2, choices=(2,), budget=30)
    assert search.best == GridPoint((3.0, -2.0), (1,))
    assert search.edges == (False, False)


def test_refused_configurations_count_as_worse_and_never_win() -> None:
    """A step that a proof does not allow: the optimum is the largest that it does, bracketed by the refusal."""
    search = searched(lambda p: math.inf if p.exponents[0] > 1 else -p.exponents[0], knobs=1, budget=12)
    assert search.best.exponents == (1.0,)
    assert search.edges == (False,)


def test_a_search_replays_from_its_scores() -> None:
    def score(point: GridPoint) -> float:
        return (point.exponents[0] - 3.3) ** 2 + math.sin(9 * point.exponents[0])

    first, again = (searched(score, knobs=1, budget=14) for _ in range(2))
    assert list(first.scores) == list(again.scores)
