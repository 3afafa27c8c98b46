"""The closed-form oracle of linear models against per-example differentiation, and its arithmetic against Fractions.

The reference differentiates independently written losses by the complex step, f'(x) = Im f(x + ih)/h with
h = 1e-30: no cancellation, so it is exact to rounding.
"""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsco import Huber, LinearOracle, Logistic, MulticlassHinge, PerExample, SmoothedHinge, Softmax, Squared
from dpsco.clipping.linear_blocks import DenseBlock
from dpsco.query import CHUNK_ROWS, SUMMATION_SLACK, Batch, Query, chunk_multiple, to_grid
from dpsco.rows.on_demand import RowsOnDemand

LOSSES = [
    Logistic(),
    Squared(label_bound=5.0),
    Huber(width=0.7),
    SmoothedHinge(width=0.6),
    Softmax(classes=4),
    MulticlassHinge(3, 0.6),
]
IDS = [loss.kind for loss in LOSSES]


# --- the losses once more, for one row and complex scores -------------------------------------


def loss_value(loss: Any, scores: list[complex], label: float) -> complex:
    m = scores[0]
    if isinstance(loss, Logistic):
        return cmath.log(1 + cmath.exp(-m if label == 1 else m))
    if isinstance(loss, Squared):
        return (m - label) ** 2 / 2
    if isinstance(loss, Huber):
        d = m - label
        if abs(d.real) <= loss.width:
            return d * d / 2
        return loss.width * (d if d.real > 0 else -d) - loss.width**2 / 2
    if isinstance(loss, SmoothedHinge):
        short = 1 - m if label == 1 else 1 + m
        if short.real <= 0:
            return 0j
        return short * short / (2 * loss.width) if short.real < loss.width else short - loss.width / 2
    if isinstance(loss, MulticlassHinge):
        raised = [score + (k != label) for k, score in enumerate(scores)]
        return loss.width * cmath.log(sum(cmath.exp(m / loss.width) for m in raised)) - raised[int(label)]
    largest = max(score.real for score in scores)
    return cmath.log(sum(cmath.exp(score - largest) for score in scores)) + largest - scores[int(label)]


def gradient(loss: Any, x: np.ndarray, features: np.ndarray, label: float) -> np.ndarray:
    """d loss / d x, coordinate by coordinate."""
    step = 1e-30
    weights = x.reshape(loss.outputs, -1)
    result = np.empty_like(x)
    for j in range(x.size):
        moved = weights.astype(complex)
        moved.ravel()[j] += 1j * step
        result[j] = loss_value(loss, [complex(v) for v in moved @ features], label).imag / step
    return result


