"""Losses against finite differences, and their constants against random rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco

RNG = np.random.default_rng(11)
ONE_SCORE = [dpsco.Logistic(), dpsco.Squared(2.0), dpsco.Huber(0.7), dpsco.SmoothedHinge(0.4)]


@pytest.mark.parametrize("loss", ONE_SCORE, ids=lambda loss: loss.kind)
def test_slope_is_the_derivative_of_value(loss) -> None:
    scores = RNG.uniform(-3, 3, 2000)
    labels = RNG.integers(0, 2, 2000).astype(float)
    h = 1e-6
    numeric = (loss.value(scores + h, labels) - loss.value(scores - h, labels)) / (2 * h)
    np.testing.assert_allclose(loss.slope(scores, labels), numeric, atol=3e-6)


@pytest.mark.parametrize("loss", [dpsco.Softmax(4), dpsco.MulticlassHinge(4, 0.5)], ids=lambda loss: loss.kind)
def test_slope_of_several_scores_is_the_gradient_of_value_and_curvature_that_of_slope(loss) -> None:
    scores, labels = RNG.uniform(-3, 3, (200, 4)), RNG.integers(0, 4, 200)
    h = 1e-6
    for k in range(4):
        step = h * np.eye(4)[k]
        numeric = (loss.value(scores + step, labels) - loss.value(scores - step, labels)) / (2 * h)
        np.testing.assert_allclose(loss.slope(scores, labels)[:, k], numeric, atol=1e-8)
        numeric = (loss.slope(scores + step, labels) - loss.slope(scores - step, labels)) / (2 * h)
        np.testing.assert_allclose(loss.curvature(scores, labels)[:, :, k], numeric, atol=1e-8)


def test_the_multiclass_hinge_is_that_of_crammer_and_singer_in_the_limit() -> None:
    scores, labels = RNG.uniform(-3, 3, (200, 4)), RNG.integers(0, 4, 200)
    own = scores[np.arange(200), labels]
    hinge = np.max(scores + (np.arange(4) != labels[:, None]), axis=1) - own
    np.testing.assert_allclose(dpsco.MulticlassHinge(4, 1e-3).value(scores, labels), hinge, atol=1e-3 * math.log(4))


@pytest.mark.parametrize("loss", [*ONE_SCORE, dpsco.Softmax(3), dpsco.MulticlassHinge(3)], ids=lambda loss: loss.kind)
def test_lipschitz_and_smoothness_hold_on_random_rows_and_are_not_idle(loss) -> None:
    norm, radius, p, k = 1.5, 2.0, 5, loss.outputs
    problem = dpsco.Problem(loss, dpsco.L2Ball(radius), dimension=p, feature_norm=norm)
    steepest = curved = 0.0
    for _ in range(4000):
        a = RNG.standard_normal(p)
        a *= norm / np.linalg.norm(a)
        y = float(RNG.integers(0, 2)) if loss.kind != "squared" else RNG.choice([-2.0, 2.0])
        x = RNG.standard_normal((k, p))
        x *= radius / np.linalg.norm(x)
        d = RNG.standard_normal((k, p))
        d *= 0.01 / np.linalg.norm(d)
        g = [
            np.outer(loss.slope(s if k > 1 else s[:, 0], np.array([y])).reshape(k), a)
            for s in ((x @ a)[None, :], ((x + d) @ a)[None, :])
        ]
        steepest = max(steepest, float(np.linalg.norm(g[0])))
        curved = max(curved, float(np.linalg.norm(g[1] - g[0])) / 0.01)
    assert 0.5 * problem.lipschitz < steepest <= problem.lipschitz * (1 + 1e-12)
    assert 0.3 * problem.smoothness < curved <= problem.smoothness * (1 + 1e-9)


def test_squared_loss_has_no_lipschitz_constant_on_an_unbounded_domain() -> None:
    problem = dpsco.Problem(dpsco.Squared(), dpsco.Everything(), dimension=2)
    with pytest.raises(dpsco.InvalidArgument, match="unbounded"):
        _ = problem.lipschitz


@pytest.mark.parametrize(
    ("loss", "good", "bad"),
    [
        (dpsco.Logistic(), [0, 1], [2, -1, 0.5, math.nan]),
        (dpsco.SmoothedHinge(), [0, 1], [2, -1, math.inf]),
        (dpsco.Softmax(3), [0, 1, 2], [3, -1, 1.5, math.nan]),
        (dpsco.Squared(1.0), [-1.0, 0.3, 1.0], [1.1, math.nan, math.inf]),
        (dpsco.Huber(), [-10.0, 3.0], [math.nan, -math.inf]),
    ],
    ids=lambda v: getattr(v, "kind", ""),
)
def test_labels_a_loss_cannot_take_are_known(loss, good, bad) -> None:
    assert loss.valid(np.array(good)).all()
    assert not loss.valid(np.array(bad)).any()


def test_slopes_of_infinite_scores_are_finite_where_the_loss_is_lipschitz() -> None:
    for loss in (dpsco.Logistic(), dpsco.Huber(), dpsco.SmoothedHinge()):
        assert np.isfinite(loss.slope(np.array([1e308, -1e308]), np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, "wide"])
def test_widths_and_bounds_are_checked(bad) -> None:
    for make in (dpsco.Huber, dpsco.SmoothedHinge, dpsco.Squared):
        with pytest.raises(dpsco.InvalidArgument):
            make(bad)
    with pytest.raises(dpsco.InvalidArgument):
        dpsco.Softmax(classes=1)
