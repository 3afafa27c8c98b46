"""PerExample: one row changes the sum by at most the clip, whatever the gradient function does."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import (
    AcceleratedSRGD,
    Budget,
    CustomLoss,
    DataError,
    InvalidArgument,
    L2Ball,
    PerExample,
    Plan,
    Problem,
    stream,
    train,
)
from dpsco.clipping import LinearOracle
from dpsco.query import Batch, Query

POINT = np.array([0.5, -1.0, 2.0])
QUERY = Query(1, (POINT, POINT / 2), (2.0, -1.0), 1.0, 10)
ROWS = (np.random.default_rng(0).normal(size=(10, 3)), np.arange(10.0))


def plan(rounds: int = 2) -> Plan:
    problem = Problem(CustomLoss(), L2Ball(3.0), 3)
    return Plan(
        problem=problem, n=10, budget=Budget(1.0, 1e-6), method=AcceleratedSRGD(rounds=rounds, beta=1.0, clip=1.0)
    )


def test_the_sum_is_that_of_clipped_weighted_differences() -> None:
    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        return (a @ x - y) * a

    expected = np.zeros(3)
    for a, y in zip(*ROWS, strict=True):
        difference = 2 * gradient(POINT, a, y) - gradient(POINT / 2, a, y)
        expected += difference * min(1.0, 1.0 / np.linalg.norm(difference))
    answer = PerExample(gradient).answer(QUERY, Batch(1, [ROWS]))
    assert np.allclose(answer.total, expected, rtol=0, atol=1e-13)
    assert answer.rows == 10


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        return {1: np.full(3, np.nan), 4: np.array([np.inf, -np.inf, 0]), 7: np.full(3, 1e200)}.get(int(y), a)

    answer = PerExample(gradient).answer(QUERY, Batch(1, [ROWS]))
    kept = np.isin(np.arange(10), (1, 4, 7), invert=True)
    expected = PerExample(lambda x, a, y: a).answer(QUERY, Batch(1, [(ROWS[0][kept], ROWS[1][kept])]))
    assert np.array_equal(answer.total, expected.total)
    assert answer.zeroed_rows == 3


def test_a_function_that_works_in_place_cannot_write_rows_into_the_iterates() -> None:
    """x += a is a common mistake; it must fail, because it would add rows without noise to the model."""

    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        x += 1e3 * a
        return np.zeros_like(x)

    with pytest.raises(ValueError, match="read-only"):
        train(plan(), stream(*ROWS), oracle=PerExample(gradient))


def test_numpy_warnings_inside_the_function_are_silent() -> None:
    """A warning that depends on a row is an output."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PerExample(lambda x, a, y: a / (y - 3.0) + np.exp(900.0 * y)).answer(QUERY, Batch(1, [ROWS]))


def test_warnings_of_python_code_inside_the_function_are_silent_on_rows_of_the_data() -> None:
    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        if y == 7.0:  # as "Mean of empty slice" of NumPy or an ill-conditioned matrix of SciPy: np.errstate has no say
            warnings.warn("an odd row", RuntimeWarning, stacklevel=1)
        return (a @ x - y) * a

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = PerExample(gradient).answer(QUERY, Batch(1, [ROWS]))
        warnings.warn("of the caller", RuntimeWarning, stacklevel=1)
    assert [str(each.message) for each in caught] == ["of the caller"]
    assert answer.zeroed_rows == 0


def test_a_function_that_works_in_place_changes_neither_the_rows_nor_its_next_call() -> None:
    def in_place(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        a *= a @ x - y
        return a

    rows, before = (ROWS[0].copy(), ROWS[1]), ROWS[0].copy()
    answer = PerExample(in_place).answer(QUERY, Batch(1, [rows]))
    assert np.array_equal(rows[0], before)
    plain = PerExample(lambda x, a, y: a * (a @ x - y)).answer(QUERY, Batch(1, [rows]))
    assert np.array_equal(answer.total, plain.total)


def normalising(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
    """A gradient that fails on rows of zeros, whatever their label."""
    unit = np.array([value / math.sqrt(float(a @ a)) for value in a.tolist()])
    return (unit @ x - y) * unit


def failing(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
    raise ValueError("broken")


def test_a_row_on_which_the_function_fails_is_a_zero_row_even_if_synthetic_rows_of_zeros_fail_too() -> None:
    odd = ROWS[0].copy()
    odd[4] = 0.0
    kept = np.arange(10) != 4
    answer = PerExample(normalising).answer(QUERY, Batch(1, [(odd, ROWS[1])]))
    expected = PerExample(normalising).answer(QUERY, Batch(1, [(ROWS[0][kept], ROWS[1][kept])]))
    assert np.array_equal(answer.total, expected.total)
    assert answer.zeroed_rows == 1


@pytest.mark.parametrize("rows", [ROWS, (np.full((2, 3), np.nan), np.zeros(2)), (np.zeros((0, 3)), np.zeros(0))])
def test_a_function_that_fails_on_all_synthetic_rows_is_refused_whatever_rows_come(rows: Any) -> None:
    with pytest.raises(ValueError, match="broken"):
        PerExample(failing).answer(QUERY, Batch(1, [rows]))


def test_a_failing_function_does_not_tell_whether_the_data_has_rows() -> None:
    own = Plan(plan().problem, 10, Budget(1.0, 1e-6, "add-remove"), AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0))
    for rows in (0, 1):
        data = stream(np.ones((rows, 3)), np.ones(rows), ids=list(range(rows)), non_finite="zero")
        with pytest.raises(ValueError, match="broken"):
            train(own, data, oracle=PerExample(failing))


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros(4), 1.0])
def test_a_gradient_of_another_length_is_refused(wrong: object) -> None:
    with pytest.raises(DataError, match="3 numbers"):
        PerExample(lambda x, a, y: wrong).answer(QUERY, Batch(1, [ROWS]))