def reference(loss: Any, query: Query, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """sum_d clip(sum_j w_j grad f(x_j, d), C), row by row, with exactly rounded sums."""
    rows = []
    for a, y in zip(features, labels, strict=True):
        difference = sum(w * gradient(loss, x, a, y) for w, x in zip(query.weights, query.points, strict=True))
        rows.append(difference * min(1.0, query.clip / max(np.linalg.norm(difference), 1e-300)))
    return np.array([math.fsum(column) for column in np.array(rows).T])


def problem(
    loss: Any, rows: int, width: int, *, intercept: bool, seed: int
) -> tuple[np.ndarray, np.ndarray, Callable[..., Query]]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, width))
    if intercept:
        features[:, -1] = 1.0
    labels = rng.integers(0, loss.outputs if loss.outputs > 1 else 2, rows).astype(float)
    points = tuple(rng.normal(size=width * loss.outputs) for _ in range(2))

    def query(clip: float, **more: Any) -> Query:
        return Query(3, points, (4.0, -3.0), clip, rows, **more)

    return features, labels, query


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("clip", [math.inf, 100.0, 1.5, 0.01])
@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_closed_form_equals_per_example_differentiation(loss: Any, clip: float, rowwise: bool, intercept: bool) -> None:
    """To 1e-12 of the sum of the rows' norms, for every loss, with clips that bind for none, some and all rows."""
    features, labels, query = problem(loss, 40, 6, intercept=intercept, seed=11)
    asked = query(clip, rowwise=rowwise)
    answer = LinearOracle(loss).answer(asked, Batch(3, [(features, labels)]))
    expected = reference(loss, asked, features, labels)
    scale = sum(np.linalg.norm(reference(loss, asked, features[i : i + 1], labels[i : i + 1])) for i in range(40))
    assert np.linalg.norm(answer.total - expected) <= 1e-12 * scale
    assert answer.rows == 40


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_round_zero_asks_one_gradient(loss: Any) -> None:
    features, labels, query = problem(loss, 30, 5, intercept=False, seed=12)
    full = query(0.5)
    asked = Query(0, full.points[:1], (1.0,), 0.5, 30)
    total = LinearOracle(loss).answer(asked, Batch(0, [(features, labels)])).total
    assert np.allclose(total, reference(loss, asked, features, labels), rtol=0, atol=1e-12 * 30)


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_the_difference_is_clipped_and_not_the_gradients(loss: Any) -> None:
    """With equal points the difference is one gradient for any weights; clipping each gradient gives another sum."""
    features, labels, query = problem(loss, 20, 5, intercept=False, seed=13)
    point = query(1.0).points[0]
    both = Query(9, (point, point), (10.0, -9.0), 1.0, 20)
    single = Query(0, (point,), (1.0,), 1.0, 20)
    oracle = LinearOracle(loss)
    one = oracle.answer(both, Batch(9, [(features, labels)])).total
    two = oracle.answer(single, Batch(0, [(features, labels)])).total
    assert np.allclose(one, two, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_the_generic_oracle_agrees_with_the_closed_form(loss: Any) -> None:
    features, labels, query = problem(loss, 300, 4, intercept=False, seed=14)
    generic = PerExample(lambda x, a, y: gradient(loss, x, a, y))
    for rowwise in (False, True):
        asked = query(0.8, rowwise=rowwise)
        one = LinearOracle(loss).answer(asked, Batch(3, [(features, labels)])).total
        two = generic.answer(asked, Batch(3, [(features, labels)])).total
        assert np.allclose(one, two, rtol=0, atol=1e-11)


# --- arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_a_row_contributes_the_same_bits_alone_and_in_any_company(loss: Any) -> None:
    """Rowwise mode. Other rows contribute 0 (zero and NaN rows) or almost 0 (subnormal): the sum is the row's."""
    rng = np.random.default_rng(15)
    for width in (1, 3, 50, 9000 // loss.outputs):
        points = tuple(rng.normal(size=width * loss.outputs) for _ in range(2))
        query = Query(1, points, (2.0, -1.0), 0.3, 10, grid=2.0**-200, rowwise=True)
        for scale in (1.0, 1.0, 1e142, 1e142):
            row = scale * rng.normal(size=width)
            alone = LinearOracle(loss).answer(query, Batch(1, [(row[None], np.ones(1))])).total
            for rows, place in ((2, 0), (2, 1), (7, 3), (256, 0), (257, 256), (700, 600), (1025, 1024)):
                features = np.zeros((rows, width), order=rng.choice(["C", "F"]))
                features[::3] = 1e-310
                features[1::3] = np.nan
                features[place] = row
                company = LinearOracle(loss).answer(query, Batch(1, [(features, np.ones(rows))])).total
                assert company.tobytes() == alone.tobytes(), (width, rows, place)


@pytest.mark.parametrize("rowwise", [False, True])
def test_the_answer_does_not_depend_on_how_a_batch_is_cut_into_chunks(rowwise: bool) -> None:
    """Chunks hold a multiple of CHUNK_ROWS rows, so no block spans two of them."""
    loss = Logistic()
    features, labels, query = problem(loss, 3 * CHUNK_ROWS + 100, 5, intercept=False, seed=16)
    asked = query(0.5, grid=2.0**-13, rowwise=rowwise)
    whole = LinearOracle(loss).answer(asked, Batch(3, [(features, labels)]))
    edges = [0, CHUNK_ROWS, 3 * CHUNK_ROWS, len(labels)]
    chunks = [(features[a:b], labels[a:b]) for a, b in itertools.pairwise(edges)]
    pieces = LinearOracle(loss).answer(asked, Batch(3, chunks))
    assert np.array_equal(whole.total, pieces.total)
    shards = [LinearOracle(loss).answer(asked, Batch(3, [chunk])) for chunk in reversed(chunks)]
    assert np.array_equal((shards[0] + shards[1] + shards[2]).total, whole.total)
    assert whole.rows == pieces.rows == len(labels)


@pytest.mark.parametrize("oracle", ["closed form", "per example"])
def test_only_the_block_of_a_changed_row_changes(oracle: str) -> None:
    """The grid makes block sums whole numbers of steps: zeroing one row moves the total by that block's change."""
    loss = Squared(label_bound=5.0)
    size = DenseBlock.rows(3, 1) if oracle == "closed form" else 256
    features, labels, query = problem(loss, 4 * size, 3, intercept=False, seed=17)
    answerer: Any = LinearOracle(loss) if oracle == "closed form" else PerExample(lambda x, a, y: (a @ x - y) * a)
    grid = 2.0**-13
    asked = query(0.5, grid=grid)
    for place in (0, size - 1, size, 2 * size + 188, 4 * size - 1):
        other = features.copy()
        other[place] = 0.0
        other_labels = labels.copy()
        other_labels[place] = 0.0
        first = size * (place // size)
        block = slice(first, first + size)
        change = answerer.answer(asked, Batch(3, [(features, labels)])).total
        change = change - answerer.answer(asked, Batch(3, [(other, other_labels)])).total
        own = answerer.answer(asked, Batch(3, [(features[block], labels[block])])).total
        own = own - answerer.answer(asked, Batch(3, [(other[block], other_labels[block])])).total
        assert np.array_equal(change, own)
        assert np.linalg.norm(change) <= 0.5 * (1 + SUMMATION_SLACK) + math.sqrt(3) * grid


def test_summation_error_of_a_block_is_far_below_what_is_declared() -> None:
    """Against exact sums of the rows' contributions, with bad cancellation: half of SUMMATION_SLACK is allowed."""
    rng, size = np.random.default_rng(18), DenseBlock.rows(3, 1)
    features = np.concatenate([rng.normal(size=(size // 2, 3))] * 2)
    features[size // 2 :] *= -1 + 1e-9
    labels = np.zeros(size)
    query = Query(0, (np.ones(3),), (1.0,), 0.25, size)
    total = LinearOracle(Squared()).answer(query, Batch(0, [(features, labels)])).total
    exact = [Fraction(0)] * 3
    for row in features:
        single = Query(0, (np.ones(3),), (1.0,), query.clip, 1)
        part = LinearOracle(Squared()).answer(single, Batch(0, [(row[None], labels[:1])])).total
        exact = [a + Fraction(b) for a, b in zip(exact, part.tolist(), strict=True)]
    error = math.sqrt(sum(float(Fraction(t) - e) ** 2 for t, e in zip(total.tolist(), exact, strict=True)))
    assert 0 < error <= 1e-6 * SUMMATION_SLACK / 2 * query.clip


def test_a_dense_block_divides_every_chunk_and_holds_a_megabyte_at_most() -> None:
    """Public numbers alone decide. Narrow rows come in long blocks, because each block has a fixed cost."""
    for width in (0, 1, 2, 3, 10, 31, 32, 33, 100, 500, 513, 4096, 10**6):
        for outputs in (1, 3, 10, 1000):
            rows = DenseBlock.rows(width, outputs)
            assert chunk_multiple(max(1, width)) % rows == 0
            assert 256 <= rows <= CHUNK_ROWS
            assert rows == 256 or 8 * rows * width * outputs <= 1 << 20
    assert [DenseBlock.rows(width, 1) for width in (10, 50, 100, 200, 500)] == [4096, 2048, 1024, 512, 256]


@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_every_sum_lies_on_the_grid(loss: Any) -> None:
    features, labels, query = problem(loss, 700, 3, intercept=False, seed=19)
    for rowwise in (False, True):
        total = (
            LinearOracle(loss).answer(query(0.5, grid=2.0**-12, rowwise=rowwise), Batch(3, [(features, labels)])).total
        )
        assert np.array_equal(to_grid(total, 2.0**-12), total)
        assert np.all(np.mod(total * 2.0**12, 1.0) == 0.0)


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_an_intercept_is_a_last_feature_of_one_and_a_zeroed_row_has_none(loss: Any, rowwise: bool) -> None:
    """300 rows, which rowwise blocks pad to 512. A row that counts as zero adds nothing to the intercept either."""
    features, labels, query = problem(loss, 300, 4, intercept=True, seed=21)
    asked = query(0.5, grid=2.0**-12, rowwise=rowwise)
    written = LinearOracle(loss).answer(asked, Batch(3, [(features, labels)]))
    implied = LinearOracle(loss, intercept=True).answer(asked, Batch(3, [(features[:, :-1], labels)]))
    assert np.array_equal(written.total, implied.total)
    nothing = LinearOracle(loss, intercept=True).answer(asked, Batch(3, [(np.full((300, 3), np.nan), labels)]))
    assert not nothing.total.any()
    assert nothing.zeroed_rows == 300


# --- rows that do not count -------------------------------------------------------------------


@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=IDS)
def test_rows_that_are_not_finite_or_have_no_valid_label_count_as_zero_rows(loss: Any, rowwise: bool) -> None:
    features, labels, query = problem(loss, 300, 3, intercept=False, seed=20)
    bad = {
        3: (np.nan, 1.0),
        100: (np.inf, 0.0),
        256: (-np.inf, 1.0),
        299: (1e200, 1.0),
        50: (1.0, np.nan),
        51: (1.0, np.inf),
    }
    spoilt, spoilt_labels, zeroed, zeroed_labels = features.copy(), labels.copy(), features.copy(), labels.copy()
    for place, (value, label) in bad.items():
        spoilt[place, 1], spoilt_labels[place] = value, label
        zeroed[place], zeroed_labels[place] = 0.0, 0.0
    asked = query(0.5, grid=2.0**-12, rowwise=rowwise)
    one = LinearOracle(loss).answer(asked, Batch(3, [(spoilt, spoilt_labels)]))
    two = LinearOracle(loss).answer(asked, Batch(3, [(zeroed, zeroed_labels)]))
    assert np.array_equal(one.total, two.total)
    assert (one.rows, one.zeroed_rows, two.zeroed_rows) == (300, len(bad), 0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rowwise", [False, True])
def test_rows_made_on_demand_give_the_bits_of_the_same_rows_in_an_array_which_stays_as_it_is(
    rowwise: bool, intercept: bool
) -> None:
    rng = np.random.default_rng(8)
    rows, labels = rng.normal(size=(700, 6)), rng.integers(0, 2, 700).astype(float)
    rows[5, 2], rows[300], labels[41] = np.nan, 1e200, 7.0
    rows[600] = 1e-300
    query = Query(0, (rng.normal(size=6 + intercept),), (1.0,), clip=0.4, size=700, rowwise=rowwise)
    given, oracle = rows.copy(), LinearOracle(Logistic(), intercept=intercept)
    made = RowsOnDemand(lambda first, last: given[first:last].copy(), given.shape, given.dtype)
    for features in (given, made):
        answer = oracle.answer(query, Batch(0, [(features, labels.copy())]))
        assert (answer.zeroed_rows, answer.total.tobytes()) == (3, plain_sum(oracle, query, rows, labels).tobytes())
    assert given.tobytes() == rows.tobytes()


def plain_sum(oracle: LinearOracle, query: Query, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return oracle.answer(query, Batch(0, [(rows.copy(), labels.copy())])).total


def test_an_empty_batch_is_a_zero_sum() -> None:
    query = Query(0, (np.zeros(3),), (1.0,), 1.0, 10)
    for chunks in ([], [(np.empty((0, 3)), np.empty(0))]):
        for oracle in (LinearOracle(Logistic()), PerExample(lambda x, a, y: a)):
            answer = oracle.answer(query, Batch(0, chunks))
            assert answer.rows == 0
            assert not answer.total.any()
