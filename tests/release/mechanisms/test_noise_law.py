"""Streamed noise has the covariance B B': T = 64, N = 1e5 coordinates, every step and every lag.

Each of the 2080 sample covariances of a case is compared within 6 standard errors (alpha = 2e-9 each, 5e-5 for all
cases together); the draws are seeded, so the suite either always passes or always fails.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.release.mechanisms import mechanism

HORIZON, COORDINATES = 64, 100_000


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tree", {}),
        ("honaker", {}),
        ("smooth", {}),
        ("sqrt", {}),
        ("blt", {}),
        ("dense", {}),
        ("workload", {}),
        ("workload", {"buffers": 2}),
        ("independent", {}),
    ],
)
def test_variances_and_lag_covariances_match_the_decoder(name: str, options: dict[str, int]) -> None:
    made = mechanism(name, horizon=HORIZON, **options)
    generator = np.random.default_rng(20240607)
    buffers, increments = made.start(), []
    for step in range(HORIZON):
        noise, buffers = made.increment(buffers, step, lambda row: generator.standard_normal(COORDINATES))
        increments.append(noise)
    prefix = np.cumsum(increments, axis=0)
    sample = prefix @ prefix.T / COORDINATES
    exact = made.decoder() @ made.decoder().T
    variance = np.diag(exact)
    standard_error = np.sqrt((np.outer(variance, variance) + exact**2) / COORDINATES)
    assert np.max(np.abs(sample - exact) / standard_error) < 6.0
