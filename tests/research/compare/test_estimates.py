"""Exponents, means and ratios recover known values; intervals cover them at the stated rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsco.research.compare.estimates import LEVEL, exponent, mean, ratio

SIZES = [1 << k for k in range(12, 19)]


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0, 1.125])
def test_exact_power_laws_are_fitted_exactly(power: float) -> None:
    fit = exponent(SIZES, [3.7 * n**power for n in SIZES])
    assert fit.value == pytest.approx(power, abs=1e-12)
    assert fit.high - fit.low < 1e-9


def test_a_logarithm_shifts_an_exponent_by_what_calculus_says() -> None:
    """d log(n log n) / d log n = 1 + 1 / log n, between its values at both ends."""
    fit = exponent(SIZES, [n * math.log(n) for n in SIZES])
    assert 1 + 1 / math.log(SIZES[-1]) < fit.value < 1 + 1 / math.log(SIZES[0])


def test_intervals_of_noisy_exponents_cover_as_often_as_they_say() -> None:
    """N = 2000 fits at level 0.95: the number that covers lies within 5 standard errors (alpha = 6e-7)."""
    rng = np.random.default_rng(0)
    tries, power = 2000, 0.5
    noise = np.exp(0.1 * rng.standard_normal((tries, len(SIZES))))
    fits = [exponent(SIZES, np.array(SIZES) ** power * row) for row in noise]
    covered = sum(fit.low <= power <= fit.high for fit in fits)
    assert abs(covered - LEVEL * tries) < 5 * math.sqrt(tries * LEVEL * (1 - LEVEL))


def test_intervals_of_means_cover_as_often_as_they_say() -> None:
    """N = 2000 means of 5 at level 0.95, within 5 standard errors (alpha = 6e-7)."""
    rng = np.random.default_rng(1)
    means = [mean(row) for row in 3 + rng.standard_normal((2000, 5))]
    covered = sum(m.low <= 3 <= m.high for m in means)
    assert abs(covered - LEVEL * 2000) < 5 * math.sqrt(2000 * LEVEL * (1 - LEVEL))


def test_ratios_are_paired() -> None:
    """Runs that differ by a common factor have a ratio without spread."""
    difficulty = [1.0, 5.0, 0.2]
    found = ratio([4 * d for d in difficulty], difficulty)
    assert (found.low, found.value, found.high) == pytest.approx((4, 4, 4))


def test_one_run_has_no_interval() -> None:
    assert mean([2.0]).to_list() == [2.0, None, None]
