"""Poisson sampling and its accountant: secret samples, a public denominator, epsilon neither over nor far under."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from tests.method_plans import under

import dpsco
from dpsco import methods
from dpsco.accounting.poisson import epsilon_of_sampled, multiplier
from dpsco.methods.localized_accelerated import near
from dpsco.release.noise import bernoulli

N, P, T = 2000, 3, 10
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(2.0), dimension=P)


def plan_for(adjacency: str = "zero-out", epsilon: float = 1.0, **budget) -> dpsco.Plan:
    return dpsco.Plan(
        PROBLEM,
        N,
        dpsco.Budget(epsilon, 1e-5, adjacency, **budget),
        dpsco.AcceleratedSRGD(rounds=T, beta=0.3, clip=1.0),
    )


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_accountants_epsilon_at_our_noise_is_within_the_budget_and_not_far_below(adjacency) -> None:
    import dp_accounting
    from dp_accounting import pld

    plan = plan_for(adjacency)
    method = partial(methods.PoissonDPSGD, epochs=2.0)
    paid = under(plan, method).schedule.calibration.at(0)
    z = paid.sigma / (paid.clip + paid.slack)
    relation = {"zero-out": "ADD_OR_REMOVE_ONE", "replace": "REPLACE_ONE"}[adjacency]  # the zero-out pair is the same
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation[relation])
    event = dp_accounting.PoissonSampledDpEvent(2.0 / T, dp_accounting.GaussianDpEvent(z))
    reached = accountant.compose(event, T).get_epsilon(1e-5)
    assert 0.99 < reached <= 1.0


def test_sampling_saves_noise_and_a_rate_of_1_is_exact_composition() -> None:
    plan = plan_for()
    full = under(plan, methods.PoissonDPSGD, epochs=float(T)).schedule
    assert full.accounting.gaussian
    paid = full.calibration.at(0)
    assert paid.sigma == pytest.approx(math.sqrt(T) * paid.difference / plan.budget.mu, rel=1e-9)
    assert under(plan, methods.PoissonDPSGD, epochs=1.0).schedule.calibration.at(0).sigma < paid.sigma / 2


def test_the_accountant_agrees_with_the_exact_curve_where_there_is_one() -> None:
    """At rate 1 a sampled round is a Gaussian mechanism."""
    exact = dpsco.epsilon_of(math.sqrt(5) / 4.0, 1e-5)
    got = epsilon_of_sampled(4.0, delta=1e-5, rate=1.0, rounds=5, adjacency="zero-out")
    assert exact <= got * (1 + 1e-9)
    assert got == pytest.approx(exact, rel=1e-3)
    found = multiplier(epsilon=exact, delta=1e-5, rate=1.0, rounds=5, adjacency="zero-out", mu=math.sqrt(5) / 4.0)
    assert found.z == pytest.approx(4.0, rel=3e-3)
    assert found.epsilon <= exact


def test_samples_are_functions_of_the_key_alone_and_enter_at_the_rate() -> None:
    """40,000 rows at 0.1: 4,000 expected, deviation 60; the key is fixed."""
    np.random.seed(0)  # noqa: NPY002
    one = bernoulli(bytes(32), 3, 40_000, 0.1)
    assert np.array_equal(one, bernoulli(bytes(32), 3, 40_000, 0.1))
    assert abs(len(one) - 4000) < 360
    for other in (bernoulli(bytes(31) + b"\1", 3, 40_000, 0.1), bernoulli(bytes(32), 4, 40_000, 0.1)):
        assert abs(len(np.intersect1d(one, other)) - 400) < 120  # independent
    assert np.all(np.diff(one) > 0)


class Spy(dpsco.LinearOracle):
    """Notes which rows a round saw; the first feature is their number."""

    def answer(self, query, batch):
        chunks = list(batch.chunks)
        self.seen.append(np.concatenate([a[:, 0] for a, _ in chunks]) if chunks else np.zeros(0))
        self.sizes.append(query.size)
        return super().answer(query, dpsco.query.Batch(batch.step, chunks))


def spied(method, plan, key=bytes(32)):
    spy = Spy(PROBLEM.loss)
    object.__setattr__(spy, "seen", [])
    object.__setattr__(spy, "sizes", [])
    rows = np.zeros((N, P))
    rows[:, 0] = np.arange(N)
    dpsco.train(under(plan, method), dpsco.stream(rows, np.zeros(N)), oracle=spy, key=key)
    return spy


def test_rounds_see_samples_of_their_own_and_divide_by_the_public_size() -> None:
    spy = spied(partial(methods.PoissonDPSGD, epochs=2.0), plan_for())
    assert spy.sizes == [N // 5] * T
    lengths = [len(seen) for seen in spy.seen]
    assert len(set(lengths)) > 1  # the realised sizes vary and are no denominator
    assert all(abs(length - N / 5) < 6 * math.sqrt(N * 0.2 * 0.8) for length in lengths)
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(spy.seen))
    other = spied(partial(methods.PoissonDPSGD, epochs=2.0), plan_for(), key=bytes(31) + b"\1")
    assert not np.array_equal(spy.seen[0], other.seen[0])


def test_the_released_sum_is_divided_by_q_n_whatever_number_came() -> None:
    plan = dpsco.Plan(
        PROBLEM, N, dpsco.Budget(math.inf, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=0.3, clip=math.inf)
    )
    rows = np.tile([1.0, 0.0, 0.0], (N, 1)), np.ones(N)
    method = partial(methods.PoissonDPSGD, step_size=1.0, iterate="last", epochs=1.0)
    drawn = spied(method, plan)
    result = dpsco.train(under(plan, method), dpsco.stream(*rows), key=bytes(32))
    x = 0.0
    for seen in drawn.seen:
        x -= (1 / (1 + math.exp(-x)) - 1.0) * len(seen) / (N / 4)
    assert result.model.coef[0] == pytest.approx(x, rel=1e-12)


def test_a_resumed_run_draws_the_same_samples_and_noise(tmp_path) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((N, P)), (rng.random(N) < 0.5).astype(float)

    class Stopped(Exception):
        pass

    def stop(round_):
        if round_.step == 3:
            raise Stopped

    plan, options = under(plan_for(), methods.PoissonDPSGD, epochs=2.0), {"key": bytes(32)}
    expected = dpsco.train(plan, dpsco.stream(*rows), **options).model.coef
    with pytest.raises(Stopped):
        dpsco.train(plan, dpsco.stream(*rows), checkpoint=tmp_path, on_round=stop, **options)
    again = dpsco.train(plan, dpsco.stream(*rows), checkpoint=tmp_path, resume=True, **options)
    assert np.array_equal(again.model.coef, expected)
    finished = dpsco.train(plan, dpsco.stream(*rows), checkpoint=tmp_path, resume=True, **options)
    assert np.array_equal(finished.model.coef, expected)


def test_what_the_accountant_does_not_cover_is_refused(tmp_path) -> None:
    rows = np.zeros((N, P)), np.zeros(N)
    account = dpsco.Account.create(tmp_path / "people.json", limit=dpsco.Budget(3.0, 1e-4))
    with pytest.raises(dpsco.AccountError, match="one delta"):
        dpsco.train(under(plan_for(), "dp-sgd-poisson"), dpsco.stream(*rows), account=account)
    for name in ("dp-sgd-poisson", "localized-accelerated"):
        with pytest.raises(dpsco.InvalidArgument, match="records=1"):
            under(plan_for(records=2), name)
        with pytest.raises(dpsco.InvalidArgument, match="add-remove"):
            under(plan_for("add-remove"), name)
    with pytest.raises(dpsco.InvalidArgument, match="epochs=11"):
        under(plan_for(), methods.PoissonDPSGD, epochs=11)


def test_a_stream_that_is_read_once_cannot_be_sampled_or_gone_over_again() -> None:
    chunks = [(np.zeros((N, P)), np.zeros(N))]
    for name in ("dp-sgd-poisson", "accelerated-gd"):
        with pytest.raises(dpsco.InvalidArgument, match="arrays"):
            dpsco.train(under(plan_for(), name), dpsco.stream(iter(chunks)))


def test_report_of_a_sampled_run_promises_one_delta_and_no_more() -> None:
    report = dpsco.train(under(plan_for(), "dp-sgd-poisson"), dpsco.stream(np.zeros((N, P)), np.zeros(N))).report
    assert report.curve == ((1e-5, 1.0),)
    assert report.group_epsilon(2) == math.inf
    assert "PLD" in report.accounting
    assert "GDP" not in str(report)


@pytest.mark.slow  # an accountant for every phase
def test_phases_of_the_localized_method_are_disjoint_and_sampled_at_a_saving_rate() -> None:
    plan = plan_for()
    schedule = under(plan, methods.LocalizedAccelerated).schedule
    phases = schedule.phases
    assert sum(phase.rows for phase in phases) <= N
    assert all(after.lam == 8 * phase.lam for phase, after in itertools.pairwise(phases))
    assert all(0 < phase.rate < 1 for phase in phases)
    for portion in set(schedule.portions):
        step = schedule.portions.index(portion)
        paid, rounds = schedule.calibration.at(step), schedule.portions.count(portion)
        full = math.sqrt(rounds) * paid.difference / plan.budget.mu
        assert paid.sigma / portion.rate <= 2.0 * full  # 1.25 by the Gaussian limit, which few rounds are far from
        z = paid.sigma / paid.difference
        reached = epsilon_of_sampled(z, delta=1e-5, rate=portion.rate, rounds=rounds, adjacency="zero-out")
        assert 0.99 < reached <= 1.0


def test_the_nearest_point_of_a_ball_and_a_domain_is_found() -> None:
    """Against a fine search over the plane."""
    box, centre, radius = dpsco.Box(-1.0, 1.0), np.array([0.9, 0.2]), 0.5
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 801), np.linspace(-1, 1, 801)), axis=-1).reshape(-1, 2)
    inside = grid[np.linalg.norm(grid - centre, axis=1) <= radius]
    for x in (np.array([3.0, 2.0]), np.array([0.8, 0.1]), np.array([-1.0, -3.0])):
        best = inside[np.argmin(np.linalg.norm(inside - x, axis=1))]
        np.testing.assert_allclose(near(box, centre, radius, x), best, atol=5e-3)
