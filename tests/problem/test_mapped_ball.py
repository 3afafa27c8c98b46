"""The projection onto {||M u|| <= radius} is the nearest point."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.problem.mapped_ball import mapped_ball


@pytest.mark.parametrize("classes", [1, 3])
def test_the_projection_is_the_nearest_point(classes):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((4, 4)) * [1.0, 10.0, 0.1, 3.0]
    ball = mapped_ball(matrix, 2.0)
    for _ in range(20):
        u = rng.standard_normal(4 * classes) * 5
        near = ball.project(u)
        assert np.linalg.norm(near.reshape(classes, 4) @ matrix.T) <= 2.0 * (1 + 1e-12)
        for _ in range(50):  # the variational inequality, at other points of the set
            other = rng.standard_normal(4 * classes)
            other *= rng.uniform() * 2.0 / np.linalg.norm(other.reshape(classes, 4) @ matrix.T)
            assert (u - near) @ (other - near) <= 1e-9 * np.linalg.norm(u) ** 2
        np.testing.assert_allclose(ball.project(near), near, rtol=1e-9, atol=1e-12)
    inside = np.full(4 * classes, 1e-3)
    np.testing.assert_array_equal(ball.project(inside), inside)
