"""LAPACK prints no line about a row: matrices that are not finite do not reach it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import dpsco
from dpsco.query import Batch, Query

jnp, lax = jax.numpy, jax.lax
ROWS, WIDTH, PLACE = 6, 36, 2  # LAPACK divides and conquers, and prints, from 26 columns on
X, Y = np.random.default_rng(0).normal(size=(ROWS, WIDTH)), np.ones(ROWS)
PARAMETERS = {"s": jnp.ones(()), "x": jnp.zeros(WIDTH)}


def square(a):
    return jnp.outer(a, a) + jnp.eye(WIDTH)


def of_scan(a):
    return lax.scan(lambda total, m: (total + jnp.linalg.svd(m)[1], None), jnp.zeros(WIDTH), square(a)[None])[0]


def of_loop(a):
    return lax.fori_loop(0, 2, lambda k, total: total + jnp.linalg.svd(square(a), compute_uv=False), jnp.zeros(WIDTH))


FEATURES = {
    "svd": lambda a: jnp.linalg.svd(square(a))[1],
    "pinv": lambda a: jnp.linalg.pinv(square(a))[0],
    "solve": lambda a: jnp.linalg.solve(square(a), a),
    "eigh": lambda a: jnp.linalg.eigh(square(a))[0],
    "checkpoint": jax.checkpoint(lambda a: jnp.linalg.svd(square(a))[1]),
    "cond": lambda a: lax.cond(a[0] > 0, lambda m: jnp.linalg.svd(m)[1], lambda m: m[0], square(a)),
    "scan": of_scan,
    "loop": of_loop,
}


def ask(oracle, features):
    points = (oracle.start + 0.1,)
    return oracle.answer(Query(0, points, (1.0,), 1.0, ROWS, 2.0**-20), Batch(0, [(features, Y)])).total


@pytest.mark.parametrize("name", FEATURES)
def test_a_row_whose_matrix_is_not_finite_prints_nothing_and_counts_as_zero(name, capfd) -> None:
    make = FEATURES[name]
    oracle = dpsco.jax.oracle(lambda w, row: (make(row[0] * w["s"]) @ w["x"] - row[1]) ** 2, PARAMETERS)
    zeroed, odd = X.copy(), X.copy()
    zeroed[PLACE], odd[PLACE] = np.nan, 1e30  # finite; its square is not
    expected = ask(oracle, zeroed)
    assert np.any(expected)
    capfd.readouterr()
    np.testing.assert_array_equal(ask(oracle, odd), expected)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["svd", "pinv", "solve", "scan", "cond"])
def test_gradients_of_finite_matrices_are_those_of_jax(name) -> None:
    make = FEATURES[name]

    def loss(w, row):
        return (make(row[0] * w["s"]) @ w["x"] - row[1]) ** 2

    oracle = dpsco.jax.oracle(loss, PARAMETERS)
    point = oracle.weights(oracle.start + 0.1)
    each = [jax.grad(loss)(point, (X[k].astype("f"), np.float32(1.0))) for k in range(ROWS)]
    flat = np.array([np.concatenate([np.ravel(g["s"]), np.ravel(g["x"])]) for g in each], dtype=np.float64)
    flat /= np.maximum(1.0, np.linalg.norm(flat, axis=1))[:, None]
    np.testing.assert_allclose(ask(oracle, X), flat.sum(axis=0), atol=1e-4)
