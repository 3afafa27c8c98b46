"""Mark 12 for losses in JAX and models in PyTorch: degenerate data sets and their neighbours look alike.

Odd rows in ordinary data are in tests/clipping/jax/test_neighbours.py and tests/clipping/torch/test_bound.py; here
whole data sets are odd, and the neighbour has one row of them changed, or one less.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.replay.test_record_replay import Run, assert_indistinguishable_but_for_the_noise, observe

import dpsco
from dpsco import Budget, Plan, Stream, stream
from dpsco.clipping import Oracle
from dpsco.methods import AcceleratedSRGD
from dpsco.planning.network_plan import plan_network

N, P, T, CLASSES = 60, 4, 3, 3
Rows = tuple[np.ndarray, np.ndarray]


def jax_oracle() -> Oracle:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def loss(p: Any, row: Any) -> Any:
        outputs = jnp.tanh(row[0] @ p["a"] + p["b"]) @ p["c"]
        return jax.nn.logsumexp(outputs) - outputs[row[1].astype(int)]

    rng = np.random.default_rng(0)
    shapes = {"a": (P, 5), "b": (5,), "c": (5, CLASSES)}
    params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return dpsco.jax.oracle(loss, params, memory=1 << 12)  # several blocks a round


def torch_oracle() -> Oracle:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    import dpsco.torch

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(P, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    return dpsco.torch.oracle(model, loss, labels=torch.int64, memory=1 << 12)


@pytest.fixture(scope="module", params=[jax_oracle, torch_oracle], ids=["jax", "torch"])
def oracle(request: pytest.FixtureRequest) -> Any:
    return request.param()


def data(seed: int, n: int = N) -> Rows:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, P)) * np.exp(rng.normal(size=(n, 1))), rng.integers(0, CLASSES, n).astype(float)


DATA: dict[str, Rows] = {
    "duplicate rows": (np.tile(data(1, 1)[0], (N, 1)), np.ones(N)),
    "one class only": (data(2)[0], np.zeros(N)),
    "all rows nan": (np.full((N, P), np.nan), np.full(N, np.nan)),
    "short last batch": data(3, N - 13),
    "last batch empty": data(4, 2 * N // T),
    "one row in all": data(5, 1),
    "rows left over": data(6, N + 17),
}
ODD: dict[str, tuple[list[float], float]] = {
    "mirrored": ([-3.0, 1.0, -2.0, 0.5], 2.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "label unknown": ([1.0] * P, 77.0),
    "huge": ([1e30, -1e30, 0.0, 1.0], 0.0),
}


def with_row(rows: Rows, place: int, name: str) -> Rows:
    features, labels = rows[0].copy(), rows[1].copy()
    features[place], labels[place] = ODD[name]
    return features, labels


def as_arrays(rows: Rows) -> Callable[[], Stream]:
    return lambda: stream(*rows, non_finite="zero")


def as_chunks(rows: Rows) -> Callable[[], Stream]:
    """Chunks of uneven sizes, empty ones among them."""
    edges = [0, 1, 1, *(e for e in (7, 20, 41) if e < len(rows[1])), max(1, len(rows[1]))]
    return lambda: stream((rows[0][a:b], rows[1][a:b]) for a, b in itertools.pairwise(edges))


def watch(plan: Plan, rows: Callable[[], Stream], oracle: Any, frozen: Run | None = None) -> Run:
    return observe(plan, rows, frozen, oracle, oracle.start)


def a_plan(oracle: Any, adjacency: str) -> Plan:
    plan = plan_network(oracle.size, N, Budget(1.0, 1e-6, adjacency), clip=0.05)
    return dataclasses.replace(plan, method=AcceleratedSRGD(rounds=T, beta=4.0, clip=0.05), rule="by hand")


@pytest.mark.parametrize("make", [as_arrays, pytest.param(as_chunks, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DATA)
def test_degenerate_data_sets_and_their_neighbours_look_alike(
    name: str, make: Callable[[Rows], Callable[[], Stream]], oracle: Any
) -> None:
    base, plan = DATA[name], a_plan(oracle, "replace")
    reference = watch(plan, make(base), oracle)
    for place, odd in itertools.product({0, len(base[1]) - 1}, ODD):
        changed = watch(plan, make(with_row(base, place, odd)), oracle, reference)
        assert_indistinguishable_but_for_the_noise(plan, reference, changed)


def test_the_bound_is_nearly_reached(oracle: Any, mark_figure: Callable[[int, str], None]) -> None:
    """A row and one that pulls the other way: nearly 2 C of the sums, so a clip that is too large would be seen."""
    plan, base = a_plan(oracle, "replace"), data(7)
    one, other = (base[0].copy(), base[1].copy()), (base[0].copy(), base[1].copy())
    one[0][5], one[1][5], other[0][5], other[1][5] = 3.0, 0.0, 3.0, 2.0
    reference = watch(plan, as_arrays(one), oracle)
    changed = watch(plan, as_arrays(other), oracle, reference)
    share = assert_indistinguishable_but_for_the_noise(plan, reference, changed)
    assert share > 0.7
    mark_figure(12, f"{type(oracle).__name__} {share:.2f}")


def with_ids(rows: Rows, ids: list[int]) -> Callable[[], Stream]:
    return lambda: stream(*rows, ids=ids, non_finite="zero")


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_a_row_more_or_less_of_a_degenerate_data_set_moves_one_round(name: str, oracle: Any) -> None:
    base, plan = DATA[name], a_plan(oracle, "add-remove")
    ids, place = list(range(len(base[1]))), len(base[1]) // 2
    for odd in ODD:
        rows = with_row(base, place, odd)
        fewer = np.delete(rows[0], place, axis=0), np.delete(rows[1], place)
        reference = watch(plan, with_ids(rows, ids), oracle)
        other = watch(plan, with_ids(fewer, ids[:place] + ids[place + 1 :]), oracle, reference)
        assert_indistinguishable_but_for_the_noise(plan, reference, other)
