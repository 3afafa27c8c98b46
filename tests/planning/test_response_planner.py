"""The response rule: its formula against brute force, its choices against what must hold."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import dpsco
from dpsco.planning.choose import plan as chosen
from dpsco.planning.response_curves import LONGEST, interpolated, mechanism_noise, response_curves
from dpsco.planning.response_planner import excess, predict, response_plan, state_bytes
from dpsco.planning.spectrum_priors import Populations, loss_scale, populations
from dpsco.release.mechanisms.toeplitz import SquareRoot

BALL = dpsco.L2Ball(radius=10.0)
LOSSES = (
    dpsco.Logistic(),
    dpsco.Squared(label_bound=2.0),
    dpsco.Huber(width=0.5),
    dpsco.SmoothedHinge(width=0.5),
    dpsco.Softmax(classes=7),
    dpsco.CustomLoss(given_lipschitz=3.0, given_smoothness=0.5),
)

plan = partial(chosen, survey="none")


def problem(
    loss: dpsco.problem.Loss = LOSSES[0], p: int = 50, domain: object = BALL, norm: float = 1.0
) -> dpsco.Problem:
    return dpsco.Problem(loss=loss, domain=domain, dimension=p, feature_norm=norm)


def budget(epsilon: float = 1.0, delta: float = 1e-6, **options: object) -> dpsco.Budget:
    return dpsco.Budget(epsilon=epsilon, delta=delta, **options)


def simulate(h: np.ndarray, beta: float, c: float, x0: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1 on 1/2 sum h x^2 with ``noise[t]`` on prefix sum t; y_T and all u_t. c = 0: its variant."""
    x = z = x0
    before = np.zeros_like(x0)
    asked = []
    for t, n_t in enumerate(noise):
        eta = t + 1
        asked.append(eta * x - t * before)
        gradient = h * x + n_t / eta
        z = z - eta / (c * beta) * gradient if c else z
        y = x - gradient / beta
        tau = 2 / (t + 3) if c else 0.0
        x, before = (1 - tau) * y + tau * z, x
    return y, np.array(asked)


@pytest.mark.parametrize("z_step", ["halved", "listed", "none"])
def test_curves_are_what_algorithm_1_and_its_variant_do_on_a_quadratic(z_step: str) -> None:
    T, beta, c = 24, 2.0, {"listed": 1.0, "halved": 2.0, "none": 0.0}[z_step]
    h = np.array([1e-4, 0.02, 0.3, 1.9])
    found = interpolated(h / beta, *response_curves(T, z_step))
    start, walk_u = simulate(h, beta, c, np.ones(4), np.zeros((T, 4)))
    # Unit impulses of each draw, one at a time: the sum of squares is the variance.
    root = SquareRoot(T)
    white, private = np.tri(T), root.sensitivity * root.decoder()
    sums = {}
    for name, decoder in (("white", white), ("private", private)):
        runs = [simulate(h, beta, c, np.zeros(4), np.tile(beta * column[:, None], 4)) for column in decoder.T]
        sums[name] = sum(y**2 for y, _ in runs), sum(np.mean(u**2, axis=0) for _, u in runs)
    expected = [
        start**2,
        sums["white"][0],
        sums["private"][0],
        np.mean(walk_u**2, axis=0),
        sums["white"][1],
        sums["private"][1],
    ]
    for name, value, reference in zip(response_curves(T, z_step)._fields, found, expected, strict=True):
        # The tables are interpolated; the share of the start that is left passes through zero.
        slack = 2e-3 if name == "decay" else 0.0
        np.testing.assert_allclose(value, reference, rtol=0.2, atol=slack, err_msg=name)


def test_noise_of_a_mechanism_agrees_with_the_closed_form_of_square_root() -> None:
    np.testing.assert_allclose(
        mechanism_noise(SquareRoot(40), "halved"), response_curves(40, "halved").noise, rtol=1e-9
    )


