"""Theorems 1 and 2 to the letter, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

import dpsco
from dpsco.planning.choose import plan
from dpsco.planning.method_costs import method_costs
from dpsco.planning.theorems import c_dp, rows_needed, theorem_1, theorem_2

PROBLEM = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=100)


def budget(n: float, epsilon: float = 1.0) -> dpsco.Budget:
    return dpsco.Budget(epsilon=epsilon, delta=1 / n)


def test_theorem_1_at_powers_of_two() -> None:
    """n = 2^40, delta = 2^-40: log2 n = 40, ln(2n/delta) = 81 ln 2, ln(2.5/delta) = ln 2.5 + 40 ln 2."""
    n = 2**40
    settings = theorem_1(PROBLEM, n, budget(n))
    c = 4 * math.sqrt(2) * 40**1.5 * math.sqrt(81 * math.log(2)) * (math.log(2.5) + 40 * math.log(2))
    assert settings.c_dp == pytest.approx(c, rel=1e-12)
    assert settings.rounds == pytest.approx(c * 1024, rel=1e-12)
    assert settings.batch_size == pytest.approx(2**30 / c, rel=1e-12)
    assert settings.beta == pytest.approx(c**2 / 10, rel=1e-12)  # L = 1, R = 10, sqrt(p) < epsilon sqrt(n)
    assert settings.clip == pytest.approx(c, rel=1e-12)
    sigma = c * math.sqrt(math.log2(c * 1024) * math.log(2.5 * n)) / (2**30 / c * c**2 / 10)
    assert settings.printed_sigma == pytest.approx(sigma, rel=1e-9)
    # Many dimensions: beta grows by sqrt(p) / (epsilon sqrt(n)).
    wide = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=2**44)
    assert theorem_1(wide, n, budget(n, 0.5)).beta == pytest.approx(c**2 / 10 * 8, rel=1e-12)


def test_printed_sigma_of_theorem_1_is_too_small_for_its_own_tree() -> None:
    """The tree needs c_DP L sqrt(1 + ceil(log2 T)) / mu; the printed sigma with the paper's mu is short of it."""
    n = 10**30
    settings = theorem_1(PROBLEM, n, budget(n))
    assert settings.printed_sigma < settings.needed_sigma


def test_c_dp_is_vacuous_at_real_sizes() -> None:
    assert c_dp(60_000, 1 / 60_000) > 1e4
    settings = theorem_1(PROBLEM, 60_000, budget(60_000))
    assert settings.rounds > 60_000
    assert settings.batch_size < 1
    assert not settings.trainable
    text = " ".join(settings.explain().split())
    assert "Vacuous: T exceeds n" in text
    assert 1e5 < rows_needed(budget(60_000), 60_000, 1.0) < 1e7
    assert rows_needed(budget(60_000), 60_000, 0.5) > 1e25


def test_rows_needed_is_where_the_settings_turn() -> None:
    n = rows_needed(budget(60_000), 60_000, 1.0)
    assert not theorem_1(PROBLEM, int(n * 0.99), budget(n * 0.99)).trainable
    assert theorem_1(PROBLEM, int(n * 1.01), budget(n * 1.01)).trainable


def test_theorem_1_refuses_to_train_without_rows_and_says_why() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="Vacuous") as caught:
        plan(PROBLEM, n=60_000, budget=budget(60_000), rule="theorem-1")
    assert "rule='response'" in str(caught.value)


def test_theorem_1_can_be_planned_where_every_round_has_rows() -> None:
    n = 10**9
    made = plan(PROBLEM, n=n, budget=budget(n), rule="theorem-1")
    settings = theorem_1(PROBLEM, n, budget(n))
    assert made.rounds == math.ceil(settings.rounds)
    assert made.batch_size == n // made.rounds
    method = made.method
    assert (method.beta, method.clip, method.mechanism) == (settings.beta, settings.clip, "tree")
    assert made.schedule.calibration.sigma >= settings.clip * made.schedule.mechanism.sensitivity / made.budget.mu
    assert "Fails: the rate" in made.explain()


