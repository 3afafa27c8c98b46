"""What a plan assumes of the signal that a survey's noise hides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsco.planning.geometry import Geometry, positive_mean, true_spectrum
from dpsco.planning.released_survey import Health, ReleasedSurvey
from dpsco.planning.survey_start import LEANINGS, start_from


@pytest.mark.parametrize(
    ("measured", "deviation", "expected"),
    [(0.3, 1e-6, 0.3), (0.0, 1e6, 0.2), (-5.0, 1e-3, 0.0), (1e6, 1e9, 0.2), (0.1, 1e200, 0.2)],
)
def test_a_positive_mean_is_the_measured_one_or_the_prior_one(measured, deviation, expected) -> None:
    assert positive_mean(measured, deviation, 0.2) == pytest.approx(expected, rel=1e-2, abs=1e-3)


def test_a_positive_mean_is_that_of_the_posterior() -> None:
    at = np.linspace(0.0, 5.0, 200_001)
    weight = np.exp(-at / 0.2 - 0.5 * ((at - 0.15) / 0.1) ** 2)
    assert positive_mean(0.15, 0.1, 0.2) == pytest.approx(float(np.sum(at * weight) / np.sum(weight)), rel=1e-3)


def test_a_released_gradient_shows_whether_small_columns_count() -> None:
    """Coefficients alike or scores alike: the likelihood tells one from the other."""
    p, c = 60, 0.5
    sizes = np.append(np.geomspace(1e-4, 1e-1, p - 1), c * c)
    moment, signs = np.diag(sizes), np.where(np.arange(p) % 2, 1.0, -1.0)
    for coefficients, alpha in ((np.ones(p), 0.0), (0.03 / np.sqrt(sizes), 1.0)):
        gradient = -0.25 * sizes * coefficients * signs
        gradient[-1] = 0.0
        health = Health(1.0, 0.0, (0.5, 0.5), 1e-3)
        survey = ReleasedSurvey("full", moment, gradient[:, None], health, 10**7, c, 1e-6, 1e-6)
        shape = Geometry(np.ones(p), np.eye(p), sizes, 0.0, sizes, 1e-6, 1e-5, np.append(np.zeros(p - 1), c))
        leaning = start_from(survey, shape, loss="logistic").leaning
        assert math.isclose(float(np.sum(leaning)), 1.0)
        assert LEANINGS[int(np.argmax(leaning))] == alpha


def test_signal_flattens_the_loss() -> None:
    p, c = 4, 0.5
    shape = Geometry(
        np.ones(p), np.eye(p), np.full(p, 0.1), 0.0, np.full(p, 0.1), 1e-3, 1e-2, np.append(np.zeros(3), c)
    )
    health = Health(1.0, 0.0, (0.8, 0.2), 1e-3)
    gradient = np.append(np.zeros(p - 1), c * 0.3)[:, None]
    start = start_from(
        ReleasedSurvey("full", np.eye(p) * 0.1, gradient, health, 1000, c, 1e-3, 1e-3), shape, loss="logistic"
    )
    at = [start.curvature_at(signal) for signal in (1e-6, 0.05, 0.2, 0.4)]
    assert at[0] == pytest.approx(0.2 * 0.8, rel=0.02)
    assert at == sorted(at, reverse=True)


def test_sizes_behind_the_noise_keep_the_released_trace() -> None:
    """The clean-up of a spectrum clamps at 0, which adds to the trace: the assumed truth does not."""
    rng, p, s = np.random.default_rng(5), 80, 0.004
    truth = np.append(0.1 * rng.dirichlet(np.full(p - 1, 0.5)), 0.3)
    draw = rng.standard_normal((p, p)) * s
    noise = np.triu(draw, 1) / math.sqrt(2.0)
    observed, directions = np.linalg.eigh(np.diag(truth) + noise + noise.T + np.diag(np.diag(draw)))
    mean = np.append(np.zeros(p - 1), 0.5)
    shape = Geometry(np.ones(p), directions, np.maximum(observed, 0.0), 0.0, observed, s, s * math.sqrt(2 * p), mean)
    found = true_spectrum(shape)
    assert np.all(np.diff(found) >= 0)
    assert abs(float(np.sum(found)) - float(np.sum(truth))) < 5 * s * math.sqrt(p)
    assert float(np.sum(np.maximum(observed, 0.0))) > 2 * float(np.sum(truth))
