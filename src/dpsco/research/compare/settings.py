"""What is compared on: the reference problem at any size, the same with its minimiser outside the set, rows of a file.

Tuning and scoring never share data: simulated rows have seeds of their own for each role, and a file is cut into two
halves, one for each role, before anything else.

Guarantee: data depend on the setting, the role and the number of the replicate alone. Cost: the last eight data sets
stay in memory.
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

__all__ = ["ROLES", "Rows", "Setting", "rows_for"]

ROLES = {"tuning": 1_000, "scoring": 2_000}
"""First seed of each role: replicate i has the seed after it by i."""

MOST_REPLICATES = 1_000


@dataclass(frozen=True)
class Setting:
    """A problem with its size and its budget: ``delta`` is n^-1.1."""

    n: int
    dimension: int = 50
    epsilon: float = 1.0
    radius: float = 10.0
    optimum_norm: float = 5.0
    """Above ``radius`` the population's minimiser lies outside the set."""
    fresh: int = 100_000
    file: FileData | None = None

    @property
    def problem(self) -> Problem:
        if self.file is not None:
            return self.file.problem
        return Problem(Logistic(), L2Ball(self.radius), self.dimension)

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.n**-1.1)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to train on, and what a vector of parameters reaches on rows that were not trained on."""

    features: Any
    labels: NDArray[Any]
    measure: Callable[[Array], dict[str, float]]


@lru_cache(maxsize=8)
def rows_for(setting: Setting, role: str, replicate: int) -> Rows:
    """The rows of one replicate of one role."""
    if setting.file is not None:
        return Rows(*setting.file.split(role, replicate))
    seed = ROLES[role] + replicate
    data = reference_problem(
        setting.n, setting.dimension, optimum_norm=setting.optimum_norm, fresh=setting.fresh, seed=seed
    )
    floor = 0.0
    if setting.optimum_norm > setting.radius:
        floor = data.excess_risk(constrained_optimum(data, setting.radius, setting.fresh))
    return Rows(data.features, data.labels, lambda x: {"score": data.excess_risk(x) - floor})


def constrained_optimum(data: ReferenceProblem, radius: float, fresh: int) -> Array:
    """argmin of the risk over the ball, for a minimiser outside it: grad F(x) + lam x = 0 and |x| = radius.

    Newton's method in x and lam together, lam on the scale of 1/|x| (Moré and Sorensen), until the conditions hold.
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
        # |x + move + change * drift| = radius to first order, on the scale where it is nearly linear in lam
        target = x + move
        size = float(np.linalg.norm(target))
        change = (size - radius) / radius * size**2 / float(-(target @ drift))
        lam, x = max(lam + change, lam / 10), target + change * drift
    return radius * x / np.linalg.norm(x)


def gradient_at_optimum(setting: Setting) -> float:
    """|grad F| at the minimiser over the set: 0 where the population's minimiser lies inside it."""
    data = reference_problem(10, setting.dimension, optimum_norm=setting.optimum_norm, fresh=setting.fresh, seed=0)
    rows, _ = data.fresh(setting.fresh)
    x = constrained_optimum(data, setting.radius, setting.fresh)
    slope = _sigmoid(rows @ x) - _sigmoid(rows @ data.optimum)
    return float(np.linalg.norm(rows.T @ slope)) / len(rows)


def floor(setting: Setting) -> float:
    """p / 2n: the excess of the best unbiased estimate without privacy, to first order."""
    return setting.dimension / (2 * setting.n)


def optimal_rate(setting: Setting) -> float:
    """L R (1 / sqrt(n) + sqrt(p) / (mu n)): the order of the least worst-case excess over all private methods."""
    problem, n = setting.problem, setting.n
    return problem.lipschitz * problem.radius * (n**-0.5 + math.sqrt(problem.parameters) / (setting.budget.mu * n))


def _sigmoid(scores: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(scores / 2)))
