"""The compiled oracle against the plain one, and its bits for any threads, chunks and neighbours."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dpsco import Huber, LinearOracle, Logistic, MulticlassHinge, SmoothedHinge, Softmax, Squared
from dpsco.clipping import CompiledOracle, linear_oracle
from dpsco.problem import CustomLoss, L2Ball, Problem
from dpsco.query import CHUNK_ROWS, SUMMATION_SLACK, Batch, Clipped, Query, to_grid

LOSSES = [
    Logistic(),
    Squared(label_bound=5.0),
    Huber(width=0.7),
    SmoothedHinge(width=0.6),
    Softmax(classes=4),
    MulticlassHinge(3, 0.6),
]
IDS = [loss.kind for loss in LOSSES]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def rows_of(loss: Any, rows: int, width: int, dtype: Any, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, width)) / math.sqrt(width)
    return features.astype(dtype), rng.integers(0, max(2, loss.outputs), rows)


def query_of(loss: Any, size: int, *, points: int = 2, intercept: bool = False, seed: int = 1, **more: Any) -> Query:
    rng = np.random.default_rng(seed)
    x = tuple(rng.normal(size=(size + intercept) * loss.outputs) for _ in range(points))
    return Query(3, x, (4.0, -3.0)[:points], more.pop("clip", 0.8), 10_000, **more)


def agree(one: Clipped, two: Clipped, tolerance: float, clip: float) -> None:
    """Equal to ``tolerance`` of the rows' norms, and the same tallies."""
    scale = one.rows * (1.0 if math.isinf(clip) else clip)
    assert np.linalg.norm(one.total - two.total) <= tolerance * max(scale, np.linalg.norm(one.total))
    assert (one.rows, one.zeroed_rows) == (two.rows, two.zeroed_rows)
    assert abs(one.clipped_rows - two.clipped_rows) <= 0.002 * one.rows  # the margins of float32 and float64 differ


@pytest.mark.parametrize("points", [1, 2])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_it_answers_as_the_plain_oracle_does(loss: Any, dtype: str, intercept: bool, points: int) -> None:
    """Sizes around lanes, groups, tiles and blocks; clips that bind for some, all and no rows; NaN rows."""
    for rows, width in ((1, 1), (3, 15), (9, 16), (67, 17), (300, 130), (130, 600), (130, 1030), (70, 2048)):
        for clip in (0.02, 0.8, math.inf):
            features, labels = rows_of(loss, rows, width, dtype)
            labels = labels.astype(float)
            if rows > 60:
                features[5, -1], features[17, 0], features[31, 0] = np.nan, np.inf, -np.inf
                features[40], features[41], features[42] = 0.0, 1e-30, 1e25
                labels[50], labels[51] = np.nan, 7.5
            asked = query_of(loss, width, points=points, intercept=intercept, clip=clip)
            batch = [(features, labels)]
            plain = LinearOracle(loss, intercept).answer(asked, Batch(3, batch))
            agree(plain, CompiledOracle(loss, intercept).answer(asked, Batch(3, batch)), TOLERANCE[dtype], clip)


@pytest.mark.parametrize("layout", ["F", "strided", "read-only", "int8", "uint16", "float16", ">f4", "bool"])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=4)], ids=["logistic", "softmax"])
def test_any_layout_and_type_of_rows_and_labels(loss: Any, layout: str) -> None:
    features, labels = rows_of(loss, 300, 21, np.float32)
    if layout == "F":
        features = np.asfortranarray(features)
    elif layout == "strided":
        features, labels = np.repeat(features, 2, axis=1)[:, ::2], np.repeat(labels, 3)[::3]
    elif layout == "read-only":
        features.setflags(write=False)
        labels.setflags(write=False)
    else:
        features = (4 * features).astype(layout)
    asked = query_of(loss, 21)
    plain = LinearOracle(loss).answer(asked, Batch(3, [(features, labels)]))
    agree(plain, CompiledOracle(loss).answer(asked, Batch(3, [(features, labels.astype(np.int8))])), 1e-5, 0.8)