def test_predicted_excess_is_measured_on_noisy_quadratics() -> None:
    """Linear regression with Gaussian rows: every part of the formula, multiplicative noise included."""
    rng = np.random.default_rng(3)
    p, T, B, beta, spread, label_noise = 8, 16, 300, 0.5, 0.004, 0.7
    h = 1.0 / np.arange(1, p + 1) ** 1.5
    h /= h.sum()
    far = rng.standard_normal(p)
    root = SquareRoot(T)
    decoder = root.sensitivity * root.decoder()
    measured = []
    for _ in range(400):
        x = z = np.zeros(p)
        before, total = np.zeros(p), np.zeros(p)
        private = spread * np.diff(decoder @ rng.standard_normal((T, p)), axis=0, prepend=0.0)
        for t in range(T):
            eta, tau = t + 1, 2 / (t + 3)
            rows = rng.standard_normal((B, p)) * np.sqrt(h)
            labels = rows @ far + label_noise * rng.standard_normal(B)
            slope = eta * (rows @ x - labels) - t * (rows @ before - labels)
            total = total + slope @ rows / B + private[t]
            z = z - total / (2 * beta)
            y = x - total / (eta * beta)
            x, before = (1 - tau) * y + tau * z, x
        measured.append(0.5 * np.sum(h * (y - far) ** 2))
    population = Populations(h[None], np.ones((1, p)), far[None] ** 2, label_noise**2)
    table, betas = response_curves(T, "halved"), np.array([beta])
    (found,) = excess(population, table, betas, batch_size=B, clips=[(spread, 0.0)], noise_share=1.0)
    assert found.total[0, 0] == pytest.approx(np.mean(measured), rel=0.25)


def test_the_variant_is_planned_where_many_rounds_meet_few_rows() -> None:
    few = {"n": 4096, "budget": budget()}
    made, ours = (plan(problem(p=5), **few, rounds=256, method=name) for name in (None, "accelerated-srgd"))
    assert (made.method.name, ours.method.name) == ("unaccelerated-srgd", "accelerated-srgd")
    assert made.predicted_excess < 0.9 * ours.predicted_excess
    assert "unaccelerated variant has less predicted excess" in made.explain()
    assert predict(made) == made.prediction
    assert dpsco.Plan.from_json(made.to_json()) == made
    for given in ({"rounds": 16}, {"rounds": 256, "mechanism": "sqrt"}):
        assert plan(problem(p=5), **few, **given).method.name == ours.method.name
    assert plan(problem(), n=200_000, budget=budget(), rounds=64).method.name == ours.method.name
    assert plan(problem(p=5), **few, rounds=256, memory=700.0).method.mechanism == "blt"


def test_populations_respect_the_public_bounds() -> None:
    for loss in LOSSES:
        for domain in (BALL, dpsco.L2Ball(radius=0.1), dpsco.Everything()):
            if isinstance(loss, dpsco.Squared) and isinstance(domain, dpsco.Everything):
                continue
            where = problem(loss, p=37, domain=domain, norm=2.0)
            w = populations(where)
            scale = loss_scale(where)
            assert np.all(w.count.sum(axis=1) == 37 * max(1, loss.outputs - 1))
            traces = np.sum(w.curvature * w.count, axis=1) / max(1, loss.outputs - 1)
            assert np.all(traces <= scale.curvature * 4.0 * (1 + 1e-9))
            assert np.all(w.gap <= scale.gap * (1 + 1e-9))
            assert np.all(w.curvature <= where.smoothness * (1 + 1e-9))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
@pytest.mark.parametrize("n", [1_000, 100_000, 10**9])
def test_every_loss_at_every_size(loss: dpsco.problem.Loss, n: int) -> None:
    made = plan(problem(loss), n=n, budget=budget(delta=n**-1.1))
    assert made.rule == "response"
    assert 1 <= made.rounds <= LONGEST
    assert made.rounds * made.batch_size <= n
    assert made.prediction is not None
    parts = (made.prediction.optimisation, made.prediction.noise, made.prediction.sampling)
    assert all(0 < part < math.inf for part in parts)
    assert made.predicted_excess == pytest.approx(sum(parts))
    assert dpsco.Plan.from_json(made.to_json()) == made
    assert "Predicted excess risk" in made.explain()


def test_prediction_falls_with_rows_and_with_epsilon() -> None:
    totals = [plan(problem(), n=n, budget=budget()).predicted_excess for n in (3_000, 30_000, 300_000, 3_000_000)]
    assert all(a > 1.5 * b for a, b in itertools.pairwise(totals))
    totals = [plan(problem(), n=50_000, budget=budget(e)).predicted_excess for e in (0.1, 0.3, 1.0, 3.0, math.inf)]
    assert all(a > b for a, b in itertools.pairwise(totals))


