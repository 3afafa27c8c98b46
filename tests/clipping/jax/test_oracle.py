"""Parameters keep their structure; nothing is compiled twice; chunks, memory and other rows change no bit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpsco
from dpsco import DataError, InvalidArgument
from dpsco.query import Batch, Query

RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(500, 8)), RNG.integers(0, 3, 500)
PARAMS = {
    "a": (RNG.normal(size=(8, 20)) / 3).astype(np.float32),
    "b": (RNG.normal(size=(20, 3)) / 5).astype(np.float32),
}


def loss(p: Any, row: Any) -> Any:
    outputs = jnp.tanh(row[0] @ p["a"]) @ p["b"]
    return jax.nn.logsumexp(outputs) - outputs[row[1]]


def asked(oracle: Any, *, rowwise: bool = False, grid: float = 2.0**-24, step: int = 3, size: int = 500) -> Query:
    x = oracle.start
    return Query(step, (x + 0.01 * step, x), (step + 1.0, -float(step)), 0.3, size, grid, rowwise)


def test_weights_come_back_as_the_pytree_they_came_as() -> None:
    params = {
        "layers": [(jnp.ones((2, 3), jnp.float32), np.zeros(3)), (np.float32(2.5), jnp.ones(4, jnp.bfloat16))],
        "scale": 1.5,
        "nothing": None,
    }
    oracle = dpsco.jax.oracle(lambda p, row: row[0].sum(), params)
    back = oracle.weights(oracle.start)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
        assert type(one) is type(other)
        assert np.shape(one) == np.shape(other)
        assert getattr(one, "dtype", float) == getattr(other, "dtype", float)
        assert np.array_equal(np.asarray(one), np.asarray(other))
    assert oracle.size == 6 + 3 + 1 + 4 + 1
    assert oracle.start.dtype == np.float64


def test_training_moves_the_weights_and_hands_them_back() -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS)
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(20.0), dimension=oracle.size)
    plan = dpsco.Plan(problem, 500, dpsco.Budget(np.inf, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=2.0, clip=np.inf))
    result = dpsco.train(plan, dpsco.stream(FEATURES, LABELS), oracle=oracle, start=oracle.start)
    trained = oracle.weights(result.model)
    assert trained["a"].dtype == np.float32
    risk = [np.mean([loss(p, row) for row in zip(FEATURES, LABELS, strict=True)]) for p in (PARAMS, trained)]
    assert risk[1] < risk[0] - 0.01


def test_nothing_is_compiled_after_the_first_round_of_two_points() -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS, memory=60_000)
    oracle.answer(asked(oracle), Batch(3, [(FEATURES, LABELS)]))
    (program,) = oracle._programs.values()
    assert 1 < program.rows < 200
    for step in range(4, 9):
        rows = 500 - 70 * (step - 3)
        oracle.answer(asked(oracle, step=step), Batch(step, [(FEATURES[:rows], LABELS[:rows])]))
    assert program.factors._cache_size() == program.add._cache_size() == len(oracle._programs) == 1


@pytest.mark.parametrize("rowwise", [False, True])
def test_sums_are_the_same_bits_however_the_batch_is_cut(rowwise: bool) -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS, memory=60_000)
    query = asked(oracle, rowwise=rowwise)
    whole = oracle.answer(query, Batch(3, [(FEATURES, LABELS)]))
    for edges in ([1, 2, 300], [64, 128, 256], [499]):
        cut = list(zip(np.split(FEATURES, edges), np.split(LABELS, edges), strict=True))
        parts = oracle.answer(query, Batch(3, [*cut, (FEATURES[:0], LABELS[:0])]))
        assert parts.total.tobytes() == whole.total.tobytes()
        assert (parts.rows, parts.clipped_rows) == (whole.rows, whole.clipped_rows)
    assert np.all(whole.total == np.rint(whole.total / query.grid) * query.grid)


def test_a_deleted_row_takes_its_own_contribution_along_and_nothing_else_under_add_remove() -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS, memory=60_000)
    query = asked(oracle, rowwise=True)
    whole = oracle.answer(query, Batch(3, [(FEATURES, LABELS)])).total
    for k in (0, 63, 64, 499):
        rest = oracle.answer(query, Batch(3, [(np.delete(FEATURES, k, 0), np.delete(LABELS, k))])).total
        alone = oracle.answer(query, Batch(3, [(FEATURES[k : k + 1], LABELS[k : k + 1])])).total
        assert np.array_equal(whole - rest, alone)


def test_padding_and_rows_that_do_not_count_change_no_bit() -> None:
    """A loss that is not finite at a row of zeros, such as the padding of the last block."""

    def singular(p: Any, row: Any) -> Any:
        return loss(p, (row[0] / jnp.sqrt(jnp.sum(row[0] ** 2)), row[1]))

    oracle = dpsco.jax.oracle(singular, PARAMS)
    query = asked(oracle, size=64)
    clean = oracle.answer(query, Batch(3, [(FEATURES[:40], LABELS[:40])]))
    odd = np.array([np.full(8, v) for v in (0.0, np.nan, np.inf, -np.inf, 1e300, 1e-300)])
    more = oracle.answer(query, Batch(3, [(np.vstack([FEATURES[:40], odd]), np.append(LABELS[:40], [0] * 6))]))
    assert np.all(np.isfinite(clean.total))
    assert more.total.tobytes() == clean.total.tobytes()
    assert (clean.zeroed_rows, more.zeroed_rows, more.rows) == (0, 6, 46)


def test_an_empty_batch_is_a_sum_of_nothing() -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS)
    for chunks in ([], [(FEATURES[:0], LABELS[:0])]):
        nothing = oracle.answer(asked(oracle), Batch(3, chunks))
        assert not nothing.total.any()
        assert (nothing.rows, nothing.clipped_rows, nothing.zeroed_rows) == (0, 0, 0)


@pytest.mark.slow
def test_memory_bounds_the_block_and_hardly_changes_the_sum() -> None:
    oracles = [dpsco.jax.oracle(loss, PARAMS, memory=memory) for memory in (1, 20_000, 1 << 26)]
    answers = [o.answer(asked(o, grid=0.0), Batch(3, [(FEATURES[:20], LABELS[:20])])).total for o in oracles]
    rows = [next(iter(o._programs.values())).rows for o in oracles]
    assert rows[0] == 1
    assert rows[0] < rows[1] < rows[2]
    assert np.max(np.abs(np.diff(answers, axis=0))) <= 1e-5 * np.linalg.norm(answers[0])


def test_the_process_keeps_its_own_precision_and_jax_is_loaded_on_first_use() -> None:
    code = (
        "import sys, dpsco; assert 'jax' not in sys.modules\n"
        "import numpy as np; o = dpsco.jax.oracle(lambda p, r: r[0] @ p, np.ones(3))\n"
        "from dpsco.query import Batch, Query\n"
        "q = Query(0, (o.start,), (1.0,), 1.0, 2)\n"
        "assert o.answer(q, Batch(0, [(np.ones((2, 3)), np.ones(2))])).total.dtype == np.float64\n"
        "import jax.numpy as jnp; assert jnp.ones(2).dtype == np.float32"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        (loss, {"a": np.ones(3, np.int32)}, "'a' to be an array of floats"),
        (loss, {}, "at least one array"),
        ("loss", PARAMS, "a function"),
    ],
)
def test_what_cannot_be_trained_is_refused(function: Any, params: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        dpsco.jax.oracle(function, params)


def test_what_does_not_fit_is_refused_by_name() -> None:
    oracle = dpsco.jax.oracle(loss, PARAMS)
    with pytest.raises(InvalidArgument, match=r"oracle\.size"):
        oracle.answer(Query(0, (np.zeros(5),), (1.0,), 1.0, 9), Batch(0, [(FEATURES, LABELS)]))
    with pytest.raises(InvalidArgument, match="parameters"):
        oracle.weights(np.zeros(5))
    with pytest.raises(InvalidArgument, match="memory"):
        dpsco.jax.oracle(loss, PARAMS, memory=0)
    with pytest.raises(InvalidArgument, match="one real number"):
        dpsco.jax.oracle(lambda p, row: row[0] @ p["a"], PARAMS).describe((np.zeros(8), 0))
    from scipy.sparse import csr_array

    with pytest.raises(DataError, match="dense"):
        oracle.answer(asked(oracle), Batch(3, [(csr_array(FEATURES), LABELS)]))
    with pytest.raises(DataError, match="shape"):
        oracle.answer(asked(oracle), Batch(3, [(FEATURES, LABELS), (FEATURES[:, :3], LABELS)]))