@pytest.mark.parametrize("grid", [0.0, 2.0**-14])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=3)], ids=["logistic", "softmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row_bytes", [2400, 4400])
def test_bits_depend_neither_on_threads_nor_on_chunks(loss: Any, dtype: str, grid: float, row_bytes: int) -> None:
    """Rows of 4 to 8 KB are tiles of their own."""
    width, size = row_bytes // np.dtype(dtype).itemsize, 3 * CHUNK_ROWS + 77
    features, labels = rows_of(loss, size, width, dtype)
    asked = query_of(loss, width, grid=grid)
    whole = CompiledOracle(loss, threads=1).answer(asked, Batch(3, [(features, labels)]))
    for threads in (1, 2, 5):
        for edges in ([0, size], [0, CHUNK_ROWS, size], [0, CHUNK_ROWS, 2 * CHUNK_ROWS, 3 * CHUNK_ROWS, size]):
            chunks = [(features[a:b], labels[a:b]) for a, b in pairwise(edges)]
            answer = CompiledOracle(loss, threads=threads).answer(asked, Batch(3, chunks))
            assert answer.total.tobytes() == whole.total.tobytes()
            assert answer.rows == size


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row_bytes", [296, 4400])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=3)], ids=["logistic", "softmax"])
def test_a_changed_row_changes_its_own_block_and_by_no_more_than_the_clip(
    loss: Any, dtype: str, intercept: bool, row_bytes: int
) -> None:
    """One row becomes zero, huge, tiny or NaN. All other blocks keep their bits."""
    width, grid, clip = row_bytes // np.dtype(dtype).itemsize, 2.0**-14, 0.5
    features, labels = rows_of(loss, 1024, width, dtype)
    asked = query_of(loss, width, intercept=intercept, grid=grid, clip=clip)
    oracle = CompiledOracle(loss, intercept, threads=1)
    before = oracle.answer(asked, Batch(3, [(features, labels)])).total
    assert np.array_equal(to_grid(before, grid), before)
    for place, value in ((0, 0.0), (63, 1e-40), (64, np.nan), (500, 1e30), (1023, -np.inf), (800, 3.0)):
        other = features.copy()
        other[place] = value
        change = before - oracle.answer(asked, Batch(3, [(other, labels)])).total
        block = slice(256 * (place // 256), 256 * (place // 256 + 1))
        own = oracle.answer(asked, Batch(3, [(features[block], labels[block])])).total
        own = own - oracle.answer(asked, Batch(3, [(other[block], labels[block])])).total
        assert np.array_equal(change, own)
        nothing = not np.isfinite(value) or (value == 0.0 and not intercept)  # a row against none: zero-out
        replaced = 1.0 if nothing else 2.0
        assert np.linalg.norm(change) <= clip * (replaced + SUMMATION_SLACK) + math.sqrt(change.size) * grid


@pytest.mark.parametrize("row_bytes", [264, 4400])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_that_does_not_count_is_a_zero_row_bit_for_bit(dtype: str, row_bytes: int) -> None:
    width = row_bytes // np.dtype(dtype).itemsize
    features, labels = rows_of(Logistic(), 500, width, dtype)
    spoilt, zeroed = features.copy(), features.copy()
    for place, value in ((0, np.nan), (64, np.inf), (65, np.nan), (66, np.nan), (300, -np.inf), (499, np.nan)):
        spoilt[place, place % width], zeroed[place] = value, 0.0
    asked = query_of(Logistic(), width)
    one = CompiledOracle(Logistic()).answer(asked, Batch(3, [(spoilt, labels)]))
    two = CompiledOracle(Logistic()).answer(asked, Batch(3, [(zeroed, labels)]))
    assert one.total.tobytes() == two.total.tobytes()
    assert (one.zeroed_rows, two.zeroed_rows) == (6, 0)


def cauchy(score: float, label: float) -> float:
    difference = score - label
    return 2.0 * difference / (1.0 + difference * difference)


def picky(score: float, label: float) -> float:
    if label == 0.0:
        raise ValueError("the label of a row is 0")
    return score


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_on_which_a_users_slope_fails_is_a_zero_row(sparse: bool) -> None:
    features, labels = rows_of(Logistic(), 5000, 20, np.float64)
    asked = replace(query_of(Logistic(), 20), size=5000)
    rows = csr_matrix(features) if sparse else features
    oracle = CompiledOracle(CustomLoss(), slope=picky)
    found = oracle.answer(asked, Batch(3, [(rows, labels)]))
    agree(LinearOracle(CustomLoss(), slope=picky).answer(asked, Batch(3, [(rows, labels)])), found, 1e-11, 0.8)
    assert found.zeroed_rows == np.sum(labels == 0.0) > 0


def test_a_slope_that_fails_on_all_synthetic_rows_raises_before_a_row() -> None:
    def never(score: float, label: float) -> float:
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        CompiledOracle(CustomLoss(), slope=never).answer(query_of(Logistic(), 20), Batch(3, []))


def test_a_users_slope_is_compiled_in() -> None:
    """Dense and, in plain Python, one row at a time: the same answers."""
    features, labels = rows_of(Logistic(), 300, 20, np.float64)
    asked = query_of(Logistic(), 20)
    plain = LinearOracle(CustomLoss(), slope=cauchy).answer(asked, Batch(3, [(features, labels)]))
    agree(plain, CompiledOracle(CustomLoss(), slope=cauchy).answer(asked, Batch(3, [(features, labels)])), 1e-12, 0.8)
    x, before = asked.points
    c = 4.0 * np.array([cauchy(s, y) for s, y in zip(features @ x, labels, strict=True)])
    c -= 3.0 * np.array([cauchy(s, y) for s, y in zip(features @ before, labels, strict=True)])
    c *= np.minimum(1.0, 0.8 / (np.abs(c) * np.linalg.norm(features, axis=1)))
    np.testing.assert_allclose(plain.total, c @ features, rtol=0, atol=1e-11)


def test_points_or_clips_that_float32_cannot_hold_are_taken_in_float64() -> None:
    features, labels = rows_of(Squared(5.0), 200, 8, np.float32)
    for scale, clip in ((1e25, 1.0), (1.0, 1e-30), (1.0, 1e30)):
        asked = query_of(Squared(5.0), 8, clip=clip)
        asked = Query(3, tuple(scale * x for x in asked.points), asked.weights, clip, 200)
        plain = LinearOracle(Squared(5.0)).answer(asked, Batch(3, [(features, labels)]))
        compiled = CompiledOracle(Squared(5.0)).answer(asked, Batch(3, [(features, labels)]))
        assert np.linalg.norm(plain.total - compiled.total) <= 1e-11 * max(np.linalg.norm(plain.total), clip)


def test_row_by_row_rounding_is_left_to_the_plain_oracle() -> None:
    features, labels = rows_of(Logistic(), 50, 5, np.float32)
    asked = query_of(Logistic(), 5, grid=2.0**-12, rowwise=True)
    plain = LinearOracle(Logistic()).answer(asked, Batch(3, [(features, labels)])).total
    assert np.array_equal(CompiledOracle(Logistic()).answer(asked, Batch(3, [(features, labels)])).total, plain)


def test_an_empty_batch_is_a_zero_sum() -> None:
    for chunks in ([], [(np.empty((0, 3)), np.empty(0))]):
        for loss in (Logistic(), Softmax(classes=4)):
            answer = CompiledOracle(loss).answer(query_of(loss, 3), Batch(3, chunks))
            assert answer.rows == 0
            assert not answer.total.any()


def test_public_sizes_choose_the_oracle() -> None:
    problem = Problem(Logistic(), L2Ball(1.0), dimension=100, intercept=True)
    assert linear_oracle(problem, 1000) == LinearOracle(Logistic(), intercept=True)
    assert linear_oracle(problem, 10_000_000) == CompiledOracle(Logistic(), intercept=True)


def test_numba_is_loaded_on_first_use_only() -> None:
    code = (
        "import sys, dpsco, dpsco.clipping.compiled; sys.exit('numba' in sys.modules or 'scipy.sparse' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
