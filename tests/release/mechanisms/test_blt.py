"""Buffered Toeplitz: square-root Toeplitz in a few p-vectors, at any horizon."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.release.mechanisms import BufferedToeplitz, SquareRoot
from dpsco.release.mechanisms.blt import Decays, _geometric_sums, _log_max_error, starting_point, unpack


@pytest.mark.parametrize("horizon", [*range(1, 65), 100, 101, 256, 257, 500, 777, 1000, 2048, 3000, 4096])
def test_the_max_error_is_within_two_thousandths_of_square_root_toeplitz(horizon: int) -> None:
    assert BufferedToeplitz(horizon).max_error <= 1.002 * SquareRoot(horizon).max_error


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [10_000, 100_000])
def test_very_long_horizons_still_fit(horizon: int) -> None:
    made = BufferedToeplitz(horizon)
    assert made.memory <= 8
    assert made.max_error <= 1.002 * SquareRoot(horizon).max_error


def test_memory_grows_hardly_at_all() -> None:
    assert [BufferedToeplitz(horizon).memory for horizon in (16, 256, 4096)] == [2, 3, 4]


def test_the_closed_form_of_the_max_error_is_the_max_error() -> None:
    generator = np.random.default_rng(5)
    for horizon in (1, 2, 9, 200):
        parameters = starting_point(horizon, 3) + 0.3 * generator.standard_normal(6)
        decays = unpack(parameters)
        c, b = decays.coefficients(horizon), np.cumsum(decays.inverse_coefficients(horizon))
        brute = np.sqrt(np.sum(c**2) * np.sum(b**2))
        assert np.exp(_log_max_error(parameters, horizon)) == pytest.approx(brute, rel=1e-9)


def test_the_inverse_coefficients_invert() -> None:
    decays = Decays(theta=np.array([0.99, 0.5]), omega=np.array([0.2, 0.25]))
    product = np.convolve(decays.coefficients(50), decays.inverse_coefficients(50))[:50]
    assert product == pytest.approx(np.eye(50)[0], abs=1e-14)


def test_geometric_sums_are_sums() -> None:
    gaps = np.array([0.0, 1e-9, 0.1, 1.4])
    brute = [[sum(((1 - x) * (1 - y)) ** k for k in range(30)) for y in gaps] for x in gaps]
    assert _geometric_sums(gaps, 30) == pytest.approx(np.array(brute), rel=1e-9)
