"""Run on D, replay on D' with the released values fixed: sums given to release move by no more than declared."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpsco
from dpsco.query import Clipped, Query, Released
from dpsco.run import watching

N, WIDTH, ROUNDS = 60, 4, 2

ODD: dict[str, tuple[list[float], float]] = {
    "zero": ([0.0] * 4, 0.0),
    "ordinary": ([3.0, -1.0, 2.0, 0.5], 1.0),
    "huge": ([1e30, -1e30, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
    "mixed": ([1e18, 1e-18, 1.0, -1.0], 0.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "inf": ([np.inf, -np.inf, 0.0, 0.0], 0.0),
    "label nan": ([1.0] * 4, np.nan),
    "label unknown": ([1.0] * 4, 77.0),
    "label huge": ([1.0] * 4, 1e300),
}


def loss(p: Any, row: Any) -> Any:
    """Unbounded, discontinuous and singular: privacy depends on the clip only."""
    hidden = jnp.tanh(row[0] @ p["a"] + p["b"]) * jnp.sign(row[0][0]) + 1.0 / row[0][1]
    outputs = hidden @ p["c"]
    return jax.nn.logsumexp(outputs) - outputs[row[1].astype(int)] + row[1] ** 3 * outputs.sum()


class Watch:
    """Records the sums given to release, the queries and the released values; a second one replays the first."""

    def __init__(self, plan: Any, oracle: Any, rows: Any, frozen: Watch | None = None) -> None:
        self.sums: list[np.ndarray] = []
        self.queries: list[bytes] = []
        self.released: list[np.ndarray] = []
        replay = None if frozen is None else frozen.released
        with watching(self, replay=replay), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.model = dpsco.train(plan, rows, oracle=oracle, start=oracle.start).model.coef.tobytes()
        self.warned = [str(warning.message) for warning in caught]

    def __call__(self, query: Query, clipped: Clipped, released: Released) -> None:
        self.sums.append(clipped.total.copy())
        self.queries.append(query.digest())
        self.released.append(released.value)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("adjacency", [pytest.param("zero-out", marks=pytest.mark.slow), "replace", "add-remove"])
def test_neighbours_differ_by_at_most_what_was_declared(adjacency: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(WIDTH, 6)), "b": rng.normal(size=6), "c": rng.normal(size=(6, 2))}
    oracle = dpsco.jax.oracle(loss, {name: value.astype(dtype) for name, value in params.items()})
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(50.0), dimension=oracle.size)
    budget = dpsco.Budget(1.0, 1e-6, adjacency)
    plan = dpsco.Plan(problem, N, budget, dpsco.AcceleratedSRGD(rounds=ROUNDS, beta=1.0, clip=0.3))
    features, labels, ids = rng.normal(size=(N, WIDTH)), rng.integers(0, 2, N).astype(float), list(range(N))
    largest = 0.0
    for k, (row, label) in enumerate(ODD.values()):
        place = (k * 37) % N
        x, y, other = features.copy(), labels.copy(), {}
        x[place], y[place] = row, label
        if adjacency == "add-remove":
            other = {"x": np.delete(x, place, 0), "y": np.delete(y, place), "ids": ids[:place] + ids[place + 1 :]}
            streams = [
                dpsco.stream(x, y, ids=ids, non_finite="zero"),
                dpsco.stream(other["x"], other["y"], ids=other["ids"], non_finite="zero"),
            ]
        else:
            x2, y2 = x.copy(), y.copy()
            x2[place], y2[place] = (np.nan, 0.0) if adjacency == "zero-out" else (features[place], labels[place])
            streams = [dpsco.stream(a, b, non_finite="zero") for a, b in ((x, y), (x2, y2))]
        one = Watch(plan, oracle, streams[0])
        two = Watch(plan, oracle, streams[1], one)
        assert one.warned == two.warned == []
        assert one.queries == two.queries
        assert one.model == two.model
        distances = [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, two.sums, strict=True)]
        assert sum(distance > 0 for distance in distances) <= 1
        assert max(distances) <= plan.schedule.calibration.difference
        largest = max(largest, max(distances) / plan.schedule.calibration.difference)
    assert largest > 0.4  # some row comes near the bound, which is twice the clip under replace
