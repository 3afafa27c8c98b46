"""A loss in JAX cannot pass a row to another row, to an error or to the terminal."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import dpsco
from dpsco.errors import InvalidArgument
from dpsco.query import Batch, Query

jnp = jax.numpy
ROWS, WIDTH = 8, 4
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32), RNG.integers(0, 3, ROWS)
PARAMS = {"w": np.asarray(RNG.normal(size=(WIDTH, 3)), np.float32)}


def cross_entropy(params, row):
    features, label = row
    scores = features @ params["w"]
    return jax.nn.logsumexp(scores) - scores[label]


def ask(oracle, features=X):
    query = Query(1, (oracle.start, 1.01 * oracle.start), (2.0, -1.0), 1.0, ROWS, 2.0**-30)
    return oracle.answer(query, Batch(1, [(features, Y)]))


def scaled_by_the_block(x):
    """A host function that sees a whole block of rows."""
    return np.asarray(x / np.abs(x).max(), np.float32)


def on_the_host(params, row):
    features, label = row
    shape = jax.ShapeDtypeStruct(features.shape, features.dtype)
    scaled = jax.pure_callback(scaled_by_the_block, shape, jax.lax.stop_gradient(features), vmap_method="broadcast_all")
    return cross_entropy(params, (scaled, label))


def inside_a_loop(params, row):
    features, label = row
    loop = jax.lax.fori_loop(0, 2, lambda _, total: total + on_the_host(params, row), 0.0)
    return cross_entropy(params, (features, label)) + jax.lax.stop_gradient(loop)


@jax.custom_batching.custom_vmap
def alone(x):
    return x


@alone.def_vmap
def _(size, batched, x):
    return x / jnp.abs(x).max(), True


def with_a_rule_for_vmap(params, row):
    return cross_entropy(params, (alone(jax.lax.stop_gradient(row[0])), row[1]))


def printing(params, row):
    jax.debug.print("{}", row[0])
    return cross_entropy(params, row)


@jax.custom_vjp
def plain(x):
    return x


def _forward(x):
    return x, None


def _backward(_, g):
    shape = jax.ShapeDtypeStruct(g.shape, g.dtype)
    return (jax.pure_callback(scaled_by_the_block, shape, g, vmap_method="broadcast_all"),)


plain.defvjp(_forward, _backward)


def with_a_host_derivative(params, row):
    return cross_entropy({"w": plain(params["w"])}, row)


@pytest.mark.parametrize("loss", [on_the_host, inside_a_loop, with_a_rule_for_vmap, printing, with_a_host_derivative])
def test_a_loss_that_leaves_jax_is_refused(loss) -> None:
    """Under ``vmap`` a host function may see a whole block; one row then moved the sum by four clips."""
    with pytest.raises(InvalidArgument, match="calls out of JAX"):
        ask(dpsco.jax.oracle(loss, PARAMS))


def test_a_process_that_debugs_nans_takes_every_row_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    long = X.copy()
    long[3] = 3e38
    with jax.debug_nans(True), jax.debug_infs(True):
        answer = ask(dpsco.jax.oracle(cross_entropy, PARAMS), long)
    assert (answer.zeroed_rows, answer.rows) == (1, ROWS)
    assert capfd.readouterr() == ("", "")
