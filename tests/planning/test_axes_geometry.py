"""The geometry of very many columns: sizes behind noise, the mean row, groups, and the plan that follows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpsco.planning.axes_geometry import axes_geometry, mean_size, posterior_means, size_groups
from dpsco.planning.axes_worlds import axes_worlds
from dpsco.planning.geometry import metric, ridge_gains
from dpsco.planning.released_survey import Health, ReleasedSurvey
from dpsco.planning.survey_start import Wiener, start_from
from dpsco.planning.survey_worlds import RIDGES
from dpsco.planning.surveyed_planner import rounds_choice, survey_choice

P, S = 20_000, 1e-3


def released(
    *, noise: float = S, constant: float = 0.5, seed: int = 0
) -> tuple[ReleasedSurvey, np.ndarray, np.ndarray]:
    """A survey of columns whose frequencies fall as 1 / rank, with the truth behind it: mean squares and means."""
    rng = np.random.default_rng(seed)
    share = 0.5 / np.arange(1.0, P)
    value = 1 / np.sqrt(np.sum(share))
    second, mean = share * value**2, share * value
    seen = second + noise * rng.standard_normal(P - 1)
    column = constant * mean + noise / np.sqrt(2) * rng.standard_normal(P - 1)
    moment = np.stack([np.append(seen, constant**2), np.append(column, constant**2)])
    gradient = np.append(0.2 * second * rng.standard_normal(P - 1), 0.1)[:, None] + noise * rng.standard_normal((P, 1))
    health = Health(1.0, 0.0, (0.6, 0.4), 0.01)
    survey = ReleasedSurvey("diagonal", moment, gradient, health, 5000, constant, noise, noise)
    return survey, second, mean


def test_sizes_are_closer_to_the_truth_than_the_released_numbers_and_keep_their_sum() -> None:
    survey, second, _ = released()
    shape = axes_geometry(survey)
    assert shape.axes
    found = shape.sizes[:-1]
    assert np.all(found >= 0)
    clamped = np.maximum(survey.moment[0][:-1], 0.0)
    assert np.sum((found - second) ** 2) < 0.2 * np.sum((clamped - second) ** 2)
    assert np.sum(found) == pytest.approx(np.sum(second), rel=0.4)
    assert np.sum(clamped) > 5 * np.sum(second)  # what the noise alone makes of empty columns
    assert np.all(np.diff(found[np.argsort(survey.moment[0][:-1])]) >= 0)
    np.testing.assert_allclose(found[:20], second[:20], rtol=0.5)


def test_without_noise_sizes_are_as_released() -> None:
    numbers = np.array([0.5, 0.1, 0.0, -1e-9])
    np.testing.assert_array_equal(posterior_means(numbers, 0.0), [0.5, 0.1, 0.0, 0.0])
    np.testing.assert_array_equal(posterior_means(np.array([9.0, 8.5]), 1.0), [9.0, 8.5])


def test_the_mean_row_stands_out_of_the_metric_as_far_as_in_truth() -> None:
    survey, _, mean = released()
    shape = axes_geometry(survey)
    for gains in ridge_gains(shape, RIDGES):
        true = np.sum((gains[:-1] * mean) ** 2) + (gains[-1] * 0.5) ** 2
        assert 0.85 * true < mean_size(shape, gains) < 1.5 * true  # a deviation of the noise is added
    assert mean_size(axes_geometry(released(constant=0.0)[0]), np.ones(P)) == 0.0


def test_groups_hold_columns_of_like_sizes() -> None:
    sizes = np.random.default_rng(0).permutation(np.geomspace(1e-9, 1.0, 500))
    group, count = size_groups(sizes, 1.3)
    assert np.sum(count) == 500
    for k in range(len(count)):
        own = sizes[group == k]
        assert len(own) == count[k]
        assert own.max() / own.min() <= 1.3 * (1 + 1e-9)


def test_grouped_columns_have_the_likelihood_of_all_of_them() -> None:
    rng = np.random.default_rng(1)
    sizes, count = np.geomspace(1e-4, 0.1, 6), np.array([1, 4, 9, 2, 3, 5])
    energy = rng.random(6)
    grouped = Wiener(np.sqrt(energy)[:, None], sizes, np.full(6, 1e-4), 0.0, 1000, count.astype(float))
    every = Wiener(np.sqrt(np.repeat(energy, count))[:, None], np.repeat(sizes, count), np.full(24, 1e-4), 0.0, 1000)
    np.testing.assert_allclose(np.repeat(grouped.step(0.2), count), every.step(0.2), rtol=1e-9)
    np.testing.assert_allclose(np.repeat(grouped.expected(0.2), count), every.expected(0.2), rtol=1e-9)


def test_the_start_is_the_base_and_the_plan_is_sane() -> None:
    survey, _, _ = released()
    shape = axes_geometry(survey)
    start = start_from(survey, shape, loss="logistic")
    assert np.count_nonzero(start.x) == 1  # the intercept
    worlds = axes_worlds(shape, start, survey_rows=5000)
    groups = len(worlds.count)
    assert worlds.curvature.shape == worlds.distance.shape == (len(RIDGES), 1, 3, groups)
    assert np.sum(worlds.count) == P + 1  # every column, and the mean row
    assert np.all(worlds.curvature <= 0.25 * worlds.top[:, None, None, None] * (1 + 1e-9))
    choice = rounds_choice(shape, start, survey_rows=5000, rows=60_000, mu=0.25, rounds=14)
    assert 4 <= choice.rounds <= 14
    assert 0 < choice.predicted < 1
    assert len(choice.ratios) <= 2049
    form = metric(shape, choice.ridge)
    x = np.random.default_rng(0).standard_normal(P)
    np.testing.assert_allclose(form.backward(form.start(x)), x, rtol=1e-12)
    np.testing.assert_allclose(form.forward(x), form.gains * x)
    quiet = dataclasses.replace(survey, moment_noise=0.0, gradient_noise=0.0)
    assert axes_geometry(quiet).sizes[0] == survey.moment[0][0]


def test_public_numbers_decide_on_a_survey_of_many_columns() -> None:
    assert survey_choice(100_000, 10_000, 0.25).kind == "diagonal"
    assert survey_choice(100_000, 10_000, 0.25).rows == 8000
    assert survey_choice(10_000, 10_000, 0.25).kind is None
    assert survey_choice(10_000, 10_000, 0.25, kind="diagonal").kind == "diagonal"
    assert survey_choice(100_000, 3_000, 0.25).kind is None
    assert survey_choice(100_000, 10_000, 0.25, 1).kind is None
