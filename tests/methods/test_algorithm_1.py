"""Algorithm 1 against a transcription of the paper, and its rate on quadratics."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsco
from dpsco.algorithm_1 import eta, tau

P, N, T = 6, 240, 8
NO_NOISE = dpsco.Budget(epsilon=math.inf, delta=1e-6)
DOMAINS = {
    "ball": dpsco.L2Ball(radius=0.4),
    "shifted ball": dpsco.L2Ball(radius=0.5, center=(0.2, -0.1, 0.0, 0.0, 0.1, 0.3)),
    "box": dpsco.Box(-0.1, 0.3),
    "uneven box": dpsco.Box((-0.1,) * 6, (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)),
    "simplex": dpsco.Simplex(total=1.5),
    "half-space": dpsco.HalfSpace(normal=(1.0, 2.0, -1.0, 0.0, 1.0, 0.5), offset=0.1),
    "everything": dpsco.Everything(),
    "product": dpsco.Product((dpsco.L2Ball(0.2), dpsco.Box(-0.1, 0.1), dpsco.Simplex(1.0)), (2, 2, 2)),
}
LOSSES = {
    "logistic": dpsco.Logistic(),
    "squared": dpsco.Squared(label_bound=1.0),
    "huber": dpsco.Huber(width=0.3),
    "hinge": dpsco.SmoothedHinge(width=0.5),
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    features = rng.standard_normal((N, P)) / math.sqrt(P)
    return features, (rng.random(N) < 0.5).astype(float)


def transcription(gradient, project, features, labels, *, rounds, size, beta, c, x0):
    """Algorithm 1 of the paper, line by line, without noise; c = 1 listed, 2 as in the proof."""
    x = z = x0
    x_before = np.zeros_like(x0)
    deltas = []
    for t in range(rounds):
        eta_t, eta_before = t + 1, t
        batch = range(t * size, (t + 1) * size)
        delta = np.zeros_like(x0)
        for i in batch:
            delta += eta_t * gradient(x, features[i], labels[i]) - eta_before * gradient(
                x_before, features[i], labels[i]
            )
        deltas.append(delta / size)
        nabla = sum(deltas) / eta_t
        z = project(z - eta_t / (c * beta) * nabla)
        y = project(x - nabla / beta)
        eta_next, sum_next = t + 2, sum(range(1, t + 3))
        x_before, x = x, (1 - eta_next / sum_next) * y + eta_next / sum_next * z
    return y


@pytest.mark.parametrize("z_step", ["listed", "halved"])
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_without_noise_and_clip_it_is_the_papers_algorithm_on_every_domain(rows, domain, z_step) -> None:
    features, labels = rows
    unbounded = math.isinf(domain.radius_in(P))
    loss = dpsco.Logistic() if unbounded else dpsco.Squared(label_bound=1.0)
    problem = dpsco.Problem(loss=loss, domain=domain, dimension=P, feature_norm=2.0)
    plan = dpsco.Plan(problem, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=T, beta=0.7, clip=math.inf, z_step=z_step))
    result = dpsco.train(plan, dpsco.stream(features, labels))

    def gradient(x, a, y):
        m = a @ x
        return (1 / (1 + math.exp(-m)) - y) * a if unbounded else (m - y) * a

    c = 1 if z_step == "listed" else 2
    x0 = domain.project(np.zeros(P))
    expected = transcription(gradient, domain.project, features, labels, rounds=T, size=N // T, beta=0.7, c=c, x0=x0)
    np.testing.assert_allclose(result.model.coef, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_any_start_and_any_loss_follow_the_papers_algorithm(rows, loss) -> None:
    features, labels = rows
    problem = dpsco.Problem(loss=loss, domain=dpsco.L2Ball(radius=2.0), dimension=P, feature_norm=2.0)
    plan = dpsco.Plan(problem, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=T, beta=0.9, clip=math.inf))
    start = np.linspace(-1, 1, P)
    result = dpsco.train(plan, dpsco.stream(features, labels), start=start)

    def gradient(x, a, y):
        m, s = a @ x, 2 * y - 1
        slope = {
            "logistic": 1 / (1 + math.exp(-m)) - y,
            "squared": m - y,
            "huber": max(-0.3, min(0.3, m - y)),
            "smoothed-hinge": -s * max(0.0, min(1.0, (1 - s * m) / 0.5)),
        }[loss.kind]
        return slope * a

    expected = transcription(
        gradient, problem.domain.project, features, labels, rounds=T, size=N // T, beta=0.9, c=2, x0=start
    )
    np.testing.assert_allclose(result.model.coef, expected, rtol=0, atol=1e-12)


def test_a_start_outside_the_domain_is_projected_into_it(rows) -> None:
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=1.0), dimension=P)
    plan = dpsco.Plan(problem, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=math.inf))
    far, near = 10.0 * np.ones(P), np.ones(P) / math.sqrt(P)
    outside = dpsco.train(plan, dpsco.stream(*rows), start=far).model.coef
    np.testing.assert_allclose(outside, dpsco.train(plan, dpsco.stream(*rows), start=near).model.coef, atol=1e-12)


def test_eta_and_tau_are_the_papers() -> None:
    assert eta(-1) == 0
    for t in range(50):
        assert eta(t) == t + 1
        assert tau(t) == pytest.approx(eta(t) / sum(eta(s) for s in range(t + 1)), rel=1e-15)


@pytest.mark.parametrize("z_step", ["listed", "halved"])
@pytest.mark.parametrize("rounds", [1, 2, 5, 16, 64])
def test_on_quadratics_the_excess_is_at_most_2_beta_r2_over_t2(rounds, z_step) -> None:
    """Every batch holds the same rows, so each gradient is the population's."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(5):
        a = rng.standard_normal((20, P)) * np.geomspace(1, 0.01, P)
        a /= np.linalg.norm(a, axis=1).max()
        optimum = rng.standard_normal(P)
        labels = a @ optimum
        bound = float(np.abs(labels).max())
        smoothness = float(np.linalg.eigvalsh(a.T @ a / 20)[-1])
        problem = dpsco.Problem(dpsco.Squared(label_bound=bound), dpsco.L2Ball(radius=100.0), dimension=P)
        plan = dpsco.Plan(
            problem,
            20 * rounds,
            NO_NOISE,
            dpsco.AcceleratedSRGD(rounds=rounds, beta=smoothness, clip=math.inf, z_step=z_step),
        )
        stream = dpsco.stream(np.tile(a, (rounds, 1)), np.tile(labels, rounds))
        error = dpsco.train(plan, stream).model.coef - optimum
        excess = 0.5 * float(np.mean((a @ error) ** 2))
        worst = max(worst, excess / (2 * smoothness * float(optimum @ optimum) / rounds**2))
    assert worst <= 1.0