def test_parts_move_the_right_way() -> None:
    base = plan(problem(), n=50_000, budget=budget(), rounds=32)
    base = replace(base, method=replace(base.method, adaptive=False))
    now = predict(base)
    spent = predict(replace(base, budget=budget(4.0)))
    assert spent.noise < 0.2 * now.noise
    tree = predict(replace(base, method=replace(base.method, mechanism="tree")))
    assert tree.noise > 1.5 * now.noise
    slow = predict(replace(base, method=replace(base.method, beta=8 * base.method.beta)))
    assert slow.optimisation > 3 * now.optimisation
    assert slow.noise < now.noise


def test_rounds_are_honoured() -> None:
    for T in (1, 2, 7, 16, 300):
        assert plan(problem(), n=50_000, budget=budget(), rounds=T).rounds == T
    with pytest.raises(dpsco.InvalidArgument, match="rounds"):
        plan(problem(), n=10, budget=budget(), rounds=11)
    with pytest.raises(dpsco.InvalidArgument, match="rounds"):
        plan(problem(), n=10, budget=budget(), rounds=0)


def test_memory_caps_the_state() -> None:
    wide = problem(p=100_000)
    free = plan(wide, n=10**8, budget=budget())
    room = state_bytes(wide, 12)
    capped = plan(wide, n=10**8, budget=budget(), memory=room)
    assert free.rounds > 12 or free.method.mechanism == "workload"
    assert capped.method.mechanism == "blt" or capped.rounds <= 12
    assert state_bytes(wide, capped.schedule.mechanism.memory) <= room
    with pytest.raises(dpsco.InvalidArgument, match="bytes"):
        plan(wide, n=10**8, budget=budget(), memory=1000)


def test_mechanism_is_honoured() -> None:
    assert plan(problem(), n=50_000, budget=budget(), mechanism="tree").method.mechanism == "tree"
    with pytest.raises(dpsco.InvalidArgument, match="mechanism"):
        plan(problem(), n=50_000, budget=budget(), mechanism="nope")


def test_replace_and_groups_pay_more() -> None:
    base, double, group = (
        plan(problem(), n=50_000, budget=b).predicted_excess
        for b in (budget(), budget(adjacency="replace"), budget(records=5))
    )
    assert base < double < group


def test_without_privacy_there_is_no_noise_and_no_clip() -> None:
    made = plan(problem(), n=50_000, budget=budget(math.inf))
    assert made.clip == math.inf
    assert made.prediction is not None
    assert made.prediction.noise == 0.0


def test_more_parameters_than_rows_is_planned() -> None:
    made = plan(problem(p=100_000), n=2_000, budget=budget())
    assert made.rounds >= 1
    assert made.predicted_excess is not None


def test_units_do_not_matter() -> None:
    """Rows ten times longer and a ball ten times smaller are the same problem."""
    one = plan(problem(), n=50_000, budget=budget())
    ten = plan(problem(domain=dpsco.L2Ball(radius=1.0), norm=10.0), n=50_000, budget=budget())
    assert (one.rounds, one.method.z_step) == (ten.rounds, ten.method.z_step)
    assert ten.method.beta == pytest.approx(100 * one.method.beta, rel=1e-3)
    assert ten.clip == pytest.approx(10 * one.clip, rel=1e-3)
    assert ten.predicted_excess == pytest.approx(one.predicted_excess, rel=1e-3)


def test_a_plan_takes_well_under_a_second_once_warm() -> None:
    response_plan(problem(), 50_000, budget())
    began = time.process_time()
    for p in (20, 200):
        response_plan(problem(p=p), 60_000, budget(delta=2e-6))
    assert time.process_time() - began < 2.0


def test_arguments_are_checked() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="rule"):
        plan(problem(), n=1000, budget=budget(), rule="magic")
    with pytest.raises(dpsco.InvalidArgument, match="problem"):
        plan("logistic", n=1000, budget=budget())  # type: ignore[arg-type]
    with pytest.raises(dpsco.InvalidArgument, match="budget"):
        plan(problem(), n=1000, budget=1.0)  # type: ignore[arg-type]
    with pytest.raises(dpsco.InvalidArgument, match="n="):
        plan(problem(), n=0, budget=budget())
