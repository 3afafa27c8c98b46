"""The rules of plan_network: the noise on a weight, its scale, its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco
from dpsco import Budget, InvalidArgument, plan_network
from dpsco.planning.network_plan import model_noise


@pytest.mark.parametrize(("size", "n", "epsilon"), [(50_890, 20_000, 1.0), (50_890, 20_000, 3.0), (300, 30_000, 0.5)])
def test_the_step_size_leaves_the_noise_of_the_rule_on_each_weight(size, n, epsilon) -> None:
    assert model_noise(plan_network(size, n, Budget(epsilon, 1e-5))) == pytest.approx(0.08, rel=1e-9)


def test_the_noise_of_a_run_is_the_noise_that_the_plan_states() -> None:
    """Zero rows: the trained weights are noise alone. 20,000 of them; the key is fixed."""
    plan = plan_network(20_000, 40, Budget(1.0, 1e-5))
    rows = np.zeros((40, 20_000)), np.zeros(40)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.Everything(), dimension=20_000)
    run = dpsco.train(dpsco.Plan(problem, 40, plan.budget, plan.method), dpsco.stream(*rows), key=bytes(32))
    assert np.std(run.model.coef) == pytest.approx(model_noise(plan), rel=0.03)


def test_few_rows_and_long_initial_weights_lengthen_the_steps() -> None:
    budget = Budget(1.0, 1e-5)
    assert model_noise(plan_network(100, 5_000, budget)) == pytest.approx(0.16)
    assert model_noise(plan_network(100, 20_000, budget, start=np.ones(100))) == pytest.approx(0.5)
    assert plan_network(100, 20_000, budget, start=np.full(100, 0.1)) == plan_network(100, 20_000, budget)


def test_the_noise_is_half_as_long_as_the_weights_tensor_by_tensor_in_the_mean() -> None:
    """1 / r^2 = (300 / 1 + 100 / 0.3^2) / 400; what begins at 0 has no length."""
    start = [np.ones((30, 10)), np.full(100, -0.3), np.zeros(50)]
    found = model_noise(plan_network(450, 20_000, Budget(1.0, 1e-5), start=start))
    assert found == pytest.approx(0.5 * math.sqrt(400 / (300 + 100 / 0.09)))
    zeros = plan_network(450, 20_000, Budget(1.0, 1e-5), start=[np.zeros(450)])
    assert zeros == plan_network(450, 20_000, Budget(1.0, 1e-5))


@pytest.mark.parametrize(
    ("n", "slope", "noise"), [(20_000, 0.5, 0.2), (20_000, 2.0, 0.08), (20_000, 0.01, 0.64), (1_250, 0.5, 0.4)]
)
def test_words_are_given_the_noise_that_moves_the_outputs_by_a_tenth(n, slope, noise) -> None:
    """Between 0.08 and 0.64, doubled at a sixteenth of 20,000 rows; bisection stops at 5 %."""
    plan = plan_network(100, n, Budget(1.0, 1e-5), outputs=lambda deviation: slope * deviation)
    assert model_noise(plan) == pytest.approx(noise, rel=0.05)
    longer = plan_network(100, n, Budget(1.0, 1e-5), start=np.full(100, 2.0), outputs=lambda deviation: deviation)
    assert model_noise(longer) == pytest.approx(max(1.0, 20_000 / n) ** 0.25)


def test_large_budgets_reach_the_longest_step() -> None:
    assert plan_network(100, 30_000, Budget(20.0, 1e-5)).method.step_size == pytest.approx(1.0)
    assert plan_network(100, 30_000, Budget(20.0, 1e-5), clip=4.0).method.step_size == pytest.approx(0.25)
    assert plan_network(100, 30_000, Budget(math.inf, 1e-5)).method.step_size == pytest.approx(1.0)
    assert plan_network(100, 30_000, Budget(math.inf, 1e-5), clip=math.inf).method.step_size == pytest.approx(0.05)


def test_what_is_given_is_taken() -> None:
    method = plan_network(100, 30_000, Budget(1.0, 1e-5), step_size=0.3, clip=2.0, rounds=9).method
    assert (method.step_size, method.clip, method.rounds) == (0.3, 2.0, 9)


def test_the_explanation_states_momentum_and_decay() -> None:
    words = " ".join(plan_network(100, 400, Budget(1.0, 1e-5), step_size=0.3).explain().split())
    assert "step_size = 0.3 on average, falling linearly, momentum = 0.9" in words


def test_only_fixed_steps_have_a_known_noise() -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.Everything(), dimension=3)
    plan = dpsco.Plan(problem, 40, Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    with pytest.raises(InvalidArgument, match="DP-FTRL"):
        model_noise(plan)
