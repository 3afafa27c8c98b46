"""Mark 9 at its full size: no row of two million is longer than the clip, decided in exact integers.

Rows of a group have features of their own (a block-diagonal matrix), so that the clipped sum holds every row's
contribution by itself, entry for entry. A few thousand rows come alone besides, at their own narrow widths, where the
margin for rounding is smallest.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.clipping.test_bound import LOSSES, adversarial_labels, adversarial_rows

from dpsco.clipping import CompiledOracle, LinearOracle
from dpsco.clipping.kernel_inputs import row_type
from dpsco.query import CHUNK_ROWS, Batch, Query

GROUP, WIDTHS = 32, (1, 3, 8)
EACH = 250_000
"""Rows for each of the eight: {plain, compiled} x {dense, CSR} x {float64, float32}."""
CLIPS = {"float64": (1e-100, 1.596e-19, 1e-10, 0.3, 1.0, 7.0, 1e100), "float32": (1e-10, 1e-3, 0.3, 1.0, 7.0, 1e5)}


def exact_squares(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """||row||^2 = n 2^e as (n, e), without any rounding."""
    mantissas, exponents = np.frexp(rows)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    lowest = np.min(np.where(whole == 0, 9999, exponents), axis=1, initial=9999)
    shifts = np.where(whole == 0, 0, exponents - lowest[:, None])
    for numbers, shift, low in zip(whole.tolist(), shifts.tolist(), lowest.tolist(), strict=True):
        yield sum((m * m) << (2 * s) for m, s in zip(numbers, shift, strict=True)), 2 * (low - 53)


def within(rows: np.ndarray, clip: float) -> float:
    """The largest ||row|| / clip; a row beyond 1 fails here, in exact arithmetic."""
    numerator, exponent = next(exact_squares(np.array([[clip]])))
    worst = 0.0
    for n, e in exact_squares(rows):
        if n:
            low = min(e, exponent)
            own, allowed = n << (e - low), numerator << (exponent - low)
            assert own <= allowed
            worst = max(worst, own / allowed)
    return math.sqrt(worst)


def rows_of(rng: np.random.Generator, dtype: str, count: int, width: int) -> np.ndarray:
    rows = adversarial_rows(rng, count, width)
    if dtype == "float32":  # the same shapes within the range of float32, subnormal and huge ones too
        rows = np.copysign(np.abs(rows) ** 0.125, rows).astype(np.float32)
    return rows


def grouped(rows: np.ndarray, sparse: bool) -> Any:
    count, width = rows.shape
    if sparse:
        indices, edges = np.arange(count * width, dtype=np.int32), np.arange(0, count * width + 1, width, np.int32)
        return csr_array((rows.ravel(), indices, edges), shape=(count, count * width))
    matrix = np.zeros((count, count, width), rows.dtype)
    matrix[np.arange(count), np.arange(count)] = rows
    return matrix.reshape(count, count * width)


def answered(oracle: Any, query: Query, rows: Any, labels: np.ndarray) -> np.ndarray:
    total = oracle.answer(query, Batch(1, [(rows, labels)])).total
    assert np.all(np.isfinite(total))
    return total


def asked(rng: np.random.Generator, size: int, clip: float, k: int) -> Query:
    points = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4), rng.normal(size=size)
    return Query(1, points, (2.0 + k % 50, -1.0 - k % 50), clip, CHUNK_ROWS)  # the compiled path takes whole chunks


def compiled(loss: Any) -> CompiledOracle:
    return CompiledOracle(loss, threads=1)


ORACLES: dict[str, Callable[[Any], Any]] = {"plain": LinearOracle, "compiled": compiled}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", CLIPS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
@pytest.mark.parametrize("kind", ORACLES)
def test_no_row_exceeds_the_clip(
    kind: str, sparse: bool, dtype: str, mark_figure: Callable[[int, str], None], record_property: Any
) -> None:
    rng = np.random.default_rng([9, len(kind), sparse, len(dtype), dtype == "float32"])
    groups = -(-EACH // (len(LOSSES) * len(WIDTHS) * GROUP))
    seen, worst = 0, 0.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for loss, width in itertools.product(LOSSES, WIDTHS):
            oracle = ORACLES[kind](loss)
            for k in range(groups):
                clip = CLIPS[dtype][k % len(CLIPS[dtype])]
                rows, labels = rows_of(rng, dtype, GROUP, width), adversarial_labels(rng, loss, GROUP)
                query = asked(rng, loss.outputs * GROUP * width, clip, k)
                assert kind == "plain" or row_type(rows.dtype, query) == dtype
                total = answered(oracle, query, grouped(rows, sparse), labels)
                each = total.reshape(loss.outputs, GROUP, width).transpose(1, 0, 2).reshape(GROUP, -1)
                worst, seen = max(worst, within(each, clip)), seen + GROUP
                if k % 10 == 0:  # alone, as wide as it is
                    query = asked(rng, loss.outputs * width, clip, k)
                    alone = csr_array(rows[:1]) if sparse else rows[:1]
                    total = answered(oracle, query, alone, labels[:1])
                    worst, seen = max(worst, within(total[None], clip)), seen + 1
    assert seen >= EACH
    assert worst > 1 - 1e-4  # the margin is not paid twice: some rows come close
    record_property("rows in exact arithmetic", seen)
    mark_figure(9, f"{kind} {'CSR' if sparse else 'dense'} {dtype} 1 - {1 - worst:.0e}")
