"""The three tree mechanisms against closed forms and against brute force."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from dpsco.release.mechanisms import mechanism


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tree", {16: 4.472, 64: 6.481, 256: 8.485}),
        ("honaker", {16: 3.723, 64: 5.154, 256: 6.574}),
        ("sqrt", {16: 1.944, 64: 2.389, 256: 2.831}),
        ("independent", {16: 4.0, 64: 8.0, 256: 16.0}),
        ("smooth", {16: 2.4371, 64: 3.2558, 256: 4.5005, 1000: math.sqrt(40)}),
    ],
)
def test_max_errors_match_the_known_table(name: str, expected: dict[int, float]) -> None:
    for horizon, error in expected.items():
        assert mechanism(name, horizon=horizon).max_error == pytest.approx(error, abs=5.1e-4)


def test_honaker_is_the_least_squares_estimate_from_each_subtree() -> None:
    """The best linear estimate of the first 2^k rounds from the nodes below them, by generalised least squares."""
    for horizon in (1, 2, 4, 8, 16):
        made = mechanism("honaker", horizon=horizon)
        c = made.strategy()
        best = np.ones(horizon) @ np.linalg.pinv(c)  # A's last row from C D + Z with white Z
        assert made.decoder()[-1] == pytest.approx(best, abs=1e-12)


def test_honaker_never_exceeds_the_tree() -> None:
    for horizon in range(1, 130):
        honaker, tree = mechanism("honaker", horizon=horizon), mechanism("tree", horizon=horizon)
        assert np.all(honaker.errors <= tree.errors + 1e-12)


def test_smooth_leaves_are_the_words_of_equal_weight_in_order() -> None:
    made = mechanism("smooth", horizon=200)
    width = made.zeros + made.ones  # type: ignore[attr-defined]
    words = sorted(sum(1 << bit for bit in bits) for bits in combinations(range(width), made.ones))  # type: ignore[attr-defined]
    assert made._words == words[:201]  # type: ignore[attr-defined]


def test_smooth_has_the_same_error_in_every_round_and_beats_the_tree() -> None:
    for horizon in (2, 3, 10, 16, 64, 100, 256, 1000):
        smooth, tree = mechanism("smooth", horizon=horizon), mechanism("tree", horizon=horizon)
        assert np.ptp(smooth.errors) == 0.0
        assert smooth.max_error <= tree.max_error
        assert smooth.memory <= 2 * math.log2(horizon) + 1


def test_smooth_shape_is_the_best_one() -> None:
    for horizon in (1, 2, 5, 16, 64, 100, 256, 1000):
        made = mechanism("smooth", horizon=horizon)
        products = [a * b for a in range(1, 1001) for b in range(1, 40) if math.comb(a + b, b) > horizon]
        assert made.zeros * made.ones == min(products)  # type: ignore[attr-defined]
        assert made.max_error**2 <= min(products) * (1 + 1e-12)


@pytest.mark.parametrize("horizon", [2, 16, 65, 200])
def test_the_sensitivity_of_smooth_is_what_its_outputs_show(horizon: int) -> None:
    """Of the outputs A D + B Z alone: a_s' (B B')^-1 a_s, by a triangular factor; and no less than that."""
    made = mechanism("smooth", horizon=horizon)
    factor = np.linalg.cholesky(made.decoder() @ made.decoder().T)
    columns = np.linalg.norm(np.linalg.solve(factor, np.tri(horizon)), axis=0)
    assert made.sensitivity == pytest.approx(np.max(columns), rel=1e-12)
    assert made.sensitivity <= math.sqrt(made.zeros) * (1 + 1e-12)  # type: ignore[attr-defined]