def test_theorem_1_fixes_its_own_rounds() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="c_DP"):
        plan(PROBLEM, n=10**9, budget=budget(10**9), rule="theorem-1", rounds=16)


def test_theorem_2_by_hand() -> None:
    """n = 10^4: B = T = 100, c_M = M R / L = 2.5, beta = 48 * 10^6 / (10 * 10^4) = 480, clip 24."""
    settings = theorem_2(PROBLEM, 10_000, budget(10_000))
    assert (settings.rounds, settings.batch_size, settings.clip) == (100.0, 100.0, 24.0)
    assert settings.beta == pytest.approx(480.0)
    sigma = 48 * math.sqrt(2) * math.sqrt(math.log2(100) * math.log(25_000)) / (1.0 * 100 * 480)
    assert settings.printed_sigma == pytest.approx(sigma)
    assert settings.printed_sigma > settings.needed_sigma  # the second corollary prints enough
    assert all(condition.holds for condition in settings.conditions)
    made = plan(PROBLEM, n=10_000, budget=budget(10_000), rule="theorem-2")
    assert (made.rounds, made.batch_size) == (100, 100)
    assert (made.method.beta, made.method.clip, made.method.mechanism) == (480.0, 24.0, "tree")


def test_theorem_2_takes_more_rounds_and_no_fewer() -> None:
    made = plan(PROBLEM, n=10_000, budget=budget(10_000), rule="theorem-2", rounds=1000)
    assert made.rounds == 1000
    assert made.method.beta == pytest.approx(48 * 1e6 / (10 * 100))
    with pytest.raises(dpsco.InvalidArgument, match="between 100 and"):
        plan(PROBLEM, n=10_000, budget=budget(10_000), rule="theorem-2", rounds=50)


def test_theorems_need_a_bounded_domain_and_a_budget() -> None:
    free = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.Everything(), dimension=10)
    with pytest.raises(dpsco.InvalidArgument, match="bounded"):
        plan(free, n=10_000, budget=budget(10_000), rule="theorem-2")
    with pytest.raises(dpsco.InvalidArgument, match="epsilon"):
        plan(PROBLEM, n=10_000, budget=dpsco.Budget(epsilon=math.inf, delta=1e-5), rule="theorem-1")
    with pytest.raises(dpsco.InvalidArgument, match="memory"):
        plan(PROBLEM, n=10_000, budget=budget(10_000), rule="theorem-2", memory=1e9)


def test_methods_of_table_1() -> None:
    made = plan(PROBLEM, n=10**8, budget=budget(10**8), survey="none")
    lines = {line.name: line for line in method_costs(made)}
    assert lines["this plan"].rounds == made.rounds
    assert lines["this plan"].bytes_per_round == 2400
    assert lines["Accelerated-DP-SRGD, Theorem 1"].rounds == pytest.approx(100)
    assert lines["Accelerated-DP-SRGD, Theorem 2"].rounds == pytest.approx(10_000)
    assert lines["Phased-SGD"].rounds == 10**8
    assert not lines["localized AC-SA"].one_pass


@pytest.mark.parametrize(("n", "p", "mu", "steps"), [(10_000, 20, 0.2367, 9441), (60_000, 100, 0.2105, 56_356)])
def test_snowball_takes_nearly_n_steps_when_p_is_small(n: int, p: int, mu: float, steps: int) -> None:
    """Against the largest T whose batches ceil(sqrt(p) / (mu sqrt(T - t + 1))) add up to n."""
    from dpsco.planning.method_costs import _snowball

    a = math.sqrt(p) / mu
    total, T = 0, 0
    while total <= n:
        T += 1
        total += math.ceil(a / math.sqrt(T))
    assert _snowball(n, a) == pytest.approx(T - 1, rel=0.05)
    assert pytest.approx(steps, rel=0.02) == T - 1
