"""The reference problem: simulated rows whose population minimiser is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array

__all__ = ["ReferenceProblem", "reference_problem"]


@dataclass(frozen=True, eq=False)
class ReferenceProblem:
    """Logistic regression with a known population minimiser, so that excess risk can be measured.

        a ~ N(0, diag(1/j)), divided by max(1, ||a||);    y ~ Bernoulli(sigmoid(<a, optimum>))

    Parameters
    ----------
    features, labels
        Rows to train on.
    optimum
        The population minimiser.
    """

    features: Array
    labels: NDArray[Any]
    optimum: Array
    _fresh: Array
    _seed: int

    def fresh(self, rows: int) -> tuple[Array, NDArray[Any]]:
        """Return features and labels of ``rows`` rows that are not for training."""
        features = self._fresh[:rows]
        return features, _labels(features, self.optimum, np.random.default_rng([self._seed, 1]))

    @property
    def population_smoothness(self) -> float:
        """0.25 times the largest eigenvalue of E[a a'], estimated on the fresh rows."""
        return 0.25 * float(np.linalg.eigvalsh(self._fresh.T @ self._fresh / len(self._fresh))[-1])

    def excess_risk(self, x: Array) -> float:
        """Return F(x) - F(optimum) over the fresh rows, with the true label probabilities."""
        truth, score = self._fresh @ self.optimum, self._fresh @ x
        probability = _sigmoid(truth)
        risk = np.logaddexp(0.0, score) - probability * score
        best = np.logaddexp(0.0, truth) - probability * truth
        return float(np.mean(risk - best))


def reference_problem(
    n: int = 200_000, dimension: int = 50, *, optimum_norm: float = 5.0, fresh: int = 200_000, seed: int = 0
) -> ReferenceProblem:
    """Return the reference problem.

    Parameters
    ----------
    n
        Number of rows to train on.
    dimension
        Number of features.
    optimum_norm
        Norm of the population minimiser.
    fresh
        Number of rows to measure with.
    seed
        Seed of all rows and labels.

    Returns
    -------
    ReferenceProblem
        The same rows for the same arguments.

    >>> data = reference_problem(n=100, dimension=3, fresh=10)
    >>> data.features.shape, data.excess_risk(data.optimum)
    ((100, 3), 0.0)
    """
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(dimension)
    optimum = optimum_norm * direction / np.linalg.norm(direction)
    scale = 1 / np.sqrt(np.arange(1, dimension + 1))
    rows = rng.standard_normal((n + fresh, dimension)) * scale
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    train = rows[:n]
    labels = _labels(train, optimum, rng)
    return ReferenceProblem(features=train, labels=labels, optimum=optimum, _fresh=rows[n:], _seed=seed)


def _labels(features: Array, optimum: Array, rng: np.random.Generator) -> NDArray[Any]:
    return (rng.random(len(features)) < _sigmoid(features @ optimum)).astype(np.int64)


def _sigmoid(scores: Array) -> Array:
    return 0.5 * (1 + np.tanh(scores / 2))
