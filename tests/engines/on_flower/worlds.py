"""A small federation that the tests share."""

from __future__ import annotations

import numpy as np

import dpsco
from dpsco.datasets import reference_problem
from dpsco.engines.flower import linear_gradients

P, T, KEY = 6, 8, bytes(range(32))
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=P)


def a_plan(adjacency: str = "add-remove", n: int = 400, rounds: int = T, epsilon: float = 2.0) -> dpsco.Plan:
    budget = dpsco.Budget(epsilon, 1e-5, adjacency=adjacency)
    return dpsco.Plan(PROBLEM, n, budget, dpsco.AcceleratedSRGD(rounds=rounds, beta=0.2, clip=1.0))


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray, list[str]]:
    data = reference_problem(n, P, fresh=10)
    return data.features, data.labels, [f"device-{i}" for i in range(n)]


def devices(features: np.ndarray, labels: np.ndarray, ids: list[str]) -> dict:
    """Each id with its rows: id -> gradients."""
    names = np.array(ids)
    return {
        name: linear_gradients(PROBLEM, features[names == name], labels[names == name]) for name in dict.fromkeys(ids)
    }


def spread(clients: dict, nodes: int) -> list[dict]:
    """The clients on so many nodes, in turn."""
    names = list(clients)
    return [{name: clients[name] for name in names[node::nodes]} for node in range(nodes)]
