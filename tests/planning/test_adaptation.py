"""beta from released values: finds the curvature, never leaves its bounds, and is silent when noise hides it."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest

import dpsco
from dpsco.methods.adaptive_beta import adapted_beta
from dpsco.planning.choose import plan as chosen

plan = partial(chosen, survey="none")

PROBLEM = dpsco.Problem(loss=dpsco.Huber(), domain=dpsco.L2Ball(radius=10.0), dimension=30)


def hand(n: int = 10**7, epsilon: float = 1.0, beta: float = 1.0) -> dpsco.Plan:
    return dpsco.Plan(
        problem=PROBLEM,
        n=n,
        budget=dpsco.Budget(epsilon=epsilon, delta=1e-7),
        method=dpsco.AcceleratedSRGD(
            rounds=16, beta=beta, clip=1.0, z_step="listed", mechanism="workload", adaptive=True
        ),
    )


def run(made: dpsco.Plan, h: np.ndarray, adaptive: bool, seed: int = 0) -> tuple[float, list[float]]:
    """Algorithm 1 on 1/2 sum h (x - far)^2 with the plan's own privacy noise: excess and the betas used."""
    rng = np.random.default_rng(seed)
    far = 3.0 * np.ones_like(h) / math.sqrt(h.size)
    sigma = made.schedule.calibration.sigma
    noise = sigma * made.schedule.mechanism.decoder() @ rng.standard_normal((made.rounds, h.size))
    x = z = before = last = np.zeros_like(h)
    beta, betas = made.method.beta, []
    for t in range(made.rounds):
        nabla = h * (x - far) + noise[t] / (made.batch_size * (t + 1))
        if adaptive and t:
            beta = adapted_beta(made.schedule, t, beta, x=x, x_before=before, nabla=nabla, nabla_before=last)
        betas.append(beta)
        z = z - (t + 1) / beta * nabla
        y = x - nabla / beta
        tau = 2 / (t + 3)
        x, before, last = (1 - tau) * y + tau * z, x, nabla
    return 0.5 * float(np.sum(h * (y - far) ** 2)), betas


@pytest.mark.parametrize("spectrum", ["isotropic", "fading", "spiked"])
def test_beta_settles_just_above_the_curvature(spectrum: str) -> None:
    i = np.arange(1.0, 31.0)
    h = {"isotropic": np.full(30, 1 / 30), "fading": 0.25 / i, "spiked": np.where(i == 1, 0.5, 0.5 / i / 3)}[spectrum]
    made = hand()
    excess, betas = run(made, h, adaptive=True)
    fixed, _ = run(made, h, adaptive=False)
    assert 0.7 * np.max(h) < betas[-1] < 1.5 * np.max(h)
    assert excess < (0.2 if spectrum == "isotropic" else 1.0) * fixed
    assert betas[0] == made.method.beta
    assert all(a <= b for a, b in itertools.pairwise(betas[1:]))


def test_beta_stays_when_noise_hides_the_curvature() -> None:
    made = hand(n=3_000, epsilon=0.1)
    _, betas = run(made, np.full(30, 1 / 30), adaptive=True)
    assert min(betas) > 0.5 * made.method.beta


def test_beta_never_leaves_its_bounds() -> None:
    made = hand()
    rng = np.random.default_rng(1)
    for scale in (1e-8, 1.0, 1e8):
        x, before, now, last = (scale * rng.standard_normal(30) for _ in range(4))
        for sign in (1, -1):
            beta = adapted_beta(made.schedule, 1, 1.0, x=x, x_before=before, nabla=sign * now, nabla_before=last)
            assert made.method.beta / 64 <= beta <= made.method.beta
    assert adapted_beta(made.schedule, 3, 0.3, x=x, x_before=x, nabla=now, nabla_before=last) == 0.3


def test_without_privacy_there_is_nothing_to_doubt() -> None:
    made = dpsco.Plan(
        problem=PROBLEM,
        n=1600,
        budget=dpsco.Budget(epsilon=math.inf, delta=1e-6),
        method=dpsco.AcceleratedSRGD(rounds=16, beta=1.0, clip=math.inf, adaptive=True),
    )
    _, betas = run(made, np.full(30, 0.1), adaptive=True)
    assert betas[1] == pytest.approx(0.12)


def test_the_planner_adapts_where_few_rounds_meet_unknown_curvature() -> None:
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=50)
    budget = dpsco.Budget(epsilon=1.0, delta=1e-6)
    few, many = (plan(problem, n=200_000, budget=budget, rounds=T) for T in (16, 128))
    assert (few.method.adaptive, few.method.z_step) == (True, "listed")
    assert "curvature that released values" in " ".join(few.explain().split())
    assert not many.method.adaptive
    assert dpsco.Plan.from_json(few.to_json()) == few
    assert many.predicted_excess < few.predicted_excess
