"""Squares of contributions beside their sum: what they are, and that no row exceeds the joint bound."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import dpsco
from dpsco.clipping import LinearOracle
from dpsco.clipping.squares import THETA
from dpsco.clipping.survey import sum_length
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.query import Batch, Query
from dpsco.run.train import library_oracle

P = 4
ODD = [
    [3.0, -1.0, 2.0, 0.5],
    [1e149, -1e149, 0.0, 1.0],
    [1e308, 1e308, -1e308, 1.0],
    [np.nan, 0.0, 0.0, 1.0],
    [5e-324, 1e-310, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0],
    [1e6, 0.0, 0.0, 0.0],
    [1 / 3, 2 / 3, 2 / 3, 1e-200],
]


def query(radius: float, outputs: int = 1, **changes) -> Query:
    points = np.random.default_rng(3).standard_normal((2, P * outputs))
    asked = Query(1, tuple(points), (2.0, -1.0), clip=1.3, size=8, squares=0.15, radius=radius)
    return dataclasses.replace(asked, **changes)


def answer(asked: Query, rows, labels, loss: dpsco.Loss) -> np.ndarray:
    batch = Batch(1, [(np.asarray(rows, dtype=np.float64), np.asarray(labels, dtype=np.float64))])
    return LinearOracle(loss).answer(asked, batch).total


@pytest.mark.parametrize("radius", [0.4, 1.2])
@pytest.mark.parametrize("loss", [dpsco.Squared(2.0), dpsco.Softmax(3)])
def test_the_second_half_is_the_weighed_squares_of_shortened_contributions(loss, radius):
    rng, asked = np.random.default_rng(0), query(radius, loss.outputs)
    rows, labels = rng.standard_normal((300, P)), rng.integers(0, 2, 300)
    total = answer(asked, rows, labels, loss)
    assert len(total) == sum_length(asked) == 2 * P * loss.outputs
    c = np.zeros((300, loss.outputs))
    for weight, point in zip(asked.weights, asked.points, strict=True):
        scores = rows @ point.reshape(-1, P).T
        slopes = loss.slope(scores if loss.outputs > 1 else scores[:, 0], labels.astype(float))
        c += weight * slopes.reshape(300, -1)
    each = (c[:, :, None] * rows[:, None, :]).reshape(300, -1)
    bound = asked.clip / np.hypot(1.0, asked.squares)
    each *= np.minimum(1.0, bound / np.linalg.norm(each, axis=1))[:, None]
    np.testing.assert_allclose(total[: each.shape[1]], each.sum(axis=0), rtol=1e-9, atol=1e-9)
    short = each * np.minimum(1.0, radius / np.linalg.norm(each, axis=1))[:, None]
    expected = asked.squares * bound / radius**2 * np.sum(short**2, axis=0)
    np.testing.assert_allclose(total[each.shape[1] :], expected, rtol=1e-9)


@pytest.mark.parametrize("radius", [1e-6, 0.3, 1.2856, 50.0])
def test_no_row_exceeds_the_clip_in_exact_arithmetic(radius):
    asked = query(radius)
    longest = Fraction(0)
    for row in [*ODD, *(5 * np.random.default_rng(1).standard_normal((60, P)))]:
        total = answer(asked, [row], [1.0], dpsco.Squared(2.0))
        assert np.all(np.isfinite(total))
        longest = max(longest, sum((Fraction(float(value)) ** 2 for value in total), Fraction(0)))
    assert longest <= Fraction(asked.clip) ** 2
    assert longest > Fraction(asked.gradient_clip) ** 2 * Fraction(99, 100)


def test_a_row_reaches_the_joint_bound():
    total = answer(query(0.3), [[1e6, 0.0, 0.0, 0.0]], [1.0], dpsco.Squared(2.0))
    assert np.linalg.norm(total) == pytest.approx(1.3, rel=1e-9)


def test_where_each_row_is_rounded_no_place_matters():
    asked = query(0.5, grid=2.0**-30, rowwise=True)
    rows = np.vstack([np.random.default_rng(2).standard_normal((40, P)), ODD])
    labels = np.arange(len(rows)) % 2
    order = np.random.default_rng(4).permutation(len(rows))
    loss = dpsco.Logistic()
    np.testing.assert_array_equal(answer(asked, rows, labels, loss), answer(asked, rows[order], labels[order], loss))
    without = np.arange(len(rows)) != 7
    alone = answer(asked, rows[7:8], labels[7:8], loss)
    np.testing.assert_array_equal(
        answer(asked, rows, labels, loss) - answer(asked, rows[without], labels[without], loss), alone
    )


def test_the_digest_of_a_query_states_squares():
    plain, asked = query(0.0, squares=0.0), query(0.5)
    digests = {plain.digest(), asked.digest(), query(0.6).digest(), query(0.5, squares=0.2).digest()}
    assert len(digests) == 4


def test_the_noise_covers_the_joint_bound_of_twice_as_many_numbers():
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P)
    budget = dpsco.Budget(1.0, 1e-6)
    method = MeasuredSRGD(rounds=4, clip=1.3, radius=0.5)
    schedule = method.schedule(problem, 1000, budget)
    query = method.ask(schedule, method.start(schedule, np.zeros(P)))
    assert (query.squares, query.radius, query.clip) == (THETA, 0.5, 1.3)
    assert schedule.sum_length == sum_length(query) == 2 * P
    plain = dpsco.AcceleratedSRGD(rounds=4, clip=1.3).schedule(problem, 1000, budget)
    assert schedule.most_noise.sigma == pytest.approx(plain.most_noise.sigma, rel=1e-3)  # grids differ
    for wrong in ({"squares": 0.0}, {"squares": 1.5}, {"radius": 0.0}):
        with pytest.raises(dpsco.InvalidArgument):
            MeasuredSRGD(**{"rounds": 4, "clip": 1.3, "radius": 0.5} | wrong)
    with pytest.raises(dpsco.InvalidArgument, match="with noise"):
        method.schedule(problem, 1000, dpsco.Budget(float("inf"), 1e-6))


def test_the_librarys_oracle_of_a_large_plan_makes_squares():
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P)
    method = MeasuredSRGD(rounds=4, clip=1.3, radius=0.5)
    plan = dpsco.Plan(problem, 1 << 24, dpsco.Budget(1.0, 1e-6), method)
    query = method.ask(plan.schedule, method.start(plan.schedule, np.zeros(P)))
    total = library_oracle(plan).answer(query, Batch(0, [(np.ones((3, P)), np.ones(3))])).total
    assert len(total) == plan.schedule.sum_length
