"""A loss in JAX cannot pass a row to another row, to an error or to the terminal."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.experimental.buffer_callback import buffer_callback
from jax.experimental.hijax import VJPHiPrimitive
from jax.extend.core import Primitive
from jax.extend.random import define_prng_impl
from jax.interpreters import batching, mlir

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


def into_a_buffer(params, row):
    def scaled(_, out, x):
        np.asarray(out)[...] = scaled_by_the_block(np.asarray(x))

    shape = jax.ShapeDtypeStruct(row[0].shape, row[0].dtype)
    call = buffer_callback(scaled, shape, vmap_method="broadcast_all")
    return cross_entropy(params, (call(jax.lax.stop_gradient(row[0])), row[1]))


class Together(VJPHiPrimitive):
    """The same numbers for a row alone; under ``vmap``, divided by the largest of the block."""

    def __init__(self, aval) -> None:
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x):
        return x

    def batch(self, _, arguments, places):
        return arguments[0] / jnp.abs(arguments[0]).max(), places[0]


def with_a_primitive_of_a_class(params, row):
    features = jax.lax.stop_gradient(row[0])
    return cross_entropy(params, (Together(jax.typeof(features))(features), row[1]))


own_add = Primitive("add")
own_add.def_abstract_eval(lambda x: x)
mlir.register_lowering(own_add, mlir.lower_fun(lambda x: x, multiple_results=False))
batching.primitive_batchers[own_add] = lambda given, places: (given[0] / jnp.abs(given[0]).max(), places[0])


def with_a_primitive_named_like_one_of_jax(params, row):
    return cross_entropy(params, (own_add.bind(jax.lax.stop_gradient(row[0])), row[1]))


@pytest.mark.parametrize(
    "loss",
    [
        on_the_host,
        inside_a_loop,
        with_a_rule_for_vmap,
        printing,
        with_a_host_derivative,
        into_a_buffer,
        with_a_primitive_of_a_class,
        with_a_primitive_named_like_one_of_jax,
    ],
)
def test_a_loss_that_leaves_jax_is_refused(loss) -> None:
    """Under ``vmap`` a host function may see a whole block; one row then moved the sum by four clips."""
    with pytest.raises(InvalidArgument, match="calls out of JAX"):
        ask(dpsco.jax.oracle(loss, PARAMS))


def test_code_of_a_derivative_never_sees_a_block() -> None:
    """Rules for derivatives ran again under ``vmap``, after the check: one could call the host then, and only then."""
    levels = []

    @jax.custom_vjp
    def same(x):
        return x

    def backward(_, g):
        levels.append("Vmap" in type(g).__name__ or "Batch" in type(g).__name__)
        if not levels[-1]:
            return (g,)
        shape = jax.ShapeDtypeStruct(g.shape, g.dtype)
        return (jax.pure_callback(scaled_by_the_block, shape, g, vmap_method="broadcast_all"),)

    same.defvjp(lambda x: (x, None), backward)

    def loss(params, row):
        return cross_entropy({"w": same(params["w"])}, row)

    odd = X.copy()
    odd[3] = 1e6
    answers = [ask(dpsco.jax.oracle(loss, PARAMS), rows).total for rows in (X, odd)]
    assert levels
    assert not any(levels)
    assert np.linalg.norm(answers[0] - answers[1]) <= 2.001


MANY = np.asarray(np.random.default_rng(0).random((64, WIDTH)) / 2, np.float32)


def incomplete_beta(x):
    """Its loop ends for a whole block when the last number has converged: the last bits of all rows, made visible."""
    return jnp.sin(1e9 * jax.scipy.special.betainc(2.5, 3.5, x))


def noise_of(x, generator):
    return jax.random.normal(jax.random.key((1e6 * x[0]).astype(jnp.int32), impl=generator), x.shape)


def bits_of(x):
    _, bits = jax.lax.rng_bit_generator((1e6 * x).astype(jnp.uint32), x.shape)
    return bits.astype(jnp.float32) / 2.0**31 - 1


@pytest.mark.parametrize(
    "made",
    [
        incomplete_beta,
        lambda x: jax.lax.cond(x[0] > 2, jnp.zeros_like, incomplete_beta, x),
        lambda x: noise_of(x, "threefry2x32"),
        lambda x: noise_of(x, "rbg"),
        lambda x: noise_of(x, "unsafe_rbg"),
        bits_of,
    ],
)
def test_a_primitive_that_mixes_rows_under_vmap_gets_one_row(made) -> None:
    """JAX draws "rbg" numbers of a block from the key of its first row: that row moved the sum by 20 clips."""
    oracle = dpsco.jax.oracle(lambda params, row: params["w"] @ made(row[0]), {"w": np.ones(WIDTH, np.float32)})
    query = Query(1, (oracle.start,), (1.0,), 1.0, 64, 2.0**-30)

    def total(value, place):
        rows = MANY.copy()
        rows[place] = value
        return oracle.answer(query, Batch(1, [(rows, np.zeros(64))])).total

    for place in (0, 3):
        without = total(np.nan, place)
        for value in (0.0, 0.5, 0.99999, 1e3):
            assert np.linalg.norm(total(value, place) - without) <= 1.001


def test_random_keys_of_a_generator_that_jax_does_not_define_are_refused() -> None:
    """JAX calls its code when it compiles, after the equations were checked: one row moved the sum by 107 clips."""

    @jax.custom_batching.custom_vmap
    def mixed(key):
        return key

    @mixed.def_vmap
    def _(size, batched, keys):
        return jnp.broadcast_to(keys.sum(0, dtype=keys.dtype), keys.shape), True

    own = define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.stack([seed, seed]).astype(jnp.uint32),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 2)),
        random_bits=lambda key, width, shape: jnp.broadcast_to(mixed(key)[0], shape),
        fold_in=lambda key, data: key + data,
        name="own",
        tag="own",
    )
    oracle = dpsco.jax.oracle(lambda params, row: params["w"] @ noise_of(row[0], own), {"w": np.ones(WIDTH)})
    with pytest.raises(InvalidArgument, match="random keys of own"):
        ask(oracle)


@pytest.mark.parametrize(
    "score",
    [
        lambda x: jnp.linalg.svd(x.reshape(2, 2), compute_uv=False).sum(),
        lambda x: jnp.linalg.eigh(x.reshape(2, 2) @ x.reshape(2, 2).T)[0].sum(),
        lambda x: jnp.abs(jnp.fft.rfft(x)).sum(),
        lambda x: jax.lax.scan(lambda c, a: (c * a, c), 1.0, x)[0],
        lambda x: jax.checkpoint(lambda a: jnp.sort(a).cumsum())(x).sum(),
        lambda x: (x * jax.random.normal(jax.random.key(0), x.shape)).sum(),
        lambda x: (x * jax.random.gamma(jax.random.key(0), jnp.exp(x))).sum(),
        lambda x: jax.nn.dot_product_attention(*(x.reshape(2, 1, 2),) * 3).sum(),
        lambda x: jax.lax.top_k(x, 2)[0].sum() + jnp.median(x) + jax.scipy.special.gammaln(jnp.exp(x)).sum(),
        lambda x: jax.ops.segment_sum(x, jnp.arange(4) % 2, 2).max() + jnp.interp(x[0], jnp.arange(3.0), x[:3]),
        lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos).sum(),
        lambda x: jax.nn.gelu(jnp.convolve(x, x)).sum() + jax.nn.sparse_plus(x).sum() + jax.nn.silu(x).sum(),
    ],
)
def test_plain_jax_is_accepted(score) -> None:
    def loss(params, row):
        return score(row[0] @ params["w"] @ params["w"].T)

    answer = ask(dpsco.jax.oracle(loss, PARAMS))
    assert answer.rows == ROWS


def test_a_process_that_debugs_nans_takes_every_row_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    long = X.copy()
    long[3] = 3e38
    with jax.debug_nans(True), jax.debug_infs(True):
        answer = ask(dpsco.jax.oracle(cross_entropy, PARAMS), long)
    assert (answer.zeroed_rows, answer.rows) == (1, ROWS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("precision", ["F16_F16_F16", "BF16_BF16_F32"])
def test_the_caller_s_precision_of_products_is_not_that_of_norms_and_sums(precision: str) -> None:
    """In float16 a row of a thousand equal ones moved the sum by three clips."""

    def loss(params, row):
        return (row[0] @ params["w"])[0] * row[1]

    oracle = dpsco.jax.oracle(loss, {"w": jnp.zeros((8, 1), jnp.float32)})
    query = Query(1, (oracle.start,), (1.0,), 1.0, 4096, 2.0**-30)
    rows = np.tile(np.random.default_rng(0).normal(size=8).astype(np.float32) * 3, (4096, 1))
    labels, without = np.ones(4096, np.float32), rows.copy()
    without[0] = 0.0

    def total(features):
        return oracle.answer(query, Batch(1, [(features, labels)])).total

    rows[0] = np.random.default_rng(1).normal(size=8) * 30.0
    with jax.default_matmul_precision(precision):
        found = total(rows) - total(without)
    assert 0.9 < np.linalg.norm(found) <= 1.0 + 2.0**-10
