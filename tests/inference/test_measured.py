"""Squares of contributions: a column whose noise differs has an error of its own; a run in parts measures alike."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

import dpsco
from dpsco.clipping.squares import THETA
from dpsco.inference.prior import prior_of
from dpsco.methods import Surveyed
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.run import Run
from dpsco.run.train import library_oracle

N, P, COEF = 40_000, 3, np.array([0.4, -0.3, 0.2])
PROBLEM = dpsco.Problem(dpsco.Squared(3.0), dpsco.L2Ball(100.0), P, feature_norm=4.0, intercept=True)
KEY = bytes(range(32))


def table(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Labels whose noise grows with the first column."""
    rng = np.random.default_rng(seed)
    rows = np.clip(rng.standard_normal((n, P)), -2.5, 2.5)
    return rows, np.clip(rows @ COEF + 0.1 + 0.4 * np.abs(rows[:, 0]) * rng.standard_normal(n), -3.0, 3.0)


def plan(later: str = MeasuredSRGD.name) -> dpsco.Plan:
    return dpsco.Plan(PROBLEM, N, dpsco.Budget(6.0, 1e-6), Surveyed(rounds=6, rows=6000, later=later))


@cache
def trained(later: str = MeasuredSRGD.name) -> dpsco.Result:
    return dpsco.train(plan(later), dpsco.stream(*table()), key=KEY)


def sandwich() -> np.ndarray:
    rows, labels = table(1, 200_000)
    rows = np.column_stack([rows, np.ones(len(rows))])
    errors = labels - rows @ np.linalg.lstsq(rows, labels, rcond=None)[0]
    bread = np.linalg.inv(rows.T @ rows / len(rows))
    return np.diag(bread @ ((rows * errors[:, None] ** 2).T @ rows / len(rows)) @ bread) / (N - 6000)


def test_the_error_of_a_column_whose_noise_differs_is_measured():
    found, expected = np.diag(trained().covariance("sampling")), sandwich()
    assert np.all((0.8 * expected < found) & (found < 1.3 * expected))
    assumed = np.diag(trained("accelerated-srgd").covariance("sampling"))
    assert assumed[0] < 0.6 * expected[0]


def test_squares_are_those_of_the_rows_within_their_noise():
    evidence = trained().evidence
    assert evidence is not None
    assert evidence.squares is not None
    rows, labels = table()
    mapped = evidence.second.map.rows(rows)
    each = (mapped @ evidence.final - labels)[:, None] * mapped
    noise = np.sqrt(np.sum(evidence.squares_noise)) / len(evidence.squares)
    expected = np.mean(each**2, axis=0)
    assert np.all(np.abs(np.mean(evidence.squares, axis=0)[0] - expected) < 5 * noise + 0.1 * expected)


def test_rounds_without_squares_have_none():
    evidence = trained("accelerated-srgd").evidence
    assert evidence is not None
    assert evidence.squares is None
    with pytest.raises(dpsco.InvalidArgument, match="no squares"):
        _ = evidence.squares_noise


def test_noise_that_hides_the_squares_leaves_the_assumed_shape():
    evidence = trained().evidence
    assert evidence is not None
    hidden = evidence.sums.copy()
    hidden[:, P + 1 :] *= -1.0
    odd = dataclasses.replace(trained(), evidence=dataclasses.replace(evidence, sums=hidden)).standard_errors()
    plain = dataclasses.replace(trained(), evidence=dataclasses.replace(evidence, sums=evidence.sums[:, : P + 1]))
    np.testing.assert_allclose(odd, plain.standard_errors())


def test_a_run_in_parts_and_one_that_is_resumed_give_the_same_errors(tmp_path):
    rows, labels = table()
    run = Run(plan(), oracle=library_oracle(plan()), key=KEY)
    run.push(rows[:17_000], labels[:17_000])
    run.push(rows[17_000:], labels[17_000:])
    np.testing.assert_array_equal(run.result.standard_errors(), trained().standard_errors())

    def stop(seen):
        if seen.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.train(plan(), dpsco.stream(rows, labels), key=KEY, checkpoint=tmp_path / "run", on_round=stop)
    again = dpsco.train(plan(), dpsco.stream(rows, labels), key=KEY, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.standard_errors(), trained().standard_errors())


@pytest.mark.parametrize(
    "loss",
    [dpsco.Logistic(), dpsco.Squared(3.0), dpsco.Huber(0.5), dpsco.SmoothedHinge(0.5)],
    ids=lambda loss: loss.kind,
)
def test_a_measured_kappa_decides_where_it_is_precise(loss):
    evidence = trained().evidence
    assert evidence is not None
    levels, x = np.linspace(0.2, 1.0, 17), np.zeros((1, P + 1))
    prior = prior_of(loss, evidence.second.survey, x, 3.0, levels, (0.0, 1.0), (0.9, 1e-3, 0.0))
    assert np.all(np.abs(prior.values / 0.9 - 1) < 0.01)


def test_a_survey_for_intervals_asks_for_squares_and_only_that_one():
    budget = dpsco.Budget(1.0, 1e-6)
    for survey, later in (("intervals", MeasuredSRGD.name), ("full", "accelerated-srgd")):
        made = dpsco.plan(PROBLEM, n=N, budget=budget, survey=survey)
        assert isinstance(made.method, Surveyed)
        assert made.method.later == later
        assert ("squares" in made.explain()) == (survey == "intervals")
        assert dpsco.Plan.from_json(made.to_json()) == made
    no_noise = dpsco.plan(PROBLEM, n=N, budget=dpsco.Budget(float("inf"), 1e-6), survey="intervals")
    assert np.all(dpsco.train(no_noise, dpsco.stream(*table())).standard_errors() > 0)


def later_rounds(epsilon: float, later: str) -> tuple[float, dpsco.Prediction]:
    """Clip of the gradient and prediction of the rounds behind a survey that showed the population's own moments."""
    made = dataclasses.replace(plan(later), budget=dpsco.Budget(epsilon, 1e-6))
    result = dpsco.train(made, dpsco.stream(*table()), key=KEY)
    method = result.evidence.second.plan.method
    squares = np.hypot(1.0, THETA) if later == MeasuredSRGD.name else 1.0
    return method.clip / squares, result.evidence.second.plan.prediction


def test_intervals_widen_the_clip_only_where_noise_is_faint():
    """Rows that a clip shortens shift the model, and standard errors do not count a shift."""
    usual, _ = later_rounds(20.0, "accelerated-srgd")
    wide, wide_parts = later_rounds(20.0, MeasuredSRGD.name)
    assert wide > 1.5 * usual
    assert wide_parts.noise < 0.031 * wide_parts.sampling
    narrow, parts = later_rounds(0.3, "accelerated-srgd")
    same, _ = later_rounds(0.3, MeasuredSRGD.name)
    assert parts.noise > 0.05 * parts.sampling
    assert same == pytest.approx(narrow, rel=0.02)  # two plans, two noises of the survey


def test_devices_are_not_asked_for_squares():
    from dpsco.engines.flower import server

    by_id = dataclasses.replace(plan(), budget=dpsco.Budget(6.0, 1e-6, "add-remove"))
    with pytest.raises(dpsco.InvalidArgument, match="squares of contributions"):
        server.serve(by_id, None)
