"""A custom convex loss from start to end: Poisson regression in JAX, planned, audited, trained.

    python examples/poisson_regression.py
    dpsco audit examples/poisson_regression.py:oracle --dimension 6

The loss of a row is exp(m) - y m with m = <a, x> + log-exposure, m held below 3 so that it has a slope bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import dpsco
from dpsco.cli import main as command

FEATURES, LARGEST, CEILING = 6, 20.0, 3.0


def loss(x: Any, row: Any) -> Any:
    """Return exp(m) - y m for m < 3, its tangent beyond; counts above 20 count as 20."""
    a, count = row
    m, y = a @ x, jnp.clip(count, 0.0, LARGEST)
    inside = jnp.minimum(m, CEILING)
    return jnp.exp(inside) * (1.0 + m - inside) - y * m


def oracle() -> Any:
    """Return the oracle, for ``dpsco audit``."""
    return dpsco.jax.oracle(loss, np.zeros(FEATURES))


def people(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows in the unit ball and counts of a known distribution."""
    rng = np.random.default_rng(seed)
    truth = np.array([1.0, -0.8, 0.6, 0.0, 0.4, 0.5])
    features = rng.normal(size=(n, FEATURES))
    features[:, -1] = 1.0
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features, rng.poisson(np.exp(features @ truth)).astype(float), truth


def main() -> None:
    passed = command(["audit", f"{Path(__file__).resolve()}:oracle", "--dimension", str(FEATURES), "--clip", "3"]) == 0
    features, counts, truth = people(60_000, seed=0)
    asked = oracle()
    # On the ball of radius 3 a slope is at most max(e^3, 20), far above usual slopes: a clip of 3 scales few rows. The
    # curvature is at most e^3 and usually about e. Utility depends on these guesses; privacy does not.
    custom = dpsco.CustomLoss(given_lipschitz=3.0, given_smoothness=float(np.e))
    problem = dpsco.Problem(custom, dpsco.L2Ball(3.0), dimension=asked.size)
    plan = dpsco.plan(problem, n=len(counts), budget=dpsco.Budget(epsilon=1.0, delta=1e-6))
    result = dpsco.train(plan, dpsco.stream(features, counts), oracle=asked, start=asked.start)
    print(f"\naudit passed: {passed}\n{plan.rounds} rounds of {plan.batch_size} rows at epsilon 1")
    print("  learned", np.round(asked.weights(result.model), 2))
    print("  truth  ", truth)


if __name__ == "__main__":
    main()
