"""Public weights of classes: inside the clip, in every oracle and in the survey."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import dpsco
from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.survey import joint_bounds, joint_parts, joint_rows
from dpsco.methods import Surveyed
from dpsco.problem import Problem
from dpsco.query import Batch, Query

RNG = np.random.default_rng(11)
ROWS = RNG.standard_normal((5_000, 6)) * 10.0 ** RNG.uniform(-3, 2, (5_000, 1))
LOSSES = {
    "logistic": dpsco.Logistic(weights=(0.2, 1.0)),
    "hinge": dpsco.SmoothedHinge(0.5, weights=(1.0, 0.3)),
    "softmax": dpsco.Softmax(3, weights=(0.1, 1.0, 0.5)),
}


def labels_of(loss) -> np.ndarray:
    return np.random.default_rng(3).integers(0, max(2, loss.outputs), len(ROWS)).astype(float)


@pytest.mark.parametrize("name", LOSSES)
def test_a_weight_multiplies_value_slope_and_curvature(name) -> None:
    loss, plain, y = LOSSES[name], LOSSES[name].unweighted(), labels_of(LOSSES[name])
    scores = RNG.standard_normal((len(y), loss.outputs)) if loss.outputs > 1 else RNG.standard_normal(len(y))
    w = np.array(loss.weights)[y.astype(int)]
    for part in ("value", "slope", "curvature"):
        expected = getattr(plain, part)(scores, y)
        got = getattr(loss, part)(scores, y)
        np.testing.assert_array_equal(got, expected * w.reshape(-1, *[1] * (expected.ndim - 1)))


@pytest.mark.parametrize("form", ["dense", "single", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_oracle_clips_the_weighted_difference(name, form) -> None:
    loss, y = LOSSES[name], labels_of(LOSSES[name])
    k = loss.outputs
    points = tuple(RNG.standard_normal(k * 7) for _ in range(2))
    query = Query(step=1, points=points, weights=(2.0, -1.0), clip=0.7, size=len(y))
    given = {"dense": ROWS, "single": ROWS.astype(np.float32), "sparse": csr_matrix(ROWS)}[form]
    a = np.hstack([np.asarray(given.todense() if form == "sparse" else given, dtype=float), np.ones((len(y), 1))])
    plain = LinearOracle(loss.unweighted())
    c = sum(w * plain.slopes(a @ x.reshape(k, -1).T, y) for w, x in zip(query.weights, points, strict=True))
    c = c * np.array(loss.weights)[y.astype(int)][:, None]
    sizes = np.linalg.norm(c, axis=1) * np.linalg.norm(a, axis=1)
    assert 0.05 < np.mean(sizes > query.clip) < 0.95  # some rows are clipped, others are not
    expected = ((c * np.minimum(1.0, query.clip / np.maximum(sizes, 1e-300))[:, None]).T @ a).ravel()
    for oracle in (LinearOracle(loss, intercept=True), CompiledOracle(loss, intercept=True)):
        total = oracle.answer(query, Batch(1, [(given, y)])).total
        np.testing.assert_allclose(total, expected, rtol=0, atol=2e-3 if form == "single" else 1e-8)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low-rank"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_survey_counts_a_row_by_its_weight_and_no_row_for_more_than_one(name, kind) -> None:
    loss, y = LOSSES[name], labels_of(LOSSES[name])
    problem = Problem(loss, dpsco.L2Ball(5.0), 6, feature_norm=2.0, intercept=True)
    moment = Surveyed(rounds=4, rows=1_000, kind=kind).moment(problem)
    weighted = joint_rows(moment, joint_parts(loss, moment, ROWS, y))
    plain = joint_rows(moment, joint_parts(loss.unweighted(), moment, ROWS, y))
    w = np.array(loss.weights)[y.astype(int)]
    if kind != "low-rank":  # its sketch is clipped, and a row that weighs less is clipped less
        np.testing.assert_allclose(weighted, plain * w[:, None], atol=1e-12)
    assert np.all(np.linalg.norm(weighted, axis=1) <= np.linalg.norm(plain, axis=1) * (1 + 1e-12) + 1e-15)
    one, two = joint_bounds(moment)
    assert np.linalg.norm(weighted, axis=1).max() <= one
    pairs = RNG.integers(0, len(y), (2, 20_000))
    assert np.linalg.norm(weighted[pairs[0]] - weighted[pairs[1]], axis=1).max() <= two


def test_weights_are_part_of_a_plan_and_absent_ones_change_no_plan() -> None:
    for loss in (dpsco.Logistic(), LOSSES["softmax"]):
        problem = Problem(loss, dpsco.L2Ball(5.0), 3)
        again = Problem.from_dict(json.loads(json.dumps(problem.to_dict())))
        assert again == problem
        assert ("weights" in problem.to_dict()["loss"]) == bool(loss.weights)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0), (0.0, 1.0), (1.0, float("nan"))])
def test_weights_that_do_not_fit_are_refused(weights) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="weights"):
        dpsco.Logistic(weights=weights)
