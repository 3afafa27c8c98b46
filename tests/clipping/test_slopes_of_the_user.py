"""A slope that the user brings, compiled: an index beyond an array costs its own row, and reads nothing else."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit, vectorize

import dpsco
from dpsco import InvalidArgument
from dpsco.clipping import CompiledOracle, LinearOracle
from dpsco.clipping.kernels import custom
from dpsco.query import Batch, Query

COSTS = np.array([1.0, 2.0, 3.0])
ODD = [9.0, -7.0, 100.0]
QUERY = Query(0, (np.zeros(2),), (1.0,), 100.0, 300, grid=2.0**-20)


def plain(score: float, label: float) -> float:
    return COSTS[int(label)]


@njit
def look(i: int) -> float:
    return COSTS[i]


@njit
def by_another(score: float, label: float) -> float:
    return look(int(label))


def enclosed() -> Any:
    held = look

    @njit
    def slope(score: float, label: float) -> float:
        return held(int(label))

    return slope


@pytest.mark.parametrize("slope", [plain, by_another, enclosed()])
def test_an_index_beyond_an_array_makes_a_zero_row(slope: Callable[[float, float], float]) -> None:
    labels = np.arange(300) % 3.0
    known = CompiledOracle(dpsco.Huber(width=1.0), slope=slope).answer(QUERY, Batch(0, [(np.ones((300, 2)), labels)]))
    without = known.total - np.sum(COSTS[labels[: len(ODD)].astype(int)])
    labels[: len(ODD)] = ODD
    found = CompiledOracle(dpsco.Huber(width=1.0), slope=slope).answer(QUERY, Batch(0, [(np.ones((300, 2)), labels)]))
    assert known.zeroed_rows == 0
    assert found.zeroed_rows == len(ODD)
    np.testing.assert_allclose(found.total, without, rtol=1e-12)


def test_it_is_the_zero_row_of_the_plain_oracle() -> None:
    odd = [*ODD, 1e12, -1e15]  # far outside of what the process may read
    labels = np.concatenate([np.arange(295) % 3.0, odd])
    rows = np.random.default_rng(0).normal(size=(300, 2))
    answers = [
        kind(dpsco.Huber(width=1.0), slope=plain).answer(QUERY, Batch(0, [(rows, labels)]))
        for kind in (CompiledOracle, LinearOracle)
    ]
    assert answers[0].zeroed_rows == answers[1].zeroed_rows == len(odd)
    np.testing.assert_allclose(answers[0].total, answers[1].total, rtol=1e-9)


@njit
def even(i: int) -> float:
    return COSTS[i] if i == 0 else odd(i - 1)


@njit
def odd(i: int) -> float:
    return COSTS[i] if i == 1 else even(i - 1)


HELD = (look, look)
THIS = sys.modules[__name__]


def in_a_tuple(score: float, label: float) -> float:
    return HELD[0](int(label))


def in_a_module(score: float, label: float) -> float:
    return THIS.look(int(label))


def one_of_two(score: float, label: float) -> float:
    return even(int(label))


@pytest.mark.parametrize("slope", [in_a_tuple, in_a_module, one_of_two])
def test_a_compiled_function_that_cannot_be_compiled_again_is_refused(slope: Callable[[float, float], float]) -> None:
    with pytest.raises(InvalidArgument, match="by its name"):
        CompiledOracle(dpsco.Huber(width=1.0), slope=slope).answer(QUERY, Batch(0, [(np.ones((3, 2)), np.zeros(3))]))


def test_a_function_that_calls_itself_is_compiled_with_the_check() -> None:
    checked = custom._checked(by_itself, {})
    assert checked(0.0, 2.0) == 3.0
    assert checked(0.0, 4.0) == 3.0
    with pytest.raises(IndexError):
        checked(0.0, -7.0)


@njit
def down(i: int) -> float:
    return COSTS[i] if i < 3 else down(i - 1)


@njit
def by_itself(score: float, label: float) -> float:
    return down(int(label))


@pytest.mark.filterwarnings("error")
def test_what_a_plain_slope_warns_of_on_a_row_is_not_shown() -> None:
    def slope(score: float, label: float) -> float:
        if label == 9.0:
            warnings.warn("it did not converge", stacklevel=1)
        return label

    found = LinearOracle(dpsco.Huber(width=1.0), slope=slope)
    answer = found.answer(QUERY, Batch(0, [(np.ones((3, 2)), np.array([0.0, 9.0, 1.0]))]))
    assert answer.zeroed_rows == 0


@vectorize
def looked_up(i: float) -> float:
    return COSTS[int(i)]


def by_a_universal_function(score: float, label: float) -> float:
    return looked_up(label)


def through_flat(score: float, label: float) -> float:
    return COSTS.flat[int(label)]


def as_a_default(score: float, label: float, held: Any = look) -> float:
    return held(int(label))


@pytest.mark.parametrize("slope", [by_a_universal_function, through_flat, as_a_default])
def test_what_numba_does_not_check_is_refused_by_name(slope: Callable[[float, float], float]) -> None:
    """One row with an index far beyond the table ended the process."""
    with pytest.raises(InvalidArgument, match="slope"):
        custom.kernels(slope)
