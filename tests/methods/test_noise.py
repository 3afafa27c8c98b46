"""The noise of every method against closed forms and brute force: what was promised is what is drawn."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from tests.method_plans import replaying, under

import dpsco
from dpsco import methods
from dpsco.release.calibration import calibrate_uneven
from dpsco.release.mechanisms import Honaker, SquareRoot, Tree
from dpsco.release.mechanisms.restarted import Restarted

BUDGET = dpsco.Budget(2.0, 1e-5)


@pytest.mark.parametrize("make", [Tree, Honaker, SquareRoot])
@pytest.mark.parametrize(("horizon", "restarts"), [(1, 0), (7, 1), (16, 3), (21, 4)])
def test_a_restarted_mechanism_is_a_factorisation_of_the_prefix_sums(make, horizon, restarts) -> None:
    m = Restarted(horizon, restarts, make)
    np.testing.assert_allclose(m.decoder() @ m.strategy(), np.tri(horizon), atol=1e-12)
    np.testing.assert_allclose(m.streamed(), m.decoder(), atol=1e-12)
    assert m.sensitivity == pytest.approx(np.linalg.norm(m.strategy(), axis=0).max(), rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 13, 32, 100])
def test_column_norms_of_the_tree_are_those_of_its_matrix(horizon) -> None:
    tree = Tree(horizon)
    np.testing.assert_allclose(tree.column_norms, np.linalg.norm(tree.strategy(), axis=0), rtol=1e-14)


@pytest.mark.parametrize("make", [Tree, SquareRoot])
def test_uneven_clips_pay_for_the_worst_round(make) -> None:
    noises, clips = make(12), [1.0 + 0.3 * t for t in range(12)]
    paid = calibrate_uneven(BUDGET, noises, clips=clips, dimension=5, rows=100)
    moved = [np.linalg.norm(noises.strategy()[:, t]) * paid.at(t).difference for t in range(12)]
    sigma = paid.at(0).sigma
    assert max(moved) / sigma <= BUDGET.mu
    assert max(moved) / sigma == pytest.approx(BUDGET.mu, rel=1e-9)
    assert all(paid.at(t).sigma == sigma for t in range(12))
    assert all(paid.at(t).clip == clip and paid.at(t).difference > clip for t, clip in enumerate(clips))


def variance_of(method, plan, dimension) -> float:
    """Mean square of what a run on rows of zeros gives: noise alone."""
    rows = np.zeros((plan.n, dimension)), np.zeros(plan.n)
    model = dpsco.train(under(plan, method), dpsco.stream(*rows), key=bytes(32)).model
    return float(np.mean(model.coef**2))


P = 20_000  # the mean square of P normals is within 6 sqrt(2 / P) = 6 % of its mean; the key is fixed


def noise_plan(rounds, mechanism="tree") -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.Everything(), dimension=P)
    return dpsco.Plan(
        problem, 40, BUDGET, dpsco.AcceleratedSRGD(rounds=rounds, beta=0.5, clip=1.0, mechanism=mechanism)
    )


@pytest.mark.parametrize("rounds", [5, 7, 8])
def test_dp_ftrl_with_the_tree_has_the_closed_form_variance(rounds) -> None:
    """After t rounds the prefix holds popcount(t) nodes of deviation sqrt(h) C / (B mu)."""
    plan, step = noise_plan(rounds), 0.3
    node = math.sqrt(rounds.bit_length()) * plan.schedule.calibration.difference / (plan.batch_size * BUDGET.mu)
    expected = step**2 * node**2 * rounds.bit_count()
    assert variance_of(partial(methods.DPFTRL, step_size=step, iterate="last"), plan, P) == pytest.approx(
        expected, rel=0.06
    )


def test_restarts_of_dp_ftrl_add_the_last_noise_of_every_segment() -> None:
    """Two segments of four rounds: three levels each, one node at the end of either."""
    plan, step = noise_plan(8), 0.3
    node = math.sqrt(3) * plan.schedule.calibration.difference / (plan.batch_size * BUDGET.mu)
    got = variance_of(partial(methods.DPFTRL, step_size=step, restarts=1, iterate="last"), plan, P)
    assert got == pytest.approx(step**2 * 2 * node**2, rel=0.06)


@pytest.mark.parametrize("iterate", ["last", "tail"])
@pytest.mark.parametrize("mechanism", ["workload", "sqrt", "independent"])
def test_the_noise_of_a_model_of_dp_ftrl_is_that_of_its_weights(mechanism, iterate) -> None:
    """Momentum and steps that fall: the variance of a run on zero rows is what ``output_weights`` predicts."""
    method = partial(methods.DPFTRL, step_size=0.3, momentum=0.8, decay="linear", mechanism=mechanism, iterate=iterate)
    plan = under(noise_plan(12), method)
    increments = np.diff(plan.schedule.mechanism.decoder(), axis=0, prepend=0.0)
    gains = plan.method.output_weights() @ increments
    expected = (0.3 * np.linalg.norm(gains) * plan.schedule.calibration.sigma / plan.batch_size) ** 2
    assert variance_of(method, noise_plan(12), P) == pytest.approx(expected, rel=0.06)


def test_one_pass_dp_sgd_adds_independent_noise_of_one_round() -> None:
    plan, step = noise_plan(5), 0.3
    one = plan.schedule.calibration.difference / (plan.batch_size * BUDGET.mu)
    assert variance_of(partial(methods.DPSGD, step_size=step, iterate="last"), plan, P) == pytest.approx(
        5 * (step * one) ** 2, rel=0.06
    )


def test_full_batch_acceleration_pays_for_every_pass() -> None:
    """Per round mu / sqrt(T), so T rounds compose to mu."""
    plan = noise_plan(9)
    paid = under(plan, methods.AcceleratedGD).schedule.calibration.at(0)
    each = paid.difference / paid.sigma
    assert math.sqrt(9) * each <= BUDGET.mu
    assert math.sqrt(9) * each == pytest.approx(BUDGET.mu, rel=1e-9)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("rounds", [None, 1, 7, 40])
def test_snowball_on_linear_losses_is_exactly_as_private_as_it_says(adjacency, rounds) -> None:
    """Brute force: how x_T answers to every round's sum, then shift over the deviation of the noise from round t on.

    With linear losses the maps are translations, so this is the exact mu of x_T given the iterate before round t.
    """
    n, p = 150, 3
    budget = dpsco.Budget(3.0, 1e-4, adjacency, records=2)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e6), dimension=p)
    plan = dpsco.Plan(problem, n, budget, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    plan = under(plan, methods.SnowballSGD, step_size=0.02, rounds=rounds)
    method, schedule, T = plan.method, plan.schedule, plan.rounds

    def last(pushed: int) -> float:
        """First coordinate of x_T for a sum of 1 there in round ``pushed`` alone, 10^5 of them to outweigh rounding."""
        state = method.start(schedule, np.zeros(p))
        release = replaying(plan, [1e5 * np.eye(p)[0] * (t == pushed) for t in range(T)])
        for _ in range(T):
            state = method.tell(schedule, state, release(method.ask(schedule, state)))
        return float(method.output(state)[0]) / 1e5

    answers = np.array([last(t) for t in range(T)])
    noise = np.array([answers[t] * schedule.calibration.at(t).sigma for t in range(T)])
    apart = 2.0 if adjacency == "replace" else 1.0
    mus = [apart * abs(answers[t]) / np.linalg.norm(noise[t:]) for t in range(T)]
    assert max(mus) <= budget.mu_per_record
    assert max(mus) == pytest.approx(budget.mu_per_record, rel=2e-3)
    sizes = [portion.rows for portion in schedule.portions]
    assert sizes == sorted(sizes)
    assert sum(sizes) <= n
    assert schedule.portions[-1].last == sum(sizes)


def test_the_low_bits_of_snowballs_model_are_not_those_of_the_iterate_before_it() -> None:
    """Noise on a fine grid hides nothing below that grid; the model lies on a coarse one whatever came before."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=2)
    plan = dpsco.Plan(problem, 300, BUDGET, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    plan = under(plan, methods.SnowballSGD, step_size=0.05)
    rng = np.random.default_rng(0)
    models = [
        dpsco.train(plan, dpsco.stream(rng.standard_normal((300, 2)) / 3, np.ones(300))).model.coef for _ in range(5)
    ]
    last = plan.schedule.calibration.at(plan.rounds - 1)
    size = plan.schedule.portions[-1].rows
    deviation = 0.05 * last.sigma / size
    coarse = 2.0 ** math.floor(math.log2(2.0**-10 * deviation / math.sqrt(2)))
    assert all(np.array_equal(model, np.rint(model / coarse) * coarse) for model in models)
    assert coarse > 1e6 * 0.05 * last.grid / size


def test_snowball_takes_as_many_steps_as_its_rule_allows() -> None:
    """T is the largest with sum of ceil(S sqrt(p) / (mu sqrt(T - t + 1))) <= n, a hair of mu kept back."""
    n, p = 5000, 40
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=p)
    plan = dpsco.Plan(problem, n, BUDGET, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    T = under(plan, methods.SnowballSGD).rounds
    a = math.sqrt(p) / (BUDGET.mu * (1 - 2**-10))
    used = [sum(math.ceil(a / math.sqrt(k)) for k in range(1, rounds + 1)) for rounds in (T, T + 1)]
    assert used[0] <= n < used[1]


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_phased_methods_put_the_whole_budget_on_every_phase(adjacency) -> None:
    budget = dpsco.Budget(2.0, 1e-4, adjacency)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=6)
    plan = dpsco.Plan(problem, 4096, budget, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    sgd, erm = under(plan, methods.PhasedSGD, step_size=0.4), under(plan, methods.PhasedERM, step_size=0.4)
    for phase in range(10):
        eta = 0.4 / 4 ** (phase + 1)
        paid = sgd.schedule.calibration.at(phase)
        assert paid.sigma >= budget.clips_apart * eta / budget.mu  # S L eta_i / mu
        assert paid.sigma == pytest.approx(budget.clips_apart * eta / budget.mu, rel=2e-3)
        at = erm.method.subproblem(problem, 4096, 0.4, phase)
        paid = erm.schedule.calibration.at(phase)
        exact = (budget.clips_apart / (at.lam * at.rows) + 2 * at.tau) / budget.mu
        assert paid.sigma >= exact
        assert paid.sigma == pytest.approx(exact, rel=2e-3)
    paper = under(plan, methods.PhasedSGD, step_size=0.4, constants="paper").schedule.calibration.at(0)
    assert paper.sigma == pytest.approx(4 * 0.1 / budget.mu, rel=2e-3)


def test_workload_noise_suits_momentum_with_steps_that_fall() -> None:
    """No factorisation leaves less than the largest weight on the model: one row may move the model by that much."""
    method = methods.DPFTRL(rounds=244, clip=1.0, momentum=0.9, decay="linear", iterate="last")
    weights = method.output_weights()

    def spread(name: str) -> float:
        made = dpsco.mechanism(name, horizon=244)
        return made.sensitivity * float(np.linalg.norm(weights @ np.diff(made.decoder(), axis=0, prepend=0.0)))

    assert spread("workload") < 0.79 * spread("sqrt")
    assert spread("workload") < 1.05 * weights.max()
