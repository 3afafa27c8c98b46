"""One clipped sum, four ways: NumPy, compiled kernels, JAX and jax_privacy agree on every built-in loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpsco
from dpsco import Huber, LinearOracle, Logistic, SmoothedHinge, Softmax, Squared
from dpsco.clipping import CompiledOracle
from dpsco.query import Batch, Query

ROWS, WIDTH = 700, 12


def logistic(x: Any, row: Any) -> Any:
    a, y = row
    return jax.nn.softplus(-(2 * y - 1) * (a @ x["w"]))


def squared(x: Any, row: Any) -> Any:
    return 0.5 * (row[0] @ x["w"] - row[1]) ** 2


def huber(x: Any, row: Any) -> Any:
    distance = jnp.abs(row[0] @ x["w"] - row[1])
    inside = jnp.minimum(distance, 0.7)
    return inside * (distance - inside / 2)


def smoothed_hinge(x: Any, row: Any) -> Any:
    short = jnp.maximum(1.0 - (2 * row[1] - 1) * (row[0] @ x["w"]), 0.0)
    inside = jnp.minimum(short, 0.4)
    return inside * (short - inside / 2) / 0.4


def softmax(x: Any, row: Any) -> Any:
    scores = x["w"] @ row[0]
    return jax.nn.logsumexp(scores) - scores[row[1].astype(int)]


LOSSES = {
    "logistic": (Logistic(), logistic),
    "squared": (Squared(label_bound=2.0), squared),
    "huber": (Huber(width=0.7), huber),
    "smoothed hinge": (SmoothedHinge(width=0.4), smoothed_hinge),
    "softmax": (Softmax(classes=3), softmax),
}


def case(name: str, dtype: str, *, rowwise: bool = False) -> tuple[Any, Any, Query, Batch]:
    loss, function = LOSSES[name]
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, WIDTH)).astype(dtype)
    labels = rng.integers(0, loss.outputs if loss.outputs > 1 else 2, ROWS).astype(dtype)
    shape = (loss.outputs, WIDTH) if loss.outputs > 1 else (WIDTH,)
    params = {"w": rng.normal(size=shape).astype(dtype)}
    now = params["w"].astype(np.float64).ravel()
    before = (now + 0.1 * rng.normal(size=now.size)).astype(dtype).astype(np.float64)
    query = Query(6, (now, before), (7.0, -6.0), 1.5, ROWS, rowwise=rowwise)
    return dpsco.jax.oracle(function, params), loss, query, Batch(6, [(features, labels)])


CASES = [(name, dtype, False) for name in LOSSES for dtype in ("float64", "float32")]
CASES += [("softmax", "float64", True), ("softmax", "float32", True)]
FAST = (0, 3, 8)  # compiling takes seconds: of each kind one


@pytest.mark.parametrize(
    ("name", "dtype", "rowwise"),
    [case if k in FAST else pytest.param(*case, marks=pytest.mark.slow) for k, case in enumerate(CASES)],
)
def test_the_sum_is_that_of_the_other_oracles(name: str, dtype: str, rowwise: bool) -> None:
    close = 1e-12 if dtype == "float64" else 1e-5
    oracle, loss, query, batch = case(name, dtype, rowwise=rowwise)
    ours = oracle.answer(query, batch)
    plain, compiled = LinearOracle(loss).answer(query, batch), CompiledOracle(loss).answer(query, batch)
    scale = np.linalg.norm(plain.total)
    assert np.linalg.norm(ours.total - plain.total) <= close * scale
    assert np.linalg.norm(ours.total - compiled.total) <= close * scale
    assert ours.rows == ROWS
    assert 0 < ours.clipped_rows < ROWS
    if dtype == "float64":
        assert ours.clipped_rows == plain.clipped_rows


@pytest.mark.slow  # ten seconds of imports
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own use of optax
def test_jax_privacy_clips_the_same_differences_through_phi() -> None:
    """phi(delta) = sum_j w_j f(x_j + delta, d) makes any per-example clipper an oracle; float32, not bit for bit."""
    from jax_privacy import clipping

    oracle, _, query, batch = case("softmax", "float32")
    points = [oracle.weights(point) for point in query.points]

    def phi(delta: Any, features: Any, label: Any) -> Any:
        moved = [jax.tree.map(jnp.add, point, delta) for point in points]
        terms = [weight * softmax(x, (features, label)) for weight, x in zip(query.weights, moved, strict=True)]
        return sum(terms)

    clipped = clipping.clipped_grad(phi, l2_clip_norm=query.clip, batch_argnums=(1, 2), keep_batch_dim=False)
    (features, labels) = batch.chunks[0]  # type: ignore[index]
    theirs = clipped(jax.tree.map(jnp.zeros_like, points[0]), jnp.asarray(features), jnp.asarray(labels))
    ours = oracle.answer(query, batch).total
    assert np.linalg.norm(ours - np.asarray(theirs["w"]).ravel()) <= 1e-5 * np.linalg.norm(ours)
