"""Rows that hold their own number, and a plan for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsco import AcceleratedSRGD, Budget, L2Ball, Logistic, Plan, Problem

P = 3


def plan(
    n: int = 60, rounds: int = 4, *, loss: Any = None, adjacency: str = "zero-out", width: int = P, **more: Any
) -> Plan:
    problem = Problem(Logistic() if loss is None else loss, L2Ball(5.0), width)
    method = AcceleratedSRGD(rounds=rounds, beta=0.25, clip=1.0, **more)
    return Plan(problem=problem, n=n, budget=Budget(1.0, 1e-6, adjacency), method=method)


def rows(n: int, width: int = P) -> tuple[np.ndarray, np.ndarray]:
    """Row k holds the number k, so that batches can be read back."""
    features = np.zeros((n, width))
    features[:, 0] = np.arange(n)
    return features, np.arange(n) % 2
