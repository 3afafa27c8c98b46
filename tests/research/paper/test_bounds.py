"""The paper's utility bounds, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from dpsco.research.paper.bounds import excess_population, excess_population_simplified, independent_gradients


def test_excess_population_bound_at_one_round() -> None:
    """T = 1: eta_0 = 1, eta_{0:0} = 1, eta_{0:1} = 3, s = sqrt(3 ln(6/gamma))."""
    s = math.sqrt(3 * math.log(60))
    terms = 2 * 2 * s * (5 + 2 * s / 3) / (3 * 7) + 3 * 2 * s * 0.5 / 3 + 2 * 4 * s / 3 + 3 * 7 * 0.5 * 4 + 7 * 0.25
    expected = terms / 3 + 7 * 16 / 3
    found = excess_population(rounds=1, batch_size=9, beta=7.0, Q=2.0, gradient=5.0, noise=0.5, diameter=4.0, gamma=0.1)
    assert found == pytest.approx(expected, rel=1e-12)


def test_simplified_bound_by_hand() -> None:
    numbers = {"rounds": 4, "beta": 2.0, "S": 3.0, "lipschitz": 5.0, "noise": 0.5, "diameter": 6.0}
    summed = (15 + 9) * 2 / 2 + 18 / 2 + 8 * 0.5 + 2 * 0.5 * 6 / 4
    assert excess_population_simplified(**numbers) == pytest.approx(summed + 2 * 36 / 16)
    printed = (15 + 9) / (2 * 2) + 18 / 8 + 8 * 0.5 / 4 + 2 * 0.5 * 6 / 16 + 2 * 36 / 16
    assert excess_population_simplified(**numbers, printed=True) == pytest.approx(printed)


def test_independent_gradient_bound_divides_the_noise_term() -> None:
    """T = 2: sums 1 and 3, eta_{0:2} = 6; the term 3 beta b R counts once per round, not eta_{0:t} times."""
    found = independent_gradients(rounds=2, batch_size=4, beta=2.0, lipschitz=1.0, noise=0.5, diameter=3.0)
    first = 8 / 4 + 5 * 0.5 + 3 * 2 * 0.5 * 3 + 2 * 0.25
    second = 3 * (8 / 4 + 5 * 0.5 / 2 + 2 * 0.25 / 4) + 3 * 2 * 0.5 * 3
    assert found == pytest.approx((first + second) / 6 + 2 * 9 / 6)