def test_a_custom_loss_needs_an_oracle() -> None:
    with pytest.raises(InvalidArgument, match="PerExample"):
        train(plan(), stream(*ROWS))


def test_a_run_with_the_callers_oracle_says_what_it_rests_on() -> None:
    own = train(plan(), stream(*ROWS), oracle=PerExample(lambda x, a, y: a)).report
    problem = Problem(dpsco.Squared(label_bound=9.0), L2Ball(3.0), 3)
    ours = train(
        Plan(problem=problem, n=10, budget=Budget(1.0, 1e-6), method=AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0)),
        stream(*ROWS),
    ).report
    assert any("oracle" in line for line in own.assumptions)
    assert not any("oracle" in line for line in ours.assumptions)


def picky(score: float, label: float) -> float:
    if score < -100.0:
        raise ValueError("far")
    return score - label


def test_a_slope_that_fails_on_a_row_makes_it_a_zero_row_and_one_that_fails_always_is_refused() -> None:
    odd = ROWS[0].copy()
    odd[4] = -1e4 * POINT
    kept = np.arange(10) != 4
    for rowwise in (False, True):
        asked = Query(0, (POINT,), (1.0,), 1.0, 10, 2.0**-20, rowwise)
        answer = LinearOracle(CustomLoss(), slope=picky).answer(asked, Batch(1, [(odd, ROWS[1])]))
        others = LinearOracle(CustomLoss(), slope=picky).answer(asked, Batch(1, [(ROWS[0][kept], ROWS[1][kept])]))
        assert np.allclose(answer.total, others.total, rtol=0, atol=1e-5)
        assert answer.zeroed_rows == 1
    for rows in (ROWS, (np.zeros((0, 3)), np.zeros(0))):
        with pytest.raises(ZeroDivisionError):
            LinearOracle(CustomLoss(), slope=lambda score, label: 1 / 0).answer(QUERY, Batch(1, [rows]))


def test_a_row_on_which_a_function_leaves_python_counts_as_zero() -> None:
    """``sys.exit`` on one row ended the process: an outcome that the row decides."""

    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        if y == 4:
            sys.exit(1)
        return a

    def slope(score: float, label: float) -> float:
        if label == 4:
            raise GeneratorExit
        return 1.0

    kept = np.arange(10) != 4
    for oracle in (PerExample(gradient), LinearOracle(CustomLoss(), slope=slope)):
        answer = oracle.answer(QUERY, Batch(1, [ROWS]))
        others = oracle.answer(QUERY, Batch(1, [(ROWS[0][kept], ROWS[1][kept])]))
        assert np.allclose(answer.total, others.total, rtol=0, atol=1e-12)
        assert answer.zeroed_rows == 1


def test_an_interrupt_of_the_user_ends_the_run() -> None:
    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        if y == 4:
            raise KeyboardInterrupt
        return a

    with pytest.raises(KeyboardInterrupt):
        PerExample(gradient).answer(QUERY, Batch(1, [ROWS]))


def test_a_gradient_function_that_works_in_place_writes_into_no_other_row_and_no_iterate() -> None:
    """Arrays that are only marked as read-only are written to through torch.from_numpy, or by setting the flag."""

    def pure(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        return (a @ x - y) * a

    def in_place(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        before = x.copy()
        x.flags.writeable = a.flags.writeable = True
        x -= (a @ x - y) * a
        return before - x

    asked = [POINT.copy(), POINT / 2]
    query = dataclasses.replace(QUERY, points=tuple(asked))
    expected = PerExample(pure).answer(query, Batch(1, [ROWS])).total
    np.testing.assert_allclose(PerExample(in_place).answer(query, Batch(1, [ROWS])).total, expected, atol=1e-12)
    assert np.array_equal(asked[0], POINT)
    assert np.array_equal(asked[1], POINT / 2)


def test_an_error_mode_that_a_gradient_function_sets_ends_with_its_call() -> None:
    """Else the library's own clipping raises about a row of extreme scales, which is an output."""

    def gradient(x: np.ndarray, a: np.ndarray, y: float) -> np.ndarray:
        np.seterr(all="raise")
        return a

    rows = ROWS[0].copy()
    rows[4] = [1e3, 1e-307, 1e-307]
    before = np.geterr()
    answer = PerExample(gradient).answer(QUERY, Batch(1, [(rows, ROWS[1])]))
    assert np.all(np.isfinite(answer.total))
    assert np.geterr() == before
