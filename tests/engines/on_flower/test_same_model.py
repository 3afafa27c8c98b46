"""Same plan, key and rows: a federation and a run in one process give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.method_plans import under

import dpsco
from dpsco.engines.flower import LocalNodes, Roster, serve

from .worlds import KEY, PROBLEM, P, T, a_plan, devices, rows, spread


@pytest.mark.parametrize("nodes", [1, 4, 400])
@pytest.mark.parametrize("unit", ["client", "example"])
def test_devices_of_one_row_train_the_model_of_a_hashed_stream(nodes: int, unit: str) -> None:
    features, labels, ids = rows()
    here = dpsco.train(a_plan(), dpsco.stream(features, labels, ids=ids), key=KEY)
    there = serve(a_plan(), LocalNodes(spread(devices(features, labels, ids), nodes)), unit=unit, key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
    assert there.report.mu == here.report.mu
    assert there.report.noise_std == here.report.noise_std


def test_clients_of_many_rows_with_unit_example_are_rows_of_one_stream() -> None:
    features, labels, _ = rows()
    ids = [f"home-{i % 57}" for i in range(len(labels))]
    here = dpsco.train(a_plan(), dpsco.stream(features, labels, ids=ids), key=KEY)
    there = serve(a_plan(), LocalNodes(spread(devices(features, labels, ids), 5)), unit="example", key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)


def test_with_unit_client_the_mean_over_a_clients_rows_is_what_is_clipped() -> None:
    """Reference: a per-example oracle whose rows are clients."""
    features, labels, _ = rows()
    homes = [f"home-{i}" for i in range(100)]
    ids = [homes[i % 100] for i in range(400)]
    of_home = np.stack([np.hstack([features[i::100], labels[i::100, None]]) for i in range(100)]).reshape(100, -1)

    def gradient(x: np.ndarray, row: np.ndarray, _: float) -> np.ndarray:
        home = row.reshape(4, P + 1)
        slopes = 1 / (1 + np.exp(-home[:, :P] @ x)) - home[:, P]
        return (slopes[:, None] * home[:, :P]).mean(axis=0)

    wide = dpsco.Problem(dpsco.CustomLoss(1.0, 0.25), dpsco.L2Ball(10.0), dimension=P)
    budget = dpsco.Budget(2.0, 1e-5, adjacency="add-remove")
    plan = dpsco.Plan(wide, 100, budget, dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=0.05))
    here = dpsco.train(
        plan, dpsco.stream(of_home, np.zeros(100), ids=homes), oracle=dpsco.PerExample(gradient), key=KEY
    )
    there = serve(plan, LocalNodes(spread(devices(features, labels, ids), 3)), key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)


def test_a_roster_and_no_noise_give_algorithm_1_to_rounding() -> None:
    features, labels, ids = rows()
    budget = dpsco.Budget(np.inf, 1e-5)
    plan = dpsco.Plan(PROBLEM, 400, budget, dpsco.AcceleratedSRGD(rounds=T, beta=0.2, clip=np.inf))
    roster = Roster({name: i // 50 for i, name in enumerate(ids)})
    here = dpsco.train(plan, dpsco.stream(features, labels))
    there = serve(plan, LocalNodes(spread(devices(features, labels, ids), 4), roster), assignment=roster)
    np.testing.assert_allclose(there.model.coef, here.model.coef, rtol=1e-9)


def test_an_algorithm_of_the_library_runs_as_a_federation_too() -> None:
    features, labels, ids = rows()
    plan = under(a_plan(), "dp-sgd")
    here = dpsco.train(plan, dpsco.stream(features, labels, ids=ids), key=KEY)
    nodes = LocalNodes(spread(devices(features, labels, ids), 4))
    there = serve(plan, nodes, key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
