"""delta_of, epsilon_of and mu_of against 60-digit arithmetic by another formula.

The library evaluates Phi(-a) - exp(epsilon) Phi(-b) with erfc. The reference here is

    delta = phi(a) (R(a) - R(b)),   R(x) = Gamma(1/2, x^2/2) exp(x^2/2) / sqrt(2)   (Mills' ratio),

from exp(epsilon) phi(b) = phi(a); a few points are also integrated numerically over the privacy loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from dpsco import InvalidArgument, compose, delta_of, epsilon_of, group, mu_of

RELATIVE = 1e-9


def exact_delta(mu: float | mpf, epsilon: float | mpf) -> mpf:
    """delta(mu, epsilon) to 60 digits."""
    size = max(1.0, float(epsilon) / float(mu) + float(mu))
    with mpmath.workdps(90 + math.ceil(4 * math.log10(size) + max(0.0, -math.log10(float(mu))))):
        mu, epsilon = mpf(mu), mpf(epsilon)
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        value = mpmath.exp(-a * a / 2) / mpmath.sqrt(2 * mpmath.pi) * (mills(a) - mills(b))
    with mpmath.workdps(60):
        return +value


def mills(x: mpf) -> mpf:
    """(1 - Phi(x)) / phi(x)."""
    tail = mpmath.gammainc(mpf(1) / 2, x * x / 2) * mpmath.exp(x * x / 2) / mpmath.sqrt(2)
    return tail if x >= 0 else mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(x * x / 2) - tail


def points(count: int, seed: int) -> list[tuple[float, float]]:
    """(epsilon, delta) over epsilon 1e-6 .. 700 and delta 1e-300 .. 0.5, log-uniform, corners included."""
    rng = np.random.default_rng(seed)
    epsilons = 10 ** rng.uniform(-6, math.log10(700), count)
    deltas = 10 ** np.where(
        rng.random(count) < 0.5, rng.uniform(-20, math.log10(0.5), count), rng.uniform(-300, 0, count)
    )
    corners = [(e, d) for e in (1e-6, 1.0, 700.0) for d in (1e-300, 1e-5, 0.5)]
    return corners + [(float(e), float(min(d, 0.5))) for e, d in zip(epsilons, deltas, strict=True)]


def check_point(epsilon: float, delta: float) -> None:
    """mu_of is the largest safe mu and epsilon_of the smallest safe epsilon, to ``RELATIVE``; both on the safe side."""
    mu = mu_of(epsilon, delta)
    assert exact_delta(mu, epsilon) <= mpf(delta) < exact_delta(mu * (1 + RELATIVE), epsilon), (epsilon, delta)
    back = epsilon_of(mu, delta)
    assert exact_delta(mu, back) <= mpf(delta) < exact_delta(mu, back * (1 - RELATIVE)), (epsilon, delta)
    forward = delta_of(mu, epsilon)
    truth = exact_delta(mu, epsilon)
    # Below 2.2e-308 floats are subnormal and lose relative precision by themselves.
    assert truth <= mpf(forward) <= truth * (1 + RELATIVE) + mpf(2) ** -1073, (epsilon, delta)


def test_the_reference_agrees_with_an_integral_over_the_privacy_loss() -> None:
    """delta = E max(0, 1 - exp(epsilon - loss)), loss ~ N(mu^2/2, mu^2): a third way, by quadrature."""
    with mpmath.workdps(40):
        for mu, epsilon in ((0.27, 1.0), (1.0, 0.0), (1.5, 4.0), (3.0, 12.0), (0.01, 0.02)):
            m, e = mpf(mu), mpf(epsilon)

            def density(loss: mpf, m: mpf = m, e: mpf = e) -> mpf:
                return (1 - mpmath.exp(e - loss)) * mpmath.npdf(loss, m * m / 2, m)

            integral = mpmath.quad(density, [e, e + m, e + 3 * m, e + 10 * m, e + 40 * m])
            assert abs(integral / exact_delta(mu, epsilon) - 1) < mpf(10) ** -20


def test_accounting_matches_60_digits_and_stays_on_the_safe_side() -> None:
    for epsilon, delta in points(250, seed=14):
        check_point(epsilon, delta)


@pytest.mark.slow
def test_accounting_matches_60_digits_on_10000_points(mark_figure: Callable[[int, str], None]) -> None:
    tried = points(10_000, seed=15)
    for epsilon, delta in tried:
        check_point(epsilon, delta)
    mark_figure(14, f"{len(tried):,} of {len(tried):,} points within {RELATIVE:.0e}, all on the safe side")


def test_delta_matches_60_digits_for_any_pair_of_mu_and_epsilon() -> None:
    """Covers tiny mu (all digits cancel in float64), large mu and epsilon = 0."""
    for mu in (1e-12, 1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0):
        for ratio in (0.0, 1e-9, 1e-3, 0.5, 1.0, 5.0, 20.0):
            truth, value = exact_delta(mu, mu * ratio), delta_of(mu, mu * ratio)
            if truth < 1:
                assert truth <= mpf(value) <= truth * (1 + RELATIVE), (mu, ratio)


def test_delta_is_a_probability() -> None:
    assert delta_of(50.0, 0.0) <= 1.0
    assert delta_of(1e3, 1.0) <= 1.0


def test_known_values() -> None:
    """The analytic Gaussian mechanism's sigma = 3.730632 at (1, 1e-5); the paper's conversion needs 34 % more."""
    assert 1 / mu_of(1.0, 1e-5) == pytest.approx(3.730632, rel=1e-6)
    assert math.sqrt(2 * math.log(2.5 / 1e-5)) * mu_of(1.0, 1e-5) == pytest.approx(1.336, abs=2e-3)


def test_infinite_and_generous_budgets() -> None:
    assert mu_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert delta_of(math.inf, 1.0) == 1.0
    assert delta_of(1.0, math.inf) == 0.0
    assert epsilon_of(0.1, 0.5) == 0.0  # total variation alone is below delta


def test_composition_is_never_below_the_exact_root_of_the_sum_of_squares() -> None:
    rng = np.random.default_rng(3)
    cases = [
        np.exp(rng.normal(scale=scale, size=rng.integers(1, 8))).tolist()
        for scale in (0.1, 1.0, 8.0)
        for _ in range(3000)
    ]
    cases += [[1e-200], [1e-200, 1e-200], [1e-170] * 50, [1.0, 1e-9]]
    for mus in cases:
        exact = sum(Fraction(mu) ** 2 for mu in mus)
        total = compose(*mus)
        assert Fraction(total) ** 2 >= exact, mus
        assert Fraction(total) ** 2 <= exact * (1 + Fraction(1, 10**14)), mus
    assert compose() == 0.0


def test_group_privacy_is_never_below_the_exact_product() -> None:
    rng = np.random.default_rng(4)
    for mu in rng.uniform(0.01, 3.0, 500).tolist():
        for records in (1, 2, 3, 7, 10, 1000):
            exact = Fraction(mu) * records
            assert exact <= Fraction(group(mu, records)) <= exact * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize(
    "call",
    [
        lambda: mu_of(0.0, 1e-5),
        lambda: mu_of(-1.0, 1e-5),
        lambda: mu_of(math.nan, 1e-5),
        lambda: mu_of(1.0, 0.0),
        lambda: mu_of(1.0, 1.0),
        lambda: mu_of(1.0, math.nan),
        lambda: mu_of(True, 1e-5),
        lambda: mu_of("1", 1e-5),
        lambda: epsilon_of(0.0, 1e-5),
        lambda: epsilon_of(1.0, 2.0),
        lambda: delta_of(1.0, -1.0),
        lambda: delta_of(1.0, math.nan),
        lambda: compose(-1.0, 1.0),
        lambda: compose(math.nan),
        lambda: group(1.0, 0),
        lambda: group(-1.0, 2),
    ],
)
def test_impossible_numbers_are_refused(call: object) -> None:
    with pytest.raises(InvalidArgument):
        call()  # type: ignore[operator]


@pytest.mark.slow
def test_epsilon_is_never_above_a_privacy_loss_distribution_accountant() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    for mu in (0.1, 0.3, 1.0, 2.0, 4.0):
        pessimistic = pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-4)
        for delta in (1e-3, 1e-5, 1e-7):
            ours, theirs = epsilon_of(mu, delta), pessimistic.get_epsilon_for_delta(delta)
            assert ours <= theirs * (1 + 1e-9)
            assert ours >= theirs - 1e-3  # not far below either: their grid is 1e-4 wide
