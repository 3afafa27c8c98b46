"""A replay repeats a run, and the bounds of canaries are what their tests say."""

from __future__ import annotations

import numpy as np
import pytest
from tests.audit import oracles_under_test as oracles
from tests.audit.plans import plan

from dpsco.audit.canary_bounds import independent_bound, power_at_half_noise, universal_bound, wanted_canaries
from dpsco.audit.recording import observe
from dpsco.audit.subject import plan_subject


def test_a_replay_repeats_the_releases_and_is_over_with_its_block() -> None:
    subject = plan_subject(plan(), oracles.gradient)
    rows = np.ones((96, 16)), np.ones(96), np.arange(96)
    first = observe(lambda: subject.run(*rows, False))
    again = observe(lambda: subject.run(*rows, False), first)
    assert np.array_equal(first.released, again.released)
    assert first.visible == again.visible
    fresh = observe(lambda: subject.run(*rows, False))
    assert not np.array_equal(first.released, fresh.released)
    assert "1." not in repr(first)


@pytest.mark.parametrize(("right", "canaries"), [(600, 1000), (990, 1000), (49, 50)])
def test_bounds_stay_below_what_was_seen_and_need_more_without_independence(right: int, canaries: int) -> None:
    from scipy.stats import norm

    lower, universal = independent_bound(right, canaries, 1e-6), universal_bound(right, canaries, 1e-6)
    assert 0 <= universal < lower < 2 * norm.ppf(right / canaries)


def test_clopper_and_pearson_is_an_exact_binomial_test() -> None:
    """At the bound, so many right guesses or more have probability alpha."""
    from scipy.stats import binom, norm

    mu = independent_bound(700, 1000, 1e-6)
    assert binom.sf(699, 1000, norm.cdf(mu / 2)) == pytest.approx(1e-6, rel=1e-6)


def test_the_bound_without_assumptions_holds_for_a_run_that_tells_all_or_nothing() -> None:
    """Guesses that are right all together, with probability a, or all tossed: (0, a)-DP, so mu-GDP for a small mu."""
    from scipy.stats import norm

    alpha = 1e-3  # such a run shows every coin with probability alpha; it is mu-GDP for the mu below
    mu = max(norm.ppf(x + alpha * (1 - x)) - norm.ppf(x) for x in np.linspace(1e-6, 1 - 1e-6, 10_001))
    assert universal_bound(300, 300, alpha) <= mu
    assert independent_bound(300, 300, alpha) > mu


def test_power_is_what_was_asked_for() -> None:
    for mu in (0.3, 0.8, 1.5):
        assert power_at_half_noise(mu, wanted_canaries(mu, 1e-6), 1e-6) == pytest.approx(0.994, abs=0.006)
