"""The survey that a plan simulates on its assumed truth."""

from __future__ import annotations

import numpy as np

from dpsco.planning.geometry import Geometry, metric
from dpsco.planning.survey_bootstrap import resurvey


def shape_of(p, noise):
    sizes = np.geomspace(1e-3, 0.3, p)
    return Geometry(np.ones(p), np.eye(p), sizes, 0.0, sizes, noise, noise * np.sqrt(2 * p), np.zeros(p)), sizes


def test_what_the_start_lacks_is_the_mean_over_optima_and_noise() -> None:
    """The factors against draws: the same shrunk Newton step on gradients of random signs and noise."""
    p, rows, c = 8, 500, 0.2
    shape, truth = shape_of(p, 1e-3)
    square, variance = np.linspace(1.0, 3.0, p), np.full(p, 1e-5)
    made = resurvey(truth, square, variance, shape, rows, c, 1.0)
    newton = made.step[:, p:] / np.sqrt(variance + c * truth / rows)
    rng = np.random.default_rng(5)
    optima = np.sqrt(square) * rng.choice([-1.0, 1.0], (20_000, p))
    gradients = -c * truth * optima + rng.standard_normal((20_000, p)) * np.sqrt(variance + c * truth / rows)
    starts = -gradients @ newton.T
    for factor, drawn in ((made.step, starts), (made.missing, optima - starts)):
        np.testing.assert_allclose(factor @ factor.T, drawn.T @ drawn / 20_000, atol=0.06 * np.max(square))


def test_no_direction_behind_the_noise_is_stretched_beyond_the_others() -> None:
    """An eigenvalue that the noise alone made 0 would have a gain without bound as the ridge falls."""
    p = 20
    sizes = np.append(np.linspace(0.0, 0.02, p - 1), 0.5)
    shape = Geometry(np.ones(p), np.eye(p), sizes, 0.0, sizes, 0.01, 0.05, np.zeros(p))
    hidden = metric(shape, 1e-6).gains[:-1]
    assert np.max(hidden) ** 2 * np.mean(sizes[:-1]) < 2.01
