"""``dpsco.jax.fit``: a pytree trained on rows of any shape, odd rows count as zero."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpsco
import dpsco.jax
from dpsco import Budget, DataError, InvalidArgument

N, CLASSES, SHAPE = 600, 3, (4, 4, 1)
KEY = bytes(32)
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}


def pictures(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.normal(size=(n, *SHAPE)).astype(np.float32)
    X[np.arange(n), y, 0, 0] += 4.0
    return X, y


def initial() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "kernel": jnp.asarray(rng.normal(size=(3, 3, 1, 4)) / 3, jnp.float32),
        "dense": jnp.asarray(rng.normal(size=(64, CLASSES)) / 8, jnp.float32),
    }


def network(params: Any, x: Any) -> Any:
    h = jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.tanh(h).reshape(len(x), -1) @ params["dense"]


def cross_entropy(outputs: Any, labels: Any) -> Any:
    return jax.nn.logsumexp(outputs, axis=1) - jnp.take_along_axis(outputs, labels[:, None], axis=1)[:, 0]


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def test_a_pytree_is_trained_and_comes_back_in_its_structure() -> None:
    plan = dpsco.plan_network(36 + 64 * CLASSES, 3000, Budget(8.0, 1e-5))
    start = initial()
    trained, result = dpsco.jax.fit(network, start, cross_entropy, pictures(3000), plan=plan, classes=CLASSES, key=KEY)
    assert jax.tree.structure(trained) == jax.tree.structure(start)
    fresh, wanted = pictures(1000, seed=1)
    assert np.mean(np.argmax(network(trained, jnp.asarray(fresh)), axis=1) == wanted) > 0.8
    np.testing.assert_allclose(flat(trained), result.model.coef, rtol=1e-6, atol=1e-7)


def test_chunks_and_streams_give_the_same_parameters() -> None:
    X, y = pictures()
    sources = (
        [(X[:100], y[:100]), (X[100:].astype(np.float64), y[100:].tolist())],
        dpsco.stream(X.reshape(N, -1), y),
    )
    found = [
        dpsco.jax.fit(
            network, initial(), cross_entropy, data, n=N, input_shape=SHAPE, classes=CLASSES, **BUDGET, key=KEY
        )[0]
        for data in sources
    ]
    assert flat(found[0]).tobytes() == flat(found[1]).tobytes()
    with pytest.raises(InvalidArgument, match="n="):
        dpsco.jax.fit(network, initial(), cross_entropy, iter([(X, y)]), input_shape=SHAPE, classes=CLASSES, **BUDGET)
    with pytest.raises(InvalidArgument, match="input_shape"):
        dpsco.jax.fit(network, initial(), cross_entropy, iter([(X, y)]), n=N, classes=CLASSES, **BUDGET)


def test_labels_beyond_the_outputs_count_as_zero_and_not_as_the_last_class() -> None:
    X, y = pictures()
    found = []
    for odd in (np.nan, CLASSES, -1, 0.5):
        labels, seen = y.astype(float), dpsco.Diagnostics()
        labels[7] = odd
        made = dpsco.jax.fit(
            network,
            initial(),
            cross_entropy,
            [(X, labels)],
            n=N,
            input_shape=SHAPE,
            classes=CLASSES,
            **BUDGET,
            key=KEY,
            diagnostics=seen,
        )
        assert sum(seen.zeroed_rows) == 1
        found.append(flat(made[0]).tobytes())
    assert len(set(found)) == 1
    with pytest.raises(DataError, match="0 to 2"):
        dpsco.jax.fit(network, initial(), cross_entropy, (X, y + 1), classes=CLASSES, **BUDGET)


def test_labels_of_arrays_are_compared_with_the_outputs_and_chunks_declare_their_classes() -> None:
    X, y = pictures()
    with pytest.raises(DataError, match="from 0 to 2"):
        dpsco.jax.fit(network, initial(), cross_entropy, (X, y + 1), **BUDGET)
    with pytest.raises(InvalidArgument, match="Expected classes="):
        dpsco.jax.fit(network, initial(), cross_entropy, iter([(X, y)]), n=N, input_shape=SHAPE, **BUDGET)
    declared = dpsco.jax.fit(network, initial(), cross_entropy, (X, y), classes=CLASSES, **BUDGET, key=KEY)[0]
    inferred = dpsco.jax.fit(network, initial(), cross_entropy, (X, y), **BUDGET, key=KEY)[0]
    assert flat(declared).tobytes() == flat(inferred).tobytes()


def test_models_of_words_are_planned_as_in_torch() -> None:
    """The plan of the same table and layer: the same words and draws, up to the order of the parameters."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 50, (400, 12)), rng.integers(0, 2, 400)
    table, out = 0.1 * rng.normal(size=(50, 8)), 0.2 * rng.normal(size=(8, 2))
    params = {"a": jnp.asarray(table, jnp.float32), "b": jnp.asarray(out, jnp.float32)}
    _, result = dpsco.jax.fit(lambda p, x: p["a"][x].mean(1) @ p["b"], params, cross_entropy, (X, y), **BUDGET, key=KEY)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50, 8), torch.nn.AvgPool2d((12, 1)), torch.nn.Flatten(), torch.nn.Linear(8, 2, bias=False)
    )
    with torch.no_grad():
        model[0].weight.copy_(torch.from_numpy(table))
        model[3].weight.copy_(torch.from_numpy(out.T))
    theirs = dpsco.torch.fit(model, torch.nn.functional.cross_entropy, (X, y), **BUDGET, key=KEY)
    assert result.plan.method.step_size == pytest.approx(theirs.plan.method.step_size, rel=0.3)
    assert result.plan.method.step_size > 1.2 * dpsco.plan_network(416, 400, result.plan.budget).method.step_size


