"""The low-rank survey: bounds of its sketch, maps in factors, and tables too wide for a full one."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import dpsco
from dpsco.clipping.low_rank_map import LowRankMap, map_from_dict
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.sketch import TAU, sketch_matrix, sketched
from dpsco.clipping.survey import joint_bounds, joint_parts, joint_rows
from dpsco.engines.flower import wire
from dpsco.engines.flower.client import contribution
from dpsco.methods.surveyed import moment_of
from dpsco.problem.mapped_ball import MatrixBall
from dpsco.query import Moment


def square(vector: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in vector), Fraction(0))


@pytest.mark.parametrize("rowwise", [False, True])
def test_no_row_has_a_longer_sketch_than_stated(rowwise: bool) -> None:
    omega, rng = sketch_matrix(60), np.random.default_rng(0)
    rows = rng.standard_normal((200, 60))
    rows[0] = omega[:, 3]  # made to be long under this sketch
    rows[1] = omega @ omega[5]
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    b = sketched(rows, 1.0, rowwise=rowwise)
    assert max(square(row) for row in b) <= Fraction(TAU) ** 2
    assert np.linalg.norm(rows[0] @ omega) > 1.2
    long = np.linalg.norm(rows[2:] @ omega, axis=1) > TAU
    assert np.mean(long) < 0.15
    np.testing.assert_allclose(b[2:][~long], (rows[2:] @ omega)[~long], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_joint_contributions_obey_their_bounds(constant: float) -> None:
    moment = Moment("low-rank", 1.0, constant, 1, 2, slope=0.5, gradient=0.5, health=0.1)
    clip, apart = joint_bounds(moment)
    rng = np.random.default_rng(1)
    features = rng.standard_normal((400, 12)) * np.geomspace(0.01, 100, 400)[:, None]
    features[:12] = np.eye(12) * 7
    features[12:24] = -np.eye(12) * 7
    v = joint_rows(moment, joint_parts(dpsco.Logistic(), moment, features, rng.integers(0, 2, 400).astype(float)))
    longest = max(square(row) for row in v)
    assert longest <= Fraction(clip) ** 2 * (1 + Fraction(1, 10**12))
    assert longest > (0.5 * clip) ** 2
    far = max(float(np.linalg.norm(v[i] - v[j])) for i in range(0, 400, 7) for j in range(0, 400, 5))
    assert far <= apart


def the_map(p: int, constant: float, feature_norm: float = 2.0) -> tuple[LowRankMap, RowMap]:
    rng = np.random.default_rng(3)
    v = np.linalg.qr(rng.standard_normal((p, 3)))[0]
    gains, rest = np.array([0.4, 2.0, 9.0]), 3.0
    matrix = rest * np.eye(p) + v @ np.diag(gains - rest) @ v.T
    return LowRankMap(np.zeros((p, 0)), feature_norm, constant, v, gains, rest), RowMap(matrix, feature_norm, constant)


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_a_map_in_factors_is_the_dense_one(constant: float) -> None:
    low, full = the_map(14, constant)
    rng = np.random.default_rng(4)
    features = 3 * rng.standard_normal((130, 14 - (constant > 0)))
    features[7] = np.nan
    np.testing.assert_allclose(low.rows(features), full.rows(features), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(low.rows_one_by_one(features), full.rows_one_by_one(features), rtol=1e-10, atol=1e-12)
    assert low.rows_one_by_one(features)[5:9].tobytes() == low.rows_one_by_one(features[5:])[:4].tobytes()
    u = rng.standard_normal(28)
    np.testing.assert_allclose(low.parameters(u), full.parameters(u), rtol=1e-12)
    np.testing.assert_allclose(low.start(low.parameters(u)), u, rtol=1e-9)
    assert low.norm == pytest.approx(full.norm)
    again = map_from_dict(low.to_dict())
    assert again == low
    assert again != full
    for broken in ({"rest": 0.0}, {"gains": low.to_dict()["directions"]}, {"more": 1}):
        with pytest.raises(dpsco.InvalidArgument):
            map_from_dict({**low.to_dict(), **broken})
    ball, exact = low.ball(1.5), MatrixBall(full.own.T, 1.5)
    for scale in (0.01, 1.0, 100.0):
        found, wanted = ball.project(scale * u), exact.project(scale * u)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
        assert np.linalg.norm(low.parameters(found)) <= 1.5 * (1 + 1e-9)


def test_a_device_takes_the_map_in_factors() -> None:
    low, full = the_map(14, 0.5)
    rng = np.random.default_rng(5)
    points, g = list(rng.standard_normal((2, 28))), rng.standard_normal((3, 28))

    def gradients(x: np.ndarray) -> np.ndarray:
        return g * x

    place = {"run": bytes(32), "first": 0, "last": 1, "places": 1, "unit": 1, "clip": 1e9, "grid": 0.0}
    factors = wire.Factors(low.rest, low.own_scale, low.gains - low.rest, np.ascontiguousarray(low.directions.T))
    queries = [
        wire.encode_query(**place, weights=(2.0, -1.0), points=points, **how)
        for how in ({"factors": factors}, {"matrix": full.own})
    ]
    assert len(queries[0]) < len(queries[1])
    one, two = (contribution(wire.decode_query(query), gradients) for query in queries)
    np.testing.assert_allclose(one, two, rtol=1e-10)
    for at in (76, 80):
        message = bytearray(queries[0])
        message[at] ^= 1
        with pytest.raises(wire.Malformed):
            wire.decode_query(bytes(message))


def test_rows_too_wide_for_a_full_survey_have_a_low_rank_one() -> None:
    p, n, rng = 2_100, 6_000, np.random.default_rng(6)
    common = rng.standard_normal((3, p)) / np.sqrt(p)
    features = (rng.standard_normal((n, 3)) * [0.9, 0.7, 0.5]) @ common + 0.2 * rng.standard_normal((n, p)) / np.sqrt(p)
    labels = (features @ common[2] * 20 + rng.logistic(size=n) > 0).astype(float)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(200.0), p, feature_norm=3.0, intercept=True)
    budget = dpsco.Budget(4.0, 1e-6)
    with pytest.raises(dpsco.InvalidArgument, match="low-rank"):
        dpsco.plan(problem, n=n, budget=budget, survey="full")
    plan = dpsco.plan(problem, n=n, budget=budget, rounds=5, survey="low-rank")
    assert plan.schedule.sum_length < 40 * p
    result = dpsco.train(plan, dpsco.stream(features, labels), key=bytes(32))
    assert result.report.rounds <= 5
    shape = dataclasses.replace(result.geometry, source="public rows")
    again = dpsco.plan(problem, n=n, budget=budget, rounds=4, geometry=shape)
    assert dpsco.Plan.from_json(again.to_json()) == again
    assert len(again.to_json()) < 40 * 8 * p * 2
    replaced = dataclasses.replace(plan, budget=dpsco.Budget(4.0, 1e-6, "replace"))
    clip, apart = joint_bounds(moment_of(problem, "low-rank"))
    assert replaced.schedule.calibration.at(0).difference >= apart >= 2 * clip
