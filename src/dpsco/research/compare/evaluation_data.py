"""The data that methods are compared on: the reference problem at any size, or the rows of a file.

The minimiser of the reference problem lies inside the set or, with ``optimum_norm`` above ``radius``, outside it.
Tuning and scoring never share data. Simulated rows have different seeds for each role. A file is split into two
halves, one per role, before anything else happens.

Guarantee
---------
Data depend on the setting, the role and the number of the replicate alone.

Cost
----
The last eight data sets stay in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.accounting.budget import Budget
from dpsco.datasets import ReferenceProblem, reference_problem
from dpsco.problem import L2Ball, Logistic, Problem
from dpsco.query import Array
from dpsco.research.compare.file_data import FileData

__all__ = [
    "ROLES",
    "Rows",
    "Setting",
    "gradient_at_optimum",
    "non_private_excess",
    "optimal_rate",
    "rows_for",
]

ROLES = {"tuning": 1_000, "scoring": 2_000}
"""The seed of replicate 0 per role. Replicate i adds i."""

MOST_REPLICATES = 1_000


@dataclass(frozen=True)
class Setting:
    """A problem, its number of rows and its budget; delta is n^-1.1."""

    n: int
    dimension: int = 50
    epsilon: float = 1.0
    radius: float = 10.0
    optimum_norm: float = 5.0
    """Norm of the population minimiser; above ``radius`` it lies outside the set."""
    fresh: int = 100_000
    file: FileData | None = None

    @property
    def problem(self) -> Problem:
        """The problem to train on."""
        if self.file is not None:
            return self.file.problem
        return Problem(Logistic(), L2Ball(self.radius), self.dimension)

    @property
    def budget(self) -> Budget:
        """The privacy budget."""
        return Budget(self.epsilon, self.n**-1.1)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to train on, and a function that measures parameters on other rows."""

    features: Any
    labels: NDArray[Any]
    measure: Callable[[Array], dict[str, float]]


@lru_cache(maxsize=8)
def rows_for(setting: Setting, role: str, replicate: int) -> Rows:
    """Return the rows of one replicate of one role."""
    if setting.file is not None:
        return Rows(*setting.file.split(role, replicate))
    seed = ROLES[role] + replicate
    data = reference_problem(
        setting.n, setting.dimension, optimum_norm=setting.optimum_norm, fresh=setting.fresh, seed=seed
    )
    least = 0.0
    if setting.optimum_norm > setting.radius:
        least = data.excess_risk(constrained_optimum(data, setting.radius, setting.fresh))
    return Rows(data.features, data.labels, lambda x: {"score": data.excess_risk(x) - least})


def constrained_optimum(data: ReferenceProblem, radius: float, fresh: int) -> Array:
    """Return the minimiser of the risk over the ball: grad F(x) + lam x = 0 and |x| = radius.

    The population minimiser must lie outside the ball. Newton's method solves for x and lam together, with lam on the
    scale of 1/|x| (Moré and Sorensen).
    """
    rows, _ = data.fresh(fresh)
    truth = _sigmoid(rows @ data.optimum)
    x = radius * data.optimum / np.linalg.norm(data.optimum)
    lam = 0.0
    for _ in range(100):
        share = _sigmoid(rows @ x)
        gradient = rows.T @ (share - truth) / len(rows)
        if lam == 0.0:
            lam = float(-(gradient @ x)) / radius**2
        norm = float(np.linalg.norm(x))
        if np.linalg.norm(gradient + lam * x) < 1e-10 and abs(norm - radius) < 1e-10 * radius:
            break
        hessian = (rows * (share * (1 - share))[:, None]).T @ rows / len(rows) + lam * np.eye(len(x))
        move, drift = np.linalg.solve(hessian, np.stack([-(gradient + lam * x), -x], axis=1)).T
        # Solve |x + move + change * drift| = radius on the scale where it is nearly linear in lam.
        target = x + move
        size = float(np.linalg.norm(target))
        change = (size - radius) / radius * size**2 / float(-(target @ drift))
        lam, x = max(lam + change, lam / 10), target + change * drift
    return radius * x / np.linalg.norm(x)


def gradient_at_optimum(setting: Setting) -> float:
    """Return |grad F| at the minimiser over the set; 0 if the population minimiser lies inside it."""
    data = reference_problem(10, setting.dimension, optimum_norm=setting.optimum_norm, fresh=setting.fresh, seed=0)
    rows, _ = data.fresh(setting.fresh)
    x = constrained_optimum(data, setting.radius, setting.fresh)
    slope = _sigmoid(rows @ x) - _sigmoid(rows @ data.optimum)
    return float(np.linalg.norm(rows.T @ slope)) / len(rows)


def non_private_excess(setting: Setting) -> float:
    """Return p / 2n: to first order, the excess of the best unbiased estimate without privacy."""
    return setting.dimension / (2 * setting.n)


def optimal_rate(setting: Setting) -> float:
    """Return L R (1 / sqrt(n) + sqrt(p) / (mu n)): the order of the least worst-case excess of a private method."""
    problem, n = setting.problem, setting.n
    return problem.lipschitz * problem.radius * (n**-0.5 + math.sqrt(problem.parameters) / (setting.budget.mu * n))


def _sigmoid(scores: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(scores / 2)))
