"""Neighbouring federations: what reaches ``release`` differs in one round, by at most the calibrated difference."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import Hashed, LocalNodes, linear_gradients, wire
from dpsco.engines.flower.client import _differences
from dpsco.engines.flower.server import FederatedOracle
from dpsco.query import Query

from .worlds import P, T, a_plan, devices, rows, spread

FEATURES, LABELS, _ = rows()
IDS = [f"home-{i % 80}" for i in range(400)]


def totals(clients: dict, plan, unit: str, points: list[np.ndarray]) -> np.ndarray:
    """The sums of every round on fixed queries, as an adversary who chose them would replay them."""
    oracle = FederatedOracle(plan, LocalNodes(spread(clients, 3)), unit, Hashed())
    noise = plan.schedule.calibration
    sums = []
    for step in range(T):
        weights = (step + 1.0, -float(step))
        query = Query(step, (points[step], points[step - 1]), weights, plan.clip, 1, noise.grid, noise.rowwise)
        sums.append(oracle.answer(query).total)
    return np.array(sums)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace"])
@pytest.mark.parametrize("unit", ["client", "example"])
def test_one_unit_moves_one_round_by_at_most_the_difference(adjacency: str, unit: str) -> None:
    plan, rng = a_plan(adjacency), np.random.default_rng(1)
    points = list(3 * rng.standard_normal((T, P)))
    base = totals(devices(FEATURES, LABELS, IDS), plan, unit, points)
    moved = []
    for i in range(0, 80, 7):
        mine = np.array(IDS) == f"home-{i}" if unit == "client" else np.arange(400) == i
        features, labels, ids = FEATURES.copy(), LABELS.copy(), list(IDS)
        if adjacency == "replace":
            features[mine] = -30 * features[mine]
            labels[mine] = 1 - labels[mine]
        elif adjacency == "zero-out":
            features[mine] = np.nan
        else:
            features, labels, ids = features[~mine], labels[~mine], list(np.array(IDS)[~mine])
        other = totals(devices(features, labels, ids), plan, unit, points)
        distances = np.linalg.norm(other - base, axis=1)
        assert np.count_nonzero(distances) <= 1
        moved.append(distances.max())
    assert max(moved) <= plan.schedule.calibration.difference
    assert max(moved) > 0.5 * plan.clip  # the test would see a clip that is too large


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "matrix", "factors"])
def test_another_row_of_a_client_changes_no_bit_of_a_row(kind: str, outputs: int) -> None:
    """Unit example, add-remove: what a row gives before the grid does not depend on rows before or behind it."""
    rng, p, k = np.random.default_rng(2), 20, 4
    loss = dpsco.Logistic() if outputs == 1 else dpsco.Softmax(outputs)
    problem = dpsco.Problem(loss, dpsco.L2Ball(5.0), p)
    directions = np.linalg.qr(rng.standard_normal((p, k)))[0].T
    options = {
        "plain": {},
        "matrix": {"matrix": rng.standard_normal((p, p))},
        "factors": {"factors": wire.Factors(0.7, rng.uniform(0.5, 2, p), rng.uniform(1, 3, k), directions)},
    }[kind]
    for m in (5, 64, 200):
        features, labels = rng.standard_normal((m + 1, p)), rng.integers(0, max(2, outputs), m + 1)
        point = rng.standard_normal(p * outputs)
        shared = {"run": b"0" * 32, "first": 0, "last": 1, "places": 1, "unit": wire.EXAMPLE, "clip": 1.0}
        asked = wire.decode_query(
            wire.encode_query(**shared, grid=2.0**-14, weights=(1.0,), points=(point,), **options)  # type: ignore[arg-type]
        )
        found = _differences(asked, linear_gradients(problem, features, labels))
        behind = _differences(asked, linear_gradients(problem, features[:m], labels[:m]))
        before = _differences(asked, linear_gradients(problem, features[1:], labels[1:]))
        np.testing.assert_array_equal(behind, found[:m])
        np.testing.assert_array_equal(before, found[1:])
