"""The clip is a bound in exact rational arithmetic and sums are as exact as declared, also for float32 models."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dpsco
from dpsco.clipping.jax.clipped_sum import _squares, scales
from dpsco.clipping.jax.ghost_rules import Whole
from dpsco.clipping.jax.pytrees import x64
from dpsco.query import SUMMATION_SLACK, Batch, Query

WIDTH, CLIPS = 3, (1e-6, 0.3, 1.0, 7.0)


def network(p: Any, row: Any) -> Any:
    """Every kind of rule: an outer product, a formed one, a table and single entries; nothing is bounded."""
    hidden = jnp.tanh(row[0] @ p["a"]) + row[0][:1]
    more = p["table"][jnp.clip(jnp.abs(row[0]), 0, 3).astype(int)]
    return (hidden @ p["b"] * p["scale"]).sum() * row[1] + (more @ p["c"]).sum() * row[0][1]


def oracle(dtype: str) -> Any:
    rng = np.random.default_rng(0)
    shapes = {"a": (WIDTH, 9), "b": (9, 8), "scale": (8,), "table": (4, 2), "c": (2, 2)}
    return dpsco.jax.oracle(network, {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()})


def adversarial(dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary rows and rows of mixed, huge, tiny and subnormal scale; some with entries that are not finite."""
    rng = np.random.default_rng(1)
    info = np.finfo(dtype)
    low, high = math.log10(float(info.smallest_subnormal)), math.log10(float(info.max))
    rows, labels = rng.normal(size=(count, WIDTH)), rng.normal(size=count)
    kind = rng.integers(0, 6, count)
    with np.errstate(all="ignore"):
        rows[kind == 1] *= 10.0 ** rng.uniform(low / 2, high / 2, (np.sum(kind == 1), WIDTH))
        rows[kind == 2] *= 10.0 ** rng.uniform(low, high, (np.sum(kind == 2), 1))
        rows[kind == 3] *= 10.0 ** rng.uniform(-6, 6, (np.sum(kind == 3), 1))
        labels[kind == 4] *= 10.0 ** rng.uniform(low, high, np.sum(kind == 4))
    rows[kind == 5, 0] = rng.choice([np.nan, np.inf, -np.inf, 1e308, 0.0], np.sum(kind == 5))
    labels[rng.random(count) < 0.03] = np.nan
    return rows, labels


def exact_square(vector: np.ndarray) -> Fraction:
    return sum((Fraction(value) ** 2 for value in vector.tolist()), Fraction(0))


@pytest.mark.parametrize("rowwise", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_no_row_exceeds_the_clip(dtype: str, rowwise: bool) -> None:
    asked, rng = oracle(dtype), np.random.default_rng(2)
    largest, counted = Fraction(0), 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k, (row, label) in enumerate(zip(*adversarial(dtype, 400), strict=True)):
            clip, x = CLIPS[k % len(CLIPS)], asked.start * 10.0 ** rng.integers(-2, 3)
            points = (x, x + rng.normal(size=x.size) * 10.0 ** rng.integers(-6, 2))
            query = Query(k, points, (k + 1.0, -float(k)), clip, 8, rowwise=rowwise)
            answer = asked.answer(query, Batch(k, [(row[None], label[None])]))
            assert np.all(np.isfinite(answer.total))
            largest = max(largest, exact_square(answer.total) / Fraction(clip) ** 2)
            counted += answer.clipped_rows
    assert 1 - Fraction(1, 10**6) < largest <= 1
    assert counted > 100


def test_the_clip_is_a_bound_for_any_number_of_leaves() -> None:
    """Each of 1,000 small leaves is lost when its square is added to that of the first: together they are not small."""
    leaves = np.full(1_000, math.sqrt(0.49 * 2.0**-52))
    leaves[0] = 1.0
    with x64(True):
        flat = [jnp.asarray([[value]]) for value in leaves]
        scale, kept, over = scales([_squares(Whole(0, ""), 1, leaf) for leaf in flat], jnp.asarray([True]), 0.5)
    assert bool(kept[0])
    assert bool(over[0])
    assert 1 - Fraction(1, 10**11) < exact_square(leaves) * Fraction(float(scale[0])) ** 2 / Fraction(0.5) ** 2 <= 1


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_a_sum_is_within_the_declared_slack_of_the_exact_sum_of_its_rows(dtype: str) -> None:
    """Opposite rows at the clip, and points so far apart that a row's terms cancel."""
    asked, rng = oracle(dtype), np.random.default_rng(3)
    half = rng.normal(size=(32, WIDTH)) * 10.0 ** rng.uniform(-1, 4, (32, 1))
    rows, labels = np.concatenate([half, -half * (1 - 1e-6)]), np.concatenate([np.ones(32), -np.ones(32)])
    query = Query(50, (asked.start, asked.start * (1 + 1e-5)), (51.0, -50.0), 0.25, 64)
    total = asked.answer(query, Batch(50, [(rows, labels)])).total
    exact = [Fraction(0)] * asked.size
    for row, label in zip(rows, labels, strict=True):
        part = asked.answer(query, Batch(50, [(row[None], label[None])])).total
        exact = [a + Fraction(b) for a, b in zip(exact, part.tolist(), strict=True)]
    error = math.sqrt(sum(float(Fraction(t) - e) ** 2 for t, e in zip(total.tolist(), exact, strict=True)))
    # A row alone stands at another place of the block than among the others: the model's own rounding comes on top.
    assert error <= SUMMATION_SLACK / 2 * query.clip
