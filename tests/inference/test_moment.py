"""The survey's moment for standard errors: small columns keep their size, and numbers behind noise stay positive."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dpsco
from dpsco.algorithm_1 import response
from dpsco.inference.curvature import moment_of_rows
from dpsco.inference.evidence import Evidence
from dpsco.inference.moment import Moment, cleaned_moment
from dpsco.inference.positive import logs_of_positive
from dpsco.planning.released_survey import Health, ReleasedSurvey

P = 40
SMALL = np.arange(P) % 4 == 1


def surveyed(truth: np.ndarray, noise: float, seed: int = 0, constant: float = 0.0) -> ReleasedSurvey:
    """Return what a survey of this moment releases; off-diagonal entries have half the variance."""
    p = len(truth)
    draws = np.random.default_rng(seed).standard_normal((p, p))
    symmetric = np.triu(draws, 1) / np.sqrt(2)
    moment = truth + noise * (symmetric + symmetric.T + np.diag(np.diag(draws)))
    health = Health(1.0, 0.0, (), 0.0)
    return ReleasedSurvey("full", moment, np.zeros((p, 1)), health, 1000, constant, noise, noise)


def columns() -> np.ndarray:
    """Moment of rows whose every fourth column is small; neighbours have correlation 0.5."""
    sizes = np.sqrt(np.where(SMALL, 0.2, 1.0) / P)
    return np.outer(sizes, sizes) * 0.5 ** np.abs(np.arange(P)[:, None] - np.arange(P))


def test_without_noise_the_moment_is_the_released_one():
    truth = columns()
    found = cleaned_moment(surveyed(truth, 0.0))
    np.testing.assert_allclose(found.rows, truth, atol=1e-15)
    np.testing.assert_array_equal(found.doubt, 0.0)


def test_an_empty_column_has_a_finite_moment():
    truth = columns()
    truth[3] = truth[:, 3] = 0.0
    for noise in (0.0, 0.002):
        found = cleaned_moment(surveyed(truth, noise))
        assert np.all(np.isfinite(found.rows))
        assert np.min(np.linalg.eigvalsh(found.rows)) > 0


def test_small_columns_keep_their_size():
    truth, noise = columns(), 0.1 / P
    found = np.mean([np.diag(cleaned_moment(surveyed(truth, noise, seed)).rows) for seed in range(20)], axis=0)
    ratios = found / np.diag(truth)
    assert 0.8 < np.mean(ratios[SMALL]) < 1.25
    assert 0.9 < np.mean(ratios[~SMALL]) < 1.1


def test_the_mean_row_is_kept_apart():
    mean, c = np.append(np.full(P, 0.05), 0.3), 0.3
    truth = np.outer(mean, mean)
    truth[:-1, :-1] += columns()
    found = cleaned_moment(surveyed(truth, 1e-4, constant=c))
    np.testing.assert_allclose(found.rows, truth, atol=1e-3)
    assert found.rows[-1, -1] == pytest.approx(c * c)
    assert found.doubt.shape == (P + 1,)


def test_a_column_behind_the_noise_is_doubted_more():
    doubt = cleaned_moment(surveyed(columns(), 0.1 / P)).doubt
    assert np.min(doubt[SMALL]) > np.max(doubt[~SMALL])
    assert np.median(doubt[SMALL]) > 0.04


def test_correlations_of_unknown_size_add_to_the_doubt():
    alone = cleaned_moment(surveyed(np.diag(np.diag(columns())), 0.1 / P)).doubt
    assert np.median(cleaned_moment(surveyed(columns(), 0.1 / P)).doubt) > 1.2 * np.median(alone)


def test_collinear_columns_are_told_from_hidden_ones():
    truth = columns()
    assert cleaned_moment(surveyed(truth, 0.0)).least > 0.3
    assert cleaned_moment(surveyed(truth, 0.2 / P)).least > 0.1  # the noise hides much, and may hide a large direction
    sizes = np.sqrt(np.diag(truth))
    same = truth.copy()
    same[2], same[:, 2] = truth[3] * sizes[2] / sizes[3], truth[:, 3] * sizes[2] / sizes[3]
    same[2, 2] = truth[2, 2]
    same[2, 3] = same[3, 2] = sizes[2] * sizes[3]
    assert cleaned_moment(surveyed(same, 1e-3 / P)).least < 0.01


def test_intervals_of_collinear_columns_are_refused():
    rng, n = np.random.default_rng(0), 20_000
    rows = np.column_stack([rng.uniform(-1, 1, n), np.eye(3)[rng.integers(0, 3, n)]])
    labels = np.clip(rows @ [0.5, 0.2, -0.2, 0.0] + 0.3 * rng.standard_normal(n), -2.0, 2.0)
    made = {}
    for width, intercept in ((4, True), (4, False), (3, True)):
        problem = dpsco.Problem(dpsco.Squared(2.0), dpsco.L2Ball(1e3), width, feature_norm=1.5, intercept=intercept)
        plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(2.0, 1e-6), survey="intervals")
        made[width, intercept] = dpsco.train(plan, dpsco.stream(rows[:, :width], labels), key=bytes(32))
    with pytest.raises(dpsco.IntervalError, match=r"collinear.*fit_intercept=False"):
        made[4, True].standard_errors()
    assert np.all(made[4, False].standard_errors() < 0.1)
    assert np.all(made[3, True].standard_errors() < 0.1)


def test_positive_numbers_are_drawn_together_by_noise_alone():
    rng = np.random.default_rng(0)
    errors = np.full(30, 0.5)
    logs, doubt = logs_of_positive(1 + 0.5 * rng.standard_normal(30), errors)
    assert np.std(np.exp(logs)) < 0.25
    assert np.all(doubt > 0)
    apart = np.append(1 + 0.02 * rng.standard_normal(29), 3.0)
    np.testing.assert_allclose(np.exp(logs_of_positive(apart, np.full(30, 0.02))[0]), apart, rtol=0.05)
    logs, doubt = logs_of_positive(np.append(np.ones(29), -0.4), errors)
    assert np.exp(logs[-1]) > 0
    assert doubt[-1] > doubt[0]
    logs, doubt = logs_of_positive(np.array([2.0, 5.0]), np.zeros(2))
    np.testing.assert_allclose(np.exp(logs), [2.0, 5.0])
    np.testing.assert_array_equal(doubt, 0.0)


N, WIDE, NORM = 30_000, 32, 1.4 * 32**0.5
RARE = np.append(np.arange(WIDE) % 4 == 1, False)


def drawn(seed: int, n: int = N) -> np.ndarray:
    """Rows of 32 columns of correlation 0.5; every fourth is cut to 0/1."""
    apart = np.arange(WIDE)[:, None] - np.arange(WIDE)
    normal = np.random.default_rng(seed).standard_normal((n, WIDE)) @ np.linalg.cholesky(0.5 ** np.abs(apart)).T
    rows = np.where(RARE[:WIDE], normal > 1.0, normal)
    return np.asarray(rows * np.minimum(1.0, NORM / np.linalg.norm(rows, axis=1))[:, None])


def trained(seed: int) -> dpsco.Result:
    rng, rows = np.random.default_rng(seed + 50), drawn(seed)
    labels = np.clip(rows @ np.full(WIDE, 0.05) + 0.2 * rng.standard_normal(N), -1.0, 1.0)
    problem = dpsco.Problem(dpsco.Squared(1.0), dpsco.L2Ball(1e3), WIDE, feature_norm=NORM, intercept=True)
    plan = dpsco.plan(problem, n=N, budget=dpsco.Budget(1.0, 1e-5), survey="intervals")
    return dpsco.train(plan, dpsco.stream(rows, labels), key=rng.bytes(32))


def exact_noise(evidence: Evidence, hessian: np.ndarray) -> np.ndarray:
    """Variance of each parameter that privacy noise causes, where the Hessian is known."""
    second, p = evidence.second, len(hessian)
    back = second.map.parameters(np.eye(p).ravel()).reshape(p, p).T
    beta = second.plan.schedule.settings["beta"]
    sizes, vectors = np.linalg.eigh(back.T @ hessian @ back)
    gains = response(sizes / beta, len(evidence.noise), second.plan.method.z_step).gains
    weights = np.cumsum(gains[:, ::-1], axis=1)[:, ::-1] / beta
    each = np.einsum("jt,ts,js->j", weights, evidence.noise, weights)
    return np.asarray(np.sum((back @ vectors) ** 2 * each, axis=1))


def test_errors_of_rare_columns_are_those_of_the_true_hessian(monkeypatch):
    rows = np.column_stack([drawn(999, 200_000), np.ones(200_000)])
    hessian = rows.T @ rows / len(rows)
    runs = [trained(seed) for seed in range(6)]
    exact = np.array([exact_noise(run.evidence, hessian) for run in runs])

    def ratio() -> np.ndarray:
        found = np.array([np.diag(run.covariance("privacy")) for run in runs])
        return np.sqrt(np.median(found / exact, axis=0))

    assert 0.85 < np.median(ratio()[RARE]) < 1.35
    assert 0.9 < np.median(ratio()[~RARE]) < 1.2
    degrees = np.median([run.inference.degrees for run in runs], axis=0)
    assert np.max(degrees[RARE]) < np.median(degrees[~RARE])
    # Cleaned without columns in mind, the moment lends a rare column the size of the others.
    spectral = {id(run.evidence.second.survey): run.evidence.second.geometry for run in runs}
    monkeypatch.setattr(
        "dpsco.inference.estimate.cleaned_moment",
        lambda survey: Moment(moment_of_rows(spectral[id(survey)]), 1.0, np.zeros(WIDE + 1)),
    )
    runs = [dataclasses.replace(run) for run in runs]
    assert np.median(ratio()[RARE]) < 0.75
