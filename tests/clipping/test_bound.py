"""Clipping is a bound in exact rational arithmetic, for any row, any legal clip, any loss."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsco import Huber, LinearOracle, Logistic, MulticlassHinge, PerExample, SmoothedHinge, Softmax, Squared
from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.query import Batch, Query

CLIPS = (1e-100, 1.596e-19, 1e-10, 0.3, 1.0, 7.0, 1e100)


def squared_norm(vector: np.ndarray) -> Fraction:
    return sum((Fraction(value) ** 2 for value in vector.tolist()), Fraction(0))


def adversarial_rows(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Ordinary, mixed-scale, huge, tiny, subnormal, equal, one-hot, NaN and infinite rows, shuffled."""
    rows = rng.normal(size=(count, width))
    kind = rng.integers(0, 10, count)
    with np.errstate(all="ignore"):
        rows[kind == 1] *= 10.0 ** rng.uniform(-160, 160, (np.sum(kind == 1), width))  # mixed within a row
        rows[kind == 2] *= 10.0 ** rng.uniform(-330, 308, (np.sum(kind == 2), 1))
        rows[kind == 3] = 10.0 ** rng.uniform(148, 150.2, (np.sum(kind == 3), 1))
        rows[kind == 4] = 5e-324 * rng.integers(0, 1 << 20, (np.sum(kind == 4), width))
        rows[kind == 5] = rng.choice([1.0, 0.1, 1 / 3, 1e10], (np.sum(kind == 5), 1))
        rows[kind == 6] *= rng.random((np.sum(kind == 6), width)) < 0.3
        rows[kind == 7] *= 10.0 ** rng.uniform(-20, 20, (np.sum(kind == 7), 1))
    odd = rng.random(count) < 0.03
    rows[odd, rng.integers(0, width)] = rng.choice([np.nan, np.inf, -np.inf, 1.7e308], np.sum(odd))
    return rows


def adversarial_labels(rng: np.random.Generator, loss: Any, count: int) -> np.ndarray:
    labels = rng.integers(0, 2, count).astype(float)
    if loss.kind in ("squared", "huber"):
        with np.errstate(all="ignore"):
            labels = rng.normal(size=count) * 10.0 ** rng.uniform(-300, 250, count)
    labels[rng.random(count) < 0.02] = rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.5])
    return labels


LOSSES = [
    Logistic(),
    Squared(label_bound=1e250),
    Huber(width=1e250),
    Huber(),
    SmoothedHinge(),
    Softmax(classes=3),
    MulticlassHinge(3),
]


