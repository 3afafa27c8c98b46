"""Newton steps: what a step sums, what one row does to it, its noise, and where it ends without any."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco
from dpsco.clipping.survey import SurveyOracle, joint_bounds, pack
from dpsco.query import Array, Batch, Query
from dpsco.run import watching

N, P = 3000, 4
KEY = bytes(range(32))
LOSSES = (dpsco.Logistic(), dpsco.SmoothedHinge(0.5), dpsco.Huber(0.5), dpsco.Squared(1.0))


def plan_of(
    loss: dpsco.problem.Loss = LOSSES[0], *, epsilon: float = 1.0, adjacency: str = "zero-out", rounds: int = 4
) -> dpsco.Plan:
    problem = dpsco.Problem(loss, dpsco.L2Ball(20.0), P, feature_norm=3.0, intercept=True)
    budget = dpsco.Budget(epsilon, 1e-5, adjacency)
    return dpsco.plan(problem, n=N, budget=budget, method="dp-newton", rounds=rounds)


def rows(seed: int = 1) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N, P))
    a *= np.minimum(1.0, 3.0 / np.linalg.norm(a, axis=1))[:, None]
    return a, (rng.random(N) < 1 / (1 + np.exp(-a @ [1.0, -0.5, 0.3, 0.0] - 0.4))).astype(float)


def sums(plan: dpsco.Plan, data: tuple[Array, Array]) -> tuple[list[Array], list[Query], dpsco.Result]:
    seen: list[Array] = []
    asked: list[Query] = []
    with watching(lambda query, clipped, released: (seen.append(clipped.total.copy()), asked.append(query))):
        result = dpsco.train(plan, dpsco.stream(*data, non_finite="zero"), key=KEY)
    return seen, asked, result


@pytest.mark.parametrize("loss", LOSSES[:3], ids=lambda loss: loss.kind)
def test_without_noise_it_is_newtons_method(loss) -> None:
    a, y = rows()
    plan = plan_of(loss, epsilon=math.inf, rounds=25 if isinstance(loss, dpsco.Logistic) else 400)
    model = dpsco.train(plan, dpsco.stream(a, y)).model
    scores = a @ model.coef + model.intercept
    slopes = dpsco.clipping.LinearOracle(loss).slopes(scores[:, None], y)[:, 0]
    assert np.linalg.norm(np.append(slopes @ a, np.sum(slopes))) < 1e-5 * N


def test_a_step_sums_hessian_and_gradient_at_its_point() -> None:
    (a, y), plan = rows(), plan_of()
    totals, asked, result = sums(plan, (a, y))
    unit = np.hstack([a / 3.0, np.full((N, 1), 0.5)])
    p, size = P + 1, (P + 1) * (P + 2) // 2
    assert len(totals) == 4
    for total, query in zip(totals, asked, strict=True):
        chance = 1 / (1 + np.exp(-unit @ query.points[0]))
        weights = 0.05 + 0.95 * 4 * chance * (1 - chance)
        np.testing.assert_allclose(total[:size], pack((unit * weights[:, None]).T @ unit), atol=1e-2)
        gradient = total[size : size + p] / plan.method.moment(plan.problem).omega
        np.testing.assert_allclose(gradient, unit.T @ (chance - y), atol=1e-2)
    assert np.any(asked[1].points[0] != 0)
    assert result.counts == dpsco.run.Counts(4 * N, 4, 4)
    assert result.report.gaussian
    assert np.linalg.norm(result.model.coef - [1.0, -0.5, 0.3, 0.0]) < 0.6


def test_t_releases_of_the_same_rows_cost_sqrt_t() -> None:
    for rounds in (1, 4, 9):
        noise = plan_of(rounds=rounds).schedule.calibration.at(0)
        mu = plan_of().budget.mu_per_record
        assert noise.sigma == pytest.approx(math.sqrt(rounds) * noise.difference / mu, rel=1e-9)
        assert noise.difference >= joint_bounds(plan_of().method.moment(plan_of().problem))[0]
    twice = plan_of(adjacency="replace").schedule.calibration.at(0).difference
    assert twice == pytest.approx(2 * plan_of().schedule.calibration.at(0).difference, rel=2e-3)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_no_row_at_any_point_contributes_more_than_the_bound(loss) -> None:
    rng = np.random.default_rng(0)
    plan = plan_of(loss)
    moment, oracle = plan.method.moment(plan.problem), SurveyOracle(loss, True)
    bound, apart = joint_bounds(moment)
    found: list[Array] = []
    for scale in (1e-3, 0.3, 1.0, 30.0, 1e6):
        point = rng.normal(size=P + 1) * rng.choice([0.0, 1.0, 100.0])
        query = Query(0, (point,), (moment.omega,), bound, 1, moment=moment)
        for _ in range(30):
            row = rng.normal(size=(1, P)) * scale
            label = rng.choice([0.0, 1.0]) if loss.outputs == 1 else 0.0
            found.append(oracle.answer(query, Batch(0, [(row, np.array([label]))])).total)
        for one in found:
            assert np.linalg.norm(one) <= bound
            assert max(np.linalg.norm(one - other) for other in found) <= apart
        found.clear()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_one_row_moves_every_sum_by_no_more_than_was_declared(adjacency) -> None:
    plan, (a, y) = plan_of(adjacency=adjacency), rows()
    odd = [([2.0] * P, 1.0), ([-50.0] * P, 0.0), ([np.nan] * P, 0.0), ([1e308] * P, 1.0), ([1.0] * P, 9.0)]
    difference, most, runs, released = plan.schedule.calibration.at(0).difference, 0.0, [], None
    for row, label in odd:
        a[7], y[7] = row, label
        kept: list[Array] = []
        seen: list[Array] = []
        with watching(
            lambda query, clipped, out, k=kept, s=seen: (s.append(clipped.total.copy()), k.append(out.value)),
            replay=released,
        ):
            dpsco.train(plan, dpsco.stream(a, y, non_finite="zero"), key=KEY)
        released = released or kept
        runs.append(seen)
    for one in runs if adjacency == "replace" else runs[2:3]:
        for other in runs:
            most = max(most, *(float(np.linalg.norm(x - z)) for x, z in zip(one, other, strict=True)))
    assert 0.3 * difference < most <= difference


def test_it_learns_and_a_sparse_table_gives_the_same_sums() -> None:
    from scipy.sparse import csr_matrix

    a, y = rows()
    plan = plan_of(epsilon=4.0)
    dense, sparse = (dpsco.train(plan, dpsco.stream(x, y), key=KEY).model for x in (a, csr_matrix(a)))
    np.testing.assert_allclose(dense.coef, sparse.coef, atol=1e-3)
    assert np.mean(((a @ dense.coef + dense.intercept) > 0) == y) > 0.7


def test_what_it_cannot_do_is_refused() -> None:
    ball, budget = dpsco.L2Ball(1.0), dpsco.Budget(1.0, 1e-5)
    for loss, p, words in (
        (dpsco.Softmax(3), P, "one score"),
        (dpsco.CustomLoss(given_lipschitz=1.0, given_smoothness=1.0), P, "one score"),
        (dpsco.Logistic(), 3000, "parameters"),
    ):
        with pytest.raises(dpsco.InvalidArgument, match=words):
            dpsco.plan(dpsco.Problem(loss, ball, p), n=N, budget=budget, method="dp-newton")
    with pytest.raises(dpsco.InvalidArgument, match="add-remove"):
        plan_of(adjacency="add-remove")
    with pytest.raises(dpsco.InvalidArgument, match="clip"):
        dpsco.DPNewton(rounds=2, clip=7.0)
