"""The compiled clip is a bound in exact arithmetic, checked with Fractions on adversarial rows.

A batch of one row gives that row's contribution c a, rounded entry by entry. The factor c is recovered from it exactly:
it is the number of the kernel's type for which every rounded product agrees, and the exact norm is |c| ||a||.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpsco import Logistic, Squared
from dpsco.clipping import CompiledOracle
from dpsco.query import SUMMATION_SLACK, Batch, Query

TYPES = ["float32", "float64"]


def adversarial(dtype: str, width: int, seed: int) -> list[np.ndarray]:
    """Rows of one scale, of mixed scales, near over- and underflow of their squares, subnormal, and of one entry."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    low, high = math.log2(float(info.smallest_subnormal)) + 2, math.log2(float(info.max)) - 8
    exponents = [0, 1, -20, 20, low, low + 10, low / 2, low / 2 - 3, high / 2, high / 2 + 2, high]
    rows = [np.ldexp(rng.normal(size=width), int(e)) for e in exponents if e < 480]
    rows += [np.ldexp(rng.normal(size=width), rng.integers(-spread, spread, width)) for spread in (10, 30, 60)]
    rows += [np.where(np.arange(width) == 0, 1.0, 2.0**-12), np.full(width, 1 / 3), np.eye(1, width, width - 1)[0]]
    return [row.astype(dtype) for row in rows]


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(a)) ** 2 for a in row), Fraction(0))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 7, 40])
def test_one_rows_contribution_is_never_longer_than_the_clip(width: int, dtype: str, sparse: bool) -> None:
    """Each entry of the sum is a rounding of c a_j: |c| is at most the least (|entry| + its rounding) / |a_j|.

    The bound on |c| is exact to half a unit in the last place; float32's margin of 32 units and float64's of width + 32
    leave room to see it.
    """
    rng = np.random.default_rng(3)
    for clip in (1.0, 0.3, 1e-3, 77.0):
        for row in adversarial(dtype, width, seed=width):
            x = rng.normal(size=width)
            asked = Query(0, (x, rng.normal(size=width)), (5.0, -4.0), clip, 10_000)
            features: Any = csr_array(row[None]) if sparse else row[None]
            for loss, label in ((Logistic(), 0.0), (Squared(1e9), 1e8)):
                total = CompiledOracle(loss, threads=1).answer(asked, Batch(0, [(features, np.array([label]))])).total
                if not total.any():
                    continue
                # The exact vector c a differs from its rounding by at most a unit roundoff of each entry.
                unit = Fraction(2) ** (-24 if dtype == "float32" and not sparse else -53)
                tiny = Fraction(2) ** -1074 if dtype == "float64" or sparse else Fraction(2) ** -149
                largest = int(np.argmax(np.abs(row)))
                entry, a = Fraction(float(abs(total[largest]))), Fraction(float(abs(row[largest])))
                factor = (entry * (1 + 2 * unit) + tiny) / a
                slack = (1 + 4 * unit) ** 2
                assert factor**2 * exact_square(row) <= Fraction(clip) ** 2 * slack
                assert exact_square(total) <= Fraction(clip) ** 2 * slack


@pytest.mark.parametrize("dtype", TYPES)
def test_the_factor_itself_is_a_bound(dtype: str) -> None:
    """Rows of powers of two make every product exact, so c is exact and |c| ||a|| <= clip is decided without slack."""
    rng = np.random.default_rng(4)
    for width in (1, 2, 3, 16, 17, 100, 513, 2000):
        for scale in (1.0, 2.0**20, 2.0**-30):
            row = (scale * rng.choice([-1.0, 1.0], width)).astype(dtype)
            for clip in (1.0, 0.7, 1e-3):
                asked = Query(0, (np.zeros(width),), (1e13 * (1 + rng.random()),), clip, 10_000)
                answer = CompiledOracle(Logistic(), threads=1).answer(asked, Batch(0, [(row[None], np.zeros(1))]))
                assert answer.clipped_rows == 1
                factor = Fraction(float(answer.total[0])) / Fraction(float(row[0]))
                assert factor**2 * exact_square(row) <= Fraction(clip) ** 2
                assert abs(float(factor)) * math.sqrt(width) * scale >= clip * (1 - 1e-5)


@pytest.mark.parametrize("row_bytes", [40, 4400])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_summation_error_of_a_block_is_within_what_is_declared(dtype: str, row_bytes: int) -> None:
    """Against exact sums of single rows' contributions, with cancellation at its worst: SUMMATION_SLACK / 2 allowed."""
    rng, width = np.random.default_rng(5), row_bytes // np.dtype(dtype).itemsize
    half = rng.normal(size=(32, width)).astype(dtype)
    features = np.concatenate([half, -half * np.asarray(1 - 1e-6, dtype)])
    asked = Query(0, (np.ones(width),), (1.0,), 0.25, 10_000)
    oracle, labels = CompiledOracle(Squared(1.0), threads=1), np.ones(64)
    total = oracle.answer(asked, Batch(0, [(features, labels)])).total
    exact = [Fraction(0)] * width
    for row in features:
        part = oracle.answer(asked, Batch(0, [(row[None], labels[:1])])).total
        exact = [a + Fraction(float(b)) for a, b in zip(exact, part, strict=True)]
    error = math.sqrt(sum(float(Fraction(float(t)) - e) ** 2 for t, e in zip(total, exact, strict=True)))
    assert error <= SUMMATION_SLACK / 2 * 0.25
