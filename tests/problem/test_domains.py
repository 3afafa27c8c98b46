"""Projections against their definition: the nearest point of the set."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsco

P = 4
DOMAINS = [
    dpsco.L2Ball(1.3),
    dpsco.L2Ball(0.7, center=(1.0, 0.0, -1.0, 2.0)),
    dpsco.Box(-0.5, 1.0),
    dpsco.Box((-1.0, 0.0, -math.inf, -2.0), (1.0, 0.5, 0.0, math.inf)),
    dpsco.Simplex(2.0),
    dpsco.HalfSpace((1.0, -1.0, 2.0, 0.0), offset=0.5),
    dpsco.Everything(),
    dpsco.Product((dpsco.Simplex(1.0), dpsco.L2Ball(0.5)), (2, 2)),
]
vectors = st.lists(st.floats(-1e6, 1e6), min_size=P, max_size=P).map(np.array)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: d.kind)
@given(x=vectors, other=vectors)
@settings(max_examples=60)
def test_a_projection_is_idempotent_nearest_and_never_expands(domain, x, other) -> None:
    scale = 1 + np.abs(x).max() + np.abs(other).max()
    p, q = domain.project(x), domain.project(other)
    np.testing.assert_allclose(domain.project(p), p, atol=1e-9 * scale)
    # Nearest point of a convex set: <x - p, q - p> <= 0 for every q of the set.
    assert (x - p) @ (q - p) <= 1e-9 * scale**2
    assert np.linalg.norm(p - q) <= np.linalg.norm(x - other) + 1e-9 * scale


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: d.kind)
def test_radius_and_diameter_bound_every_pair_of_points_and_are_reached(domain) -> None:
    rng = np.random.default_rng(5)
    points = np.array([domain.project(v) for v in rng.standard_normal((4000, P)) * 30])
    radius, diameter = domain.radius_in(P), domain.diameter_in(P)
    norms = np.linalg.norm(points, axis=1)
    spread = max(np.linalg.norm(points[:200, None] - points[None, :200], axis=2).max(), 0.0)
    assert norms.max() <= radius * (1 + 1e-9)
    assert spread <= diameter * (1 + 1e-9)
    if math.isfinite(radius):
        assert norms.max() >= 0.8 * radius
        assert spread >= 0.7 * diameter


def test_a_ball_of_radius_r_has_diameter_2r() -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(3.0), dimension=2)
    assert (problem.radius, problem.diameter) == (3.0, 6.0)


def test_a_projection_never_returns_its_argument() -> None:
    for domain in DOMAINS:
        x = domain.project(np.full(P, 0.1))
        assert domain.project(x) is not x


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: dpsco.L2Ball(0.0), "radius"),
        (lambda: dpsco.L2Ball(math.nan), "radius"),
        (lambda: dpsco.Box(1.0, 0.0), "lower <= upper"),
        (lambda: dpsco.Box((0.0, 0.0), (1.0,)), "equal length"),
        (lambda: dpsco.Box(math.nan, 1.0), "lower <= upper"),
        (lambda: dpsco.Simplex(-1.0), "total"),
        (lambda: dpsco.HalfSpace((0.0, 0.0)), "normal"),
        (lambda: dpsco.Product((dpsco.Everything(),), (1, 2)), "one size"),
        (lambda: dpsco.Product((dpsco.L2Ball(1.0, (1.0, 2.0)),), (3,)), "center"),
        (lambda: dpsco.Problem(dpsco.Logistic(), dpsco.HalfSpace((1.0, 2.0)), dimension=3), "normal"),
        (lambda: dpsco.Problem(dpsco.Softmax(3), dpsco.Product((dpsco.L2Ball(1.0),), (4,)), dimension=4), "12"),
    ],
)
def test_impossible_domains_are_refused_by_name(make, says) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=says):
        make()


def test_a_problem_on_one_point_is_refused() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="more than one point"):
        dpsco.Problem(dpsco.Logistic(), dpsco.Simplex(), 1)
    assert dpsco.Problem(dpsco.Logistic(), dpsco.Simplex(), 1, intercept=True).diameter > 0
