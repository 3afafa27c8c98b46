"""Mark 15: how far the library is from a transcription of Algorithm 1, and from the bound on quadratics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.methods.test_algorithm_1 import DOMAINS, NO_NOISE, transcription

import dpsco

pytestmark = pytest.mark.slow

P, N = 6, 240
Note = Callable[[int, str], None]


def test_distance_to_the_transcription(mark_figure: Note) -> None:
    """Logistic loss, every domain, both z-steps, 1 to 48 rounds."""
    rng = np.random.default_rng(15)
    features, labels = rng.standard_normal((N, P)) / math.sqrt(P), (rng.random(N) < 0.5).astype(float)
    largest, runs = 0.0, 0

    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        return (1 / (1 + math.exp(-a @ x)) - y) * a

    for domain, (z_step, c), rounds in itertools.product(
        DOMAINS.values(), (("listed", 1), ("halved", 2)), (1, 2, 8, 48)
    ):
        problem = dpsco.Problem(dpsco.Logistic(), domain, P, feature_norm=2.0)
        plan = dpsco.Plan(
            problem, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=rounds, beta=0.7, clip=math.inf, z_step=z_step)
        )
        model = dpsco.train(plan, dpsco.stream(features, labels)).model.coef
        start = domain.project(np.zeros(P))
        expected = transcription(
            gradient, domain.project, features, labels, rounds=rounds, size=N // rounds, beta=0.7, c=c, x0=start
        )
        largest, runs = max(largest, float(np.max(np.abs(model - expected)))), runs + 1
    assert largest <= 1e-12
    mark_figure(15, f"{runs} runs within {largest:.0e} of the transcription")


def test_share_of_the_bound_on_quadratics(mark_figure: Note) -> None:
    """Every batch holds the same rows, so each gradient is the population's: excess / (2 beta R^2 / T^2)."""
    rng = np.random.default_rng(16)
    worst, problems = 0.0, 0
    for spread, rounds, z_step in itertools.product((1.0, 0.1, 0.01), (1, 2, 5, 16, 64), ("listed", "halved")):
        a = rng.standard_normal((20, P)) * np.geomspace(1, spread, P)
        a /= np.linalg.norm(a, axis=1).max()
        optimum = rng.standard_normal(P)
        labels = a @ optimum
        beta = float(np.linalg.eigvalsh(a.T @ a / 20)[-1])
        loss = dpsco.Squared(label_bound=float(np.abs(labels).max()))
        problem = dpsco.Problem(loss, dpsco.L2Ball(radius=100.0), dimension=P)
        plan = dpsco.Plan(
            problem,
            20 * rounds,
            NO_NOISE,
            dpsco.AcceleratedSRGD(rounds=rounds, beta=beta, clip=math.inf, z_step=z_step),
        )
        stream = dpsco.stream(np.tile(a, (rounds, 1)), np.tile(labels, rounds))
        error = dpsco.train(plan, stream).model.coef - optimum
        excess = 0.5 * float(np.mean((a @ error) ** 2))
        worst = max(worst, excess / (2 * beta * float(optimum @ optimum) / rounds**2))
        problems += 1
    assert worst <= 1
    mark_figure(15, f"{problems} quadratics at {worst:.2f} of 2 beta R^2 / T^2 or below")