def test_outputs_are_compared_with_classes_before_a_row_is_read() -> None:
    def rows() -> Any:
        raise AssertionError("a row was read")
        yield

    with pytest.raises(InvalidArgument, match="classes=10 outputs, got 3"):
        dpsco.jax.fit(network, initial(), cross_entropy, rows(), n=N, input_shape=SHAPE, classes=10, **BUDGET)
    with pytest.raises(InvalidArgument, match="Leave classes out"):
        dpsco.jax.fit(
            lambda p, x: network(p, x)[:, 0],
            initial(),
            lambda outputs, labels: (outputs - labels) ** 2,
            pictures(),
            classes=3,
            **BUDGET,
        )


def test_what_apply_closes_over_is_frozen() -> None:
    start = initial()

    def last_layer(params: Any, x: Any) -> Any:
        return network({**start, "dense": params}, x)

    trained, result = dpsco.jax.fit(last_layer, start["dense"], cross_entropy, pictures(), **BUDGET)
    assert result.plan.problem.dimension == trained.size == 64 * CLASSES


def test_a_flax_module_is_trained() -> None:
    linen = pytest.importorskip("flax.linen")

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.GroupNorm(2)(linen.Conv(4, (3, 3))(x)))
            return linen.Dense(CLASSES)(linen.LayerNorm()(x.reshape(len(x), -1)))

    module, (X, y) = Network(), pictures(2000)
    start = module.init(jax.random.key(0), X[:1])
    trained, _ = dpsco.jax.fit(module.apply, start, cross_entropy, (X, y), classes=CLASSES, **BUDGET, key=KEY)
    fresh, wanted = pictures(1000, seed=1)
    assert np.mean(np.argmax(module.apply(trained, fresh), axis=1) == wanted) > 0.8


def test_an_equinox_module_is_trained() -> None:
    equinox = pytest.importorskip("equinox")
    module, (X, y) = equinox.nn.MLP(16, CLASSES, 16, 1, key=jax.random.key(0)), pictures(2000)
    start, rest = equinox.partition(module, equinox.is_inexact_array)

    def apply(params: Any, x: Any) -> Any:
        return jax.vmap(equinox.combine(params, rest))(x.reshape(len(x), -1))

    trained, _ = dpsco.jax.fit(apply, start, cross_entropy, (X, y), classes=CLASSES, **BUDGET, key=KEY)
    fresh, wanted = pictures(1000, seed=1)
    assert np.mean(np.argmax(apply(trained, jnp.asarray(fresh)), axis=1) == wanted) > 0.8
    with pytest.raises(InvalidArgument, match="array of floats"):
        dpsco.jax.fit(lambda m, x: jax.vmap(m)(x), module, cross_entropy, (X, y), **BUDGET)
