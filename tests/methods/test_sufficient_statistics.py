"""Least squares from one release: the statistics, their noise, and what one row does to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco
from dpsco.clipping.survey import pack
from dpsco.query import Array
from dpsco.run import watching

N, P = 3000, 4
KEY = bytes(range(32))


def plan_of(
    *, epsilon: float = 1.0, adjacency: str = "zero-out", intercept: bool = True, radius: float = 20.0
) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Squared(2.0), dpsco.L2Ball(radius), P, feature_norm=3.0, intercept=intercept)
    return dpsco.plan(problem, n=N, budget=dpsco.Budget(epsilon, 1e-5, adjacency), method="sufficient-statistics")


def rows() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(N, P))
    return a, np.clip(a @ [0.5, -0.3, 0.1, 0.0] + 0.4 + 0.2 * rng.normal(size=N), -2, 2)


def sums(plan: dpsco.Plan, data: tuple[Array, Array], **options) -> tuple[Array, dpsco.Result]:
    seen: list[Array] = []
    with watching(lambda query, clipped, released: seen.append(clipped.total.copy())):
        result = dpsco.train(plan, dpsco.stream(*data, non_finite="zero", **options), key=KEY)
    return seen[0], result


def test_without_noise_it_is_least_squares() -> None:
    a, y = rows()
    a *= np.minimum(1.0, 3.0 / np.linalg.norm(a, axis=1))[:, None]
    model = dpsco.train(plan_of(epsilon=math.inf), dpsco.stream(a, y)).model
    exact = np.linalg.lstsq(np.hstack([a, np.ones((N, 1))]), y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef, model.intercept], exact, atol=1e-9)


def test_the_sum_holds_the_statistics() -> None:
    (a, y), plan = rows(), plan_of()
    total, result = sums(plan, (a, y))
    a = a / np.maximum(3.0, np.linalg.norm(a, axis=1))[:, None]
    unit = np.hstack([a, np.full((N, 1), 0.5)])
    p, size = P + 1, (P + 1) * (P + 2) // 2
    np.testing.assert_allclose(total[:size], pack(unit.T @ unit), atol=1e-3)
    omega = plan.method.moment(plan.problem).omega
    np.testing.assert_allclose(-total[size : size + p] / omega, unit.T @ y, atol=1e-2)
    assert result.report.gaussian
    assert result.counts == dpsco.run.Counts(N, 1, 1)
    model = result.model
    assert np.linalg.norm(np.array([*model.coef, model.intercept]) - [0.5, -0.3, 0.1, 0.0, 0.4]) < 0.3


@pytest.mark.parametrize("adjacency", ["zero-out", "replace", "add-remove"])
def test_one_row_moves_the_sum_by_no_more_than_was_declared(adjacency) -> None:
    plan, (a, y) = plan_of(adjacency=adjacency), rows()
    ids = {"ids": np.arange(N)} if adjacency == "add-remove" else {}
    difference, most = plan.schedule.calibration.at(0).difference, 0.0
    odd = [([1.0] * P, 2.0), ([-50.0] * P, -2.0), ([np.nan] * P, 0.0), ([1e308] * P, 1.0), ([1.0] * P, 9.0)]
    totals = []
    for row, label in odd:
        a[7], y[7] = row, label
        totals.append(sums(plan, (a, y), **ids)[0])
    for one in totals if adjacency == "replace" else totals[2:3]:
        for other in totals:
            most = max(most, float(np.linalg.norm(one - other)))
    assert 0.5 * difference < most <= difference


def test_what_it_cannot_solve_is_refused() -> None:
    budget = dpsco.Budget(1.0, 1e-5)
    with pytest.raises(dpsco.InvalidArgument, match="squared"):
        dpsco.plan(
            dpsco.Problem(dpsco.Huber(), dpsco.L2Ball(1.0), P), n=N, budget=budget, method="sufficient-statistics"
        )
    with pytest.raises(dpsco.InvalidArgument, match="parameters"):
        dpsco.plan(dpsco.Problem(dpsco.Squared(), dpsco.L2Ball(1.0), 3000), n=N, budget=budget,
                   method="sufficient-statistics")  # fmt: skip
    with pytest.raises(dpsco.InvalidArgument, match="clip"):
        dpsco.SufficientStatistics(clip=7.0)