def worst_excess(loss: Any, count: int, seed: int) -> float:
    """The largest exact norm over clip, minus 1, over ``count`` rows sent through the oracle one by one."""
    rng = np.random.default_rng(seed)
    oracle, worst = LinearOracle(loss), Fraction(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for width in (1, 3, 8):
            rows = adversarial_rows(rng, count // 3, width)
            labels = adversarial_labels(rng, loss, len(rows))
            size = width * loss.outputs
            for k in range(len(rows)):
                clip = CLIPS[k % len(CLIPS)]
                points = (rng.normal(size=size) * 10.0 ** rng.integers(-3, 4), rng.normal(size=size))
                query = Query(1, points, (2.0 + k % 50, -1.0 - k % 50), clip, 10, rowwise=bool(k % 2))
                total = oracle.answer(query, Batch(1, [(rows[k : k + 1], labels[k : k + 1])])).total
                assert np.all(np.isfinite(total))
                worst = max(worst, squared_norm(total) / Fraction(clip) ** 2)
    return math.sqrt(worst) - 1.0 if worst < 1 else float(worst)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_no_row_exceeds_the_clip_in_exact_arithmetic(loss: Any) -> None:
    """3,000 rows per loss; the largest norm is also close to the clip, so the margin is not applied twice."""
    assert -1e-13 < worst_excess(loss, 3000, seed=9) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_no_row_of_a_million_exceeds_the_clip_in_exact_arithmetic(loss: Any) -> None:
    assert -1e-13 < worst_excess(loss, 170_000, seed=10) <= 0


def test_no_gradient_of_the_users_exceeds_the_clip_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(11)
    rows = adversarial_rows(rng, 2000, 5)
    oracle, worst = PerExample(lambda x, features, label: features), Fraction(0)
    for k, row in enumerate(rows):
        clip = CLIPS[k % len(CLIPS)]
        query = Query(1, (np.zeros(5), np.zeros(5)), (3.0, -2.0), clip, 10, rowwise=bool(k % 2))
        total = oracle.answer(query, Batch(1, [(row[None], np.zeros(1))])).total
        worst = max(worst, squared_norm(total) / Fraction(clip) ** 2)
    assert 1 - Fraction(1, 10**13) < worst <= 1


def test_a_long_row_with_a_long_slope_is_not_stretched_by_underflow() -> None:
    """||a|| = 5e149 and slope 1e155: the factor that clips the product would be subnormal and off by up to 2x."""
    for clip in 10.0 ** np.linspace(-100, 100, 401):
        rows, labels = np.array([[3e149, 4e149, 1e149]]), np.array([1.2345e155])
        query = Query(1, (np.zeros(3), np.zeros(3)), (2.0, -1.0), float(clip), 10)
        total = LinearOracle(Squared(label_bound=1e200)).answer(query, Batch(1, [(rows, labels)])).total
        assert squared_norm(total) <= Fraction(float(clip)) ** 2


@pytest.mark.parametrize(
    "row", [[5e-324] * 2, [5e-324] * 3, [1e-323, 5e-324], [1.8e-318, 4.8e-318, 9e-319], [1e-308, 1e-308]]
)
def test_a_short_row_with_a_long_slope_is_not_stretched_by_subnormal_lengths(row: list[float]) -> None:
    """The norm of (5e-324, 5e-324) is 7e-324, which float64 rounds to 5e-324: off by 1.41x."""
    for clip in (1e-100, 1e-90, 3e-75):
        query = Query(0, (np.zeros(len(row)),), (1.0,), clip, 10)
        total = (
            LinearOracle(Squared(label_bound=1e250))
            .answer(query, Batch(0, [(np.array([row]), np.array([1e250]))]))
            .total
        )
        assert squared_norm(total) <= Fraction(clip) ** 2


def test_norms_are_within_their_stated_error_for_any_finite_row() -> None:
    rng = np.random.default_rng(12)
    for width in (1, 2, 7, 40):
        rows = adversarial_rows(rng, 400, width)
        rows = rows[np.all(np.isfinite(rows), axis=1)]
        bound = Fraction(width / 2 + 4) / 2**53
        for row, norm in zip(rows, row_norms(rows).tolist(), strict=True):
            exact = squared_norm(row)
            if math.isinf(norm):
                assert exact > Fraction(1.7e308) ** 2
                continue
            # A norm in the subnormal range has no more than its absolute spacing.
            low, high = Fraction(norm) * (1 - bound) - Fraction(5e-324), Fraction(norm) * (1 + bound) + Fraction(5e-324)
            assert max(low, Fraction(0)) ** 2 <= exact <= high**2


def test_norms_that_are_not_finite_are_reported_as_such() -> None:
    rows = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, np.nan], [1.7e308, 1.7e308], [1.0, 1.0]])
    assert np.isfinite(row_norms(rows)).tolist() == [False, False, False, False, True]


def test_the_norm_of_a_row_does_not_depend_on_its_company() -> None:
    rng = np.random.default_rng(13)
    rows = adversarial_rows(rng, 300, 6)
    together = row_norms(rows)
    alone = np.concatenate([row_norms(row[None]) for row in rows])
    backwards = row_norms(rows[::-1])[::-1]
    assert together.tobytes() == alone.tobytes() == backwards.tobytes()


def test_the_factor_is_exactly_one_below_the_clip_and_never_above_it() -> None:
    norms = np.array([0.0, 5e-324, 0.5, 0.999, 1.0, 2.0, 1e149, LARGEST_NORM * 2, np.inf])
    scale, over = clip_scale(norms, 1.0, 10)
    assert scale[:4].tolist() == [1.0] * 4
    assert over.tolist() == [False] * 4 + [True] * 5
    assert np.all((scale[4:] < 1.0) & (scale[4:] >= 0.0))
    assert scale[-2:].tolist() == [0.0, 0.0]


def test_without_a_clip_nothing_is_changed() -> None:
    scale, over = clip_scale(np.array([0.0, 1.0, 1e300]), math.inf, 3)
    assert scale.tolist() == [1.0, 1.0, 1.0]
    assert not over.any()
