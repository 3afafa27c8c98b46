"""The survey that a plan simulates on its assumed truth."""

from __future__ import annotations

import numpy as np

from dpsco.planning.geometry import Geometry, metric, ridge_gains
from dpsco.planning.survey_bootstrap import resurvey, simulated_survey
from dpsco.planning.survey_worlds import _in_metrics


def shape_of(p, noise):
    sizes = np.geomspace(1e-3, 0.3, p)
    return Geometry(np.ones(p), np.eye(p), sizes, 0.0, sizes, noise, noise * np.sqrt(2 * p), np.zeros(p)), sizes


def test_what_the_start_lacks_is_the_mean_over_optima_and_noise() -> None:
    """The factors against draws: the same shrunk Newton step on gradients of random signs and noise."""
    p, rows, c = 8, 500, 0.2
    shape, truth = shape_of(p, 1e-3)
    square, variance = np.linspace(1.0, 3.0, p), np.full(p, 1e-5)
    seen = simulated_survey(truth, shape, 1.0)
    made = resurvey(seen, truth, square, variance, rows, c, 1.0)
    newton = (seen.shape.directions * made.shrunk) @ seen.shape.directions.T
    rng = np.random.default_rng(5)
    optima = np.sqrt(square) * rng.choice([-1.0, 1.0], (20_000, p))
    gradients = -c * truth * optima + rng.standard_normal((20_000, p)) * np.sqrt(variance + c * truth / rows)
    starts = -gradients @ newton.T
    basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
    lacks, far = made.energies(basis, seen.shape.directions, basis @ seen.shape.directions.T)
    for energy, drawn in ((far, starts), (lacks, optima - starts)):
        along = drawn @ (basis @ seen.shape.directions.T).T
        np.testing.assert_allclose(energy, np.mean(along**2, axis=0), rtol=0.06)


def test_the_truth_in_each_metric_is_that_of_the_mapped_moment() -> None:
    """Sizes are eigenvalues of P diag(truth) P', distances those of u = P'^-1 x, P and x made whole."""
    p, rows, c = 30, 500, 0.2
    shape, truth = shape_of(p, 1e-3)
    seen = simulated_survey(truth, shape, 1.0)
    again = [resurvey(seen, truth, np.full(p, far), np.full(p, 1e-5), rows, c, 1.0) for far in (1.0, 4.0)]
    forms, gains = [metric(seen.shape, ridge) for ridge in (0.1, 2.0)], ridge_gains(seen.shape, (0.1, 2.0))
    sizes, counts, missing, moved = _in_metrics(truth, seen.shape.directions, gains, again)
    for r, form in enumerate(forms):
        mapped = form.matrix @ np.diag(truth) @ form.matrix.T
        values, vectors = np.linalg.eigh(mapped)
        ends = np.cumsum(counts)
        np.testing.assert_allclose(sizes[r] * counts, np.diff(np.cumsum(values)[ends - 1], prepend=0.0), rtol=1e-9)
        for h, one in enumerate(again):
            newton = (seen.shape.directions * one.shrunk) @ seen.shape.directions.T
            step = np.hstack([newton * one.pull, newton * one.rough])
            lack = np.hstack([np.diag(one.far) - newton * one.pull, newton * one.rough])
            for found, factor in ((missing, lack), (moved, step)):
                energy = values * np.sum((vectors.T @ np.linalg.solve(form.matrix.T, factor)) ** 2, axis=1)
                grouped = np.diff(np.cumsum(energy)[ends - 1], prepend=0.0)
                np.testing.assert_allclose(found[r, h] * sizes[r], grouped, rtol=1e-7)


def test_no_direction_behind_the_noise_is_stretched_beyond_the_others() -> None:
    """An eigenvalue that the noise alone made 0 would have a gain without bound as the ridge falls."""
    p = 20
    sizes = np.append(np.linspace(0.0, 0.02, p - 1), 0.5)
    shape = Geometry(np.ones(p), np.eye(p), sizes, 0.0, sizes, 0.01, 0.05, np.zeros(p))
    hidden = metric(shape, 1e-6).gains[:-1]
    assert np.max(hidden) ** 2 * np.mean(sizes[:-1]) < 2.01
