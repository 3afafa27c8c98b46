"""The response is Algorithm 1 on a quadratic, transcribed here and run once for each unit of noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.algorithm_1 import response


def final_iterate(q: float, rounds: int, z_step: str, start: float, noise: np.ndarray) -> float:
    """Algorithm 1 with f(x) = q x^2 / 2, beta = 1, and ``noise`` on the sums of eta_t times gradients."""
    x = y = z = start
    divisor = 1.0 if z_step == "listed" else 2.0
    for t in range(rounds):
        eta = t + 1.0
        gradient = (eta * q * x + noise[t]) / eta
        z = z - eta / divisor * gradient
        y = x - gradient
        tau = (eta + 1.0) / sum(s + 1.0 for s in range(t + 2))
        x = (1.0 - tau) * y + tau * z
    return y


@pytest.mark.parametrize("z_step", ["halved", "listed"])
@pytest.mark.parametrize("rounds", [1, 2, 7, 30])
def test_decay_and_gains_are_those_of_a_run(z_step: str, rounds: int) -> None:
    ratios = [0.0, 1e-3, 0.2, 1.0]
    decay, gains = response(ratios, rounds, z_step)
    assert gains.shape == (4, rounds)
    for k, q in enumerate(ratios):
        assert decay[k] == pytest.approx(final_iterate(q, rounds, z_step, 1.0, np.zeros(rounds)), abs=1e-12)
        runs = [final_iterate(q, rounds, z_step, 0.0, unit) for unit in np.eye(rounds)]
        assert gains[k] == pytest.approx(np.array(runs), abs=1e-12)
