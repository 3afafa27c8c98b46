"""The numbers behind docs/errata.md."""

from __future__ import annotations

import math

import pytest

import dpsco


@pytest.mark.parametrize(("rounds", "short"), [(16, 1.58), (64, 1.53), (256, 1.50)])
def test_erratum_1_the_printed_sigma_is_too_small(rounds: int, short: float) -> None:
    epsilon, delta, clip = 1.0, 1e-5, 1.0
    printed = clip * math.sqrt(math.log2(rounds) * math.log(2.5 / delta)) / epsilon
    lemma = clip * math.sqrt(1 + math.ceil(math.log2(rounds))) / (epsilon / math.sqrt(2 * math.log(2.5 / delta)))
    assert lemma / printed == pytest.approx(short, abs=0.005)
    tree = dpsco.mechanism("tree", horizon=rounds)
    assert dpsco.delta_of(clip * tree.sensitivity / printed, epsilon) > 3 * delta


@pytest.mark.parametrize(("epsilon", "more"), [(0.1, 1.62), (1.0, 1.34), (4.0, 1.15)])
def test_erratum_2_the_conversion_is_loose(epsilon: float, more: float) -> None:
    delta = 1e-5
    assert dpsco.mu_of(epsilon, delta) / (epsilon / math.sqrt(2 * math.log(2.5 / delta))) == pytest.approx(
        more, abs=0.01
    )


@pytest.mark.parametrize(("epsilon", "times"), [(12.0, 2.9), (16.0, 16.6), (20.0, 78.0)])
def test_erratum_2_the_conversion_is_then_unsound(epsilon: float, times: float) -> None:
    delta = 1e-5
    mu = epsilon / math.sqrt(2 * math.log(2.5 / delta))
    assert dpsco.delta_of(mu, epsilon) / delta == pytest.approx(times, rel=0.02)


def test_erratum_3_c_dp_is_vacuous_at_sixty_thousand_rows() -> None:
    n = 60_000
    delta = 1 / n
    c_dp = 4 * math.sqrt(2) * math.log(n) ** 1.5 * math.sqrt(math.log(2 * n / delta)) * math.log(2.5 / delta)
    assert c_dp > 1e4
    assert c_dp * n**0.25 > n
