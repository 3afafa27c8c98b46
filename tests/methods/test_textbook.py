"""Without noise and clip, every method is the textbook method that it is named after: short transcriptions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from tests.method_plans import under

import dpsco
from dpsco import methods
from dpsco.query import Array

P, N, T = 4, 192, 8
B = N // T
BALL = dpsco.L2Ball(radius=0.8)
PROBLEM = dpsco.Problem(dpsco.Logistic(), BALL, dimension=P, feature_norm=2.0)
PLAN = dpsco.Plan(PROBLEM, N, dpsco.Budget(math.inf, 1e-3), dpsco.AcceleratedSRGD(rounds=T, beta=0.7, clip=math.inf))
M = PROBLEM.smoothness


@pytest.fixture(scope="module")
def rows() -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    features = rng.standard_normal((N, P))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1) / 2.0)[:, None]
    return features, (rng.random(N) < 1 / (1 + np.exp(-features @ np.ones(P)))).astype(float)


@pytest.fixture(scope="module")
def mean(rows):
    """mean(x, rows): mean gradient of the logistic loss at x over some rows."""

    def gradient(x: Array, part: slice) -> Array:
        a, y = rows[0][part], rows[1][part]
        return a.T @ (1 / (1 + np.exp(-a @ x)) - y) / len(y)

    return gradient


def trained(method, rows) -> Array:
    return dpsco.train(under(PLAN, method), dpsco.stream(*rows)).model.coef


def project(x: Array) -> Array:
    return x * min(1.0, 0.8 / max(float(np.linalg.norm(x)), 1e-300))


def batch(t: int) -> slice:
    return slice(t * B, (t + 1) * B)


EVERYTHING = slice(0, N)


@pytest.mark.parametrize("iterate", ["average", "last", "tail"])
def test_dp_sgd_is_projected_minibatch_sgd(rows, mean, iterate) -> None:
    x, seen = np.zeros(P), []
    for t in range(T):
        x = project(x - 1.3 * mean(x, batch(t)))
        seen.append(x)
    expected = {"average": np.mean(seen, axis=0), "last": x, "tail": np.mean(seen[T // 2 :], axis=0)}[iterate]
    np.testing.assert_allclose(
        trained(partial(methods.DPSGD, step_size=1.3, iterate=iterate), rows), expected, atol=1e-13
    )


def test_poisson_dp_sgd_at_rate_1_is_gradient_descent(rows, mean) -> None:
    x = np.zeros(P)
    for _ in range(T):
        x = project(x - 1.3 * mean(x, EVERYTHING))
    np.testing.assert_allclose(
        trained(partial(methods.PoissonDPSGD, step_size=1.3, iterate="last", epochs=float(T)), rows), x, atol=1e-13
    )


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("restarts", [0, 2])
def test_dp_ftrl_is_the_regularised_leader_with_momentum(rows, mean, momentum, restarts) -> None:
    x, total, moving = np.zeros(P), np.zeros(P), np.zeros(P)
    for t in range(T):
        total = total + mean(x, batch(t))
        moving = momentum * moving + total
        x = project(-0.4 * moving)
    method = partial(methods.DPFTRL, step_size=0.4, momentum=momentum, restarts=restarts, iterate="last")
    np.testing.assert_allclose(trained(method, rows), x, atol=1e-13)


@pytest.mark.parametrize(("method", "part"), [(methods.AcceleratedSGD, batch), (methods.AcceleratedGD, None)])
def test_acceleration_without_recursive_gradients_is_nesterovs(rows, mean, method, part) -> None:
    x = y = z = np.zeros(P)
    for t in range(T):
        g = mean(x, EVERYTHING if part is None else part(t))
        z = project(z - (t + 1) / (2 * 1.1) * g)
        y = project(x - g / 1.1)
        tau = (t + 2) / sum(range(1, t + 3))
        x = (1 - tau) * y + tau * z
    np.testing.assert_allclose(trained(partial(method, beta=1.1), rows), y, atol=1e-13)


@pytest.mark.parametrize("mechanism", ["sqrt", "workload"])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_dp_ftrl_with_decay_is_descent_with_momentum_and_steps_that_fall_linearly(rows, mean, momentum, mechanism):
    steps = np.arange(T, 0, -1.0)
    steps *= 0.4 * T / steps.sum()
    x, velocity, moved = np.zeros(P), np.zeros(P), np.zeros(P)
    for t in range(T):
        velocity = momentum * velocity + mean(x, batch(t))
        moved = moved + steps[t] * velocity
        x = project(-moved)
    method = partial(
        methods.DPFTRL, step_size=0.4, momentum=momentum, decay="linear", mechanism=mechanism, iterate="last"
    )
    np.testing.assert_allclose(trained(method, rows), x, atol=1e-13)


@pytest.mark.parametrize("constants", ["tight", "paper"])
def test_unaccelerated_srgd_is_descent_on_weighted_recursive_gradients(rows, mean, constants) -> None:
    x, before, total = np.zeros(P), np.zeros(P), np.zeros(P)
    for t in range(T):
        total = total + (t + 1) * mean(x, batch(t)) - t * mean(before, batch(t))
        x, before = project(x - total / (t + 1) / 0.9), x
    np.testing.assert_allclose(
        trained(partial(methods.UnacceleratedSRGD, beta=0.9, constants=constants), rows), x, atol=1e-13
    )


@pytest.mark.parametrize("power", [1, 3])
def test_online_to_batch_is_adagrad_norm_on_its_own_weighted_average(rows, mean, power) -> None:
    w, learner, g, squares = np.zeros(P), [np.zeros(P)], np.zeros(P), 0.0
    averages = [np.zeros(P)]
    for t in range(1, T + 1):
        weights = np.arange(1, t + 1.0) ** power
        x = weights @ np.array(learner) / weights.sum()  # the average of w_1 .. w_t, afresh
        averages.append(x)
        part = batch(t - 1)
        g = g + t**power * mean(x, part) - (t - 1) ** power * mean(averages[t - 1], part)
        squares += float(g @ g)
        w = project(w - 1.5 / math.sqrt(2 * squares) * g)
        learner.append(w)
    np.testing.assert_allclose(
        trained(partial(methods.OnlineToBatch, step_size=1.5, power=power), rows), averages[-1], atol=1e-12
    )


def test_snowball_without_noise_is_sgd_row_by_row(rows, mean) -> None:
    x = np.zeros(P)
    for i in range(N):
        x = project(x - 0.05 * mean(x, slice(i, i + 1)))
    np.testing.assert_allclose(trained(partial(methods.SnowballSGD, step_size=0.05), rows), x, atol=1e-12)


def test_phased_sgd_is_averaged_sgd_in_phases(rows, mean) -> None:
    w, at = np.zeros(P), 0
    for i in range(1, math.ceil(math.log2(N)) + 1):
        v, seen = w, []
        for row in range(at, at + (N >> i)):
            seen.append(v)
            v = project(v - 2.0 / 4**i * mean(v, slice(row, row + 1)))
        if seen:
            w, at = np.mean(seen, axis=0), at + (N >> i)
    np.testing.assert_allclose(trained(partial(methods.PhasedSGD, step_size=2.0), rows), w, atol=1e-12)


@pytest.mark.parametrize("solver", ["svrg", "accelerated"])
def test_phased_erm_follows_the_regularised_minimisers(rows, mean, solver) -> None:
    """Gradient descent to convergence finds them too; each phase of ours is within its tau, and phases contract."""
    method = partial(methods.PhasedERM, step_size=3.0, solver=solver)
    w, at, allowed = np.zeros(P), 0, 0.0
    plan = under(PLAN, method)
    for phase, _ in enumerate(plan.schedule.portions):
        numbers = plan.method.subproblem(PROBLEM, N, 3.0, phase)
        part, centre = slice(at, at + numbers.rows), w
        for _ in range(4000):
            w = project(w - (mean(w, part) + numbers.lam * (w - centre)) / numbers.smoothness)
        at, allowed = at + numbers.rows, allowed + numbers.tau
    assert np.linalg.norm(trained(method, rows) - w) <= allowed


def test_localized_accelerated_is_ac_sa_in_shrinking_balls(rows, mean) -> None:
    lam, w0, at = 0.02, np.zeros(P), 0
    L = PROBLEM.lipschitz
    for i in range(1, math.ceil(math.log2(N) / 2) + 1):
        part, b, radius = slice(at, at + (N >> i)), M + lam, 2 * L / lam
        rounds = math.ceil(4 * math.sqrt(b / lam))
        w = ag = w0
        for r in range(1, rounds + 1):
            a, e = 2 / (r + 1), 4 * 2 * b / (r * (r + 1))
            md = ((1 - a) * (lam + e) * ag + a * ((1 - a) * lam + e) * w) / (e + (1 - a * a) * lam)
            g = mean(md, part) + lam * (md - w0)
            moved = (a * lam * md + ((1 - a) * lam + e) * w - a * g) / (lam + e)
            w = nearest(moved, w0, radius)
            ag = a * w + (1 - a) * ag
        w0, at, lam = ag, at + (N >> i), 8 * lam
    ours = trained(partial(methods.LocalizedAccelerated, regularisation=0.02), rows)
    np.testing.assert_allclose(ours, w0, atol=1e-6)


def nearest(x: Array, centre: Array, radius: float) -> Array:
    """Projection on the intersection of two balls, by bisection on the multiplier of the second one."""
    if np.linalg.norm(project(x) - centre) <= radius:
        return project(x)
    low, high = 0.0, 1.0
    for _ in range(200):  # share of the centre in a convex combination
        share = (low + high) / 2
        point = project((1 - share) * x + share * centre)
        low, high = (share, high) if np.linalg.norm(point - centre) > radius else (low, share)
    return project((1 - high) * x + high * centre)
