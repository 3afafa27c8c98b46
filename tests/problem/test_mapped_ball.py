"""The projection onto {||M u|| <= radius} is the nearest point."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.problem.mapped_ball import MatrixBall


@pytest.mark.parametrize("classes", [1, 3])
def test_the_projection_is_the_nearest_point(classes):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((4, 4)) * [1.0, 10.0, 0.1, 3.0]
    ball = MatrixBall(matrix, 2.0)
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


def test_points_inside_need_no_decomposition(monkeypatch):
    monkeypatch.setattr(np.linalg, "eigh", lambda _: pytest.fail("a point inside was decomposed"))
    u = np.array([0.6, -0.7])
    np.testing.assert_array_equal(MatrixBall(np.diag([1.0, 2.0]), 1.6).project(u), u)
    with pytest.raises(pytest.fail.Exception):
        MatrixBall(np.diag([1.0, 2.0]), 1.5).project(u)
