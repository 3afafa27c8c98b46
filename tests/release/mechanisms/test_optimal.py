"""The dense factorisation is optimal: certified by duality, which is computed here independently."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dpsco.errors import InvalidArgument
from dpsco.release.mechanisms import Dense, SquareRoot, mechanism
from dpsco.release.mechanisms.comparison import lower_bound


def dual_bound(horizon: int, steps: int = 400) -> float:
    """A lower bound on the max error of any factorisation: the nuclear norm of W^.5 A V^.5, w and v on the simplex."""
    a = np.tri(horizon)
    v = np.full(horizon, 1.0 / horizon)
    w = v.copy()
    for _ in range(steps):
        left, values, right = np.linalg.svd(np.sqrt(w)[:, None] * a * np.sqrt(v))
        w, v = (left**2) @ values, (right.T**2) @ values
        w, v = w / np.sum(w), v / np.sum(v)
    return float(np.sum(np.linalg.svd(np.sqrt(w)[:, None] * a * np.sqrt(v), compute_uv=False)))


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 16, 64])
def test_the_max_error_meets_its_dual_bound(horizon: int) -> None:
    bound = dual_bound(horizon)
    assert bound * (1 - 1e-9) <= Dense(horizon).max_error <= bound * (1 + 1e-4)


def test_two_rounds_have_the_known_optimum() -> None:
    assert Dense(2).max_error == pytest.approx(2.0 / np.sqrt(3.0), rel=1e-4)


def test_the_table_is_beaten() -> None:
    assert Dense(16).max_error <= 1.731
    assert Dense(64).max_error <= 2.187


@pytest.mark.parametrize("horizon", [2, 16, 50])
def test_the_mean_objective_is_no_worse_than_any_other_known_strategy_and_locally_best(horizon: int) -> None:
    made = Dense(horizon, objective="mean")
    assert made.mean_error <= Dense(horizon).mean_error * (1 + 1e-6)
    assert made.mean_error <= SquareRoot(horizon).mean_error
    assert made.mean_error >= lower_bound(horizon)
    generator = np.random.default_rng(0)
    for _ in range(20):
        c = made.strategy() + 0.02 * np.tril(generator.standard_normal((horizon, horizon))) / np.sqrt(horizon)
        c /= np.linalg.norm(c, axis=0)
        other = np.sqrt(np.sum((np.tri(horizon) @ np.linalg.inv(c)) ** 2) / horizon)
        assert other >= made.mean_error * (1 - 1e-5)


def test_columns_have_norm_one() -> None:
    for made in (Dense(37), Dense(37, objective="mean"), mechanism("workload", horizon=37)):
        assert np.linalg.norm(made.strategy(), axis=0) == pytest.approx(np.ones(37), rel=1e-14)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Unknown objective='median'"):
        Dense(4, objective="median")


def test_the_lower_bound_is_the_nuclear_norm_over_the_horizon() -> None:
    for horizon in (1, 2, 17, 64):
        assert lower_bound(horizon) == pytest.approx(np.linalg.norm(np.tri(horizon), "nuc") / horizon, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "workload", "blt"])
def test_a_fit_at_the_longest_horizon_is_ready_in_seconds(name: str) -> None:
    start = time.perf_counter()
    assert mechanism(name, horizon=509).max_error > 0.0
    assert time.perf_counter() - start < 10.0  # 1 s on a quiet machine; benchmarks measure, this only catches disasters