def test_the_state_is_told_released_values_and_nothing_else() -> None:
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=1.0), dimension=2)
    plan = dpsco.Plan(problem, 10, dpsco.Budget(1.0, 1e-3), dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0))
    method = plan.method
    state = method.start(plan.schedule, np.zeros(2))
    with pytest.raises(dpsco.LedgerError, match="Released"):
        method.tell(plan.schedule, state, np.zeros(2))  # type: ignore[arg-type]


def test_round_0_asks_for_one_gradient_and_later_rounds_for_the_weighted_difference() -> None:
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=1.0), dimension=2)
    plan = dpsco.Plan(problem, 10, NO_NOISE, dpsco.AcceleratedSRGD(rounds=3, beta=1.0, clip=math.inf))
    seen = []

    class Spy(dpsco.LinearOracle):
        def answer(self, query, batch):
            seen.append((query.weights, len(query.points)))
            return super().answer(query, batch)

    dpsco.train(plan, dpsco.stream(np.ones((10, 2)), np.ones(10)), oracle=Spy(problem.loss))
    assert seen == [((1.0,), 1), ((2.0, -1.0), 2), ((3.0, -2.0), 2)]


@pytest.mark.parametrize("classes", [1, 3])
def test_an_intercept_is_one_more_feature_that_is_always_1(rows, classes) -> None:
    features, labels = rows
    loss = dpsco.Logistic() if classes == 1 else dpsco.Softmax(classes)
    ball = dpsco.L2Ball(radius=1.0)
    with_intercept = dpsco.Problem(loss, ball, dimension=P, feature_norm=2.0, intercept=True)
    by_hand = dpsco.Problem(loss, ball, dimension=P + 1, feature_norm=math.hypot(2.0, 1.0))
    assert with_intercept.parameters == by_hand.parameters
    assert with_intercept.lipschitz == pytest.approx(by_hand.lipschitz, rel=1e-15)
    ones = np.hstack([features, np.ones((N, 1))])
    budget = dpsco.Budget(5.0, 1e-4)
    plan = dpsco.Plan(with_intercept, N, budget, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=2.0))
    result = dpsco.train(plan, dpsco.stream(features, labels), key=bytes(32))
    other = dpsco.train(
        dpsco.Plan(by_hand, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=math.inf)),
        dpsco.stream(ones, labels),
    ).model
    same = dpsco.train(
        dpsco.Plan(with_intercept, N, NO_NOISE, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=math.inf)),
        dpsco.stream(features, labels),
    ).model
    np.testing.assert_allclose(np.column_stack([np.atleast_2d(same.coef), np.atleast_1d(same.intercept)]),
                               np.atleast_2d(other.coef), atol=1e-14)  # fmt: skip
    np.testing.assert_allclose(same.scores(features), other.scores(ones), atol=1e-12)
    assert np.all(result.model.intercept != 0)
