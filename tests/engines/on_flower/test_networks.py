"""A network in PyTorch or JAX on the devices of a federation: the model of the same run in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import LocalNodes, oracle_gradients, serve

N, WIDTH, CLASSES, KEY = 60, 4, 3, bytes(32)


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, WIDTH)), rng.integers(0, CLASSES, N)


def by_torch() -> Any:
    torch = pytest.importorskip("torch")
    import dpsco.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.Tanh(), torch.nn.Linear(5, CLASSES)).double()
    return dpsco.torch.oracle(model, torch.nn.CrossEntropyLoss(reduction="none"))


def by_jax() -> Any:
    jax = pytest.importorskip("jax")
    import dpsco.jax

    params = np.random.default_rng(1).normal(size=(WIDTH, CLASSES))

    def loss(weights: Any, row: Any) -> Any:
        scores = row[0] @ weights
        return jax.nn.logsumexp(scores) - scores[row[1]]

    return dpsco.jax.oracle(loss, params)


@pytest.mark.parametrize("make", [by_torch, by_jax])
def test_a_federation_of_a_network_gives_the_model_of_one_process(make: Any) -> None:
    oracle, (X, y) = make(), rows()
    ids = [f"device-{i}" for i in range(N)]
    budget = dpsco.Budget(2.0, 1e-5, adjacency="add-remove")
    plan = dpsco.plan_network(oracle.size, N, budget, rounds=4)
    clients = {name: oracle_gradients(oracle, X[[i]], y[[i]]) for i, name in enumerate(ids)}
    names = list(clients)
    nodes = LocalNodes([{name: clients[name] for name in names[part::2]} for part in range(2)])
    served = serve(plan, nodes, start=oracle.start, key=KEY)
    expected = dpsco.train(plan, dpsco.stream(X, y, ids=ids), oracle=oracle, start=oracle.start, key=KEY)
    np.testing.assert_allclose(served.model.coef, expected.model.coef, rtol=1e-9, atol=1e-9)
    assert not np.allclose(served.model.coef, oracle.start)


@pytest.mark.parametrize("make", [by_torch, by_jax])
def test_a_row_has_the_same_bits_beside_any_other_and_an_odd_one_counts_as_zero(make: Any) -> None:
    oracle, (X, y) = make(), rows()
    alone = oracle_gradients(oracle, X[:1], y[:1])(oracle.start)
    odd = X[:4].copy()
    odd[2, 1] = np.nan
    found = oracle_gradients(oracle, odd, [y[0], None, y[2], y[3]])(oracle.start)
    assert found.shape == (4, oracle.size)
    assert found[0].tobytes() == alone[0].tobytes()
    assert not found[1:3].any()
    assert found[3].any()
