"""Attempts at breaking the methods' privacy that once came off, or that nothing else would notice."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.method_plans import named, under

import dpsco
from dpsco import methods
from dpsco.accounting.poisson import multiplier
from dpsco.clipping import LinearOracle, PerExample
from dpsco.clipping.choose_oracle import linear_oracle
from dpsco.clipping.linear_blocks import DenseBlock
from dpsco.pages.guarantee_in_words import guarantee_in_words
from dpsco.query import Batch
from dpsco.run import watching
from dpsco.run.row_access import CountedRows

CONVEX = ["snowball-sgd", "phased-sgd", "phased-erm"]
SAMPLED = [
    partial(methods.PoissonDPSGD, epochs=2.0),
    pytest.param(methods.LocalizedAccelerated, marks=pytest.mark.slow),
]
N, P = 4000, 2
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(2.0), dimension=P)


def plan_for(adjacency: str = "zero-out", problem: dpsco.Problem = PROBLEM) -> dpsco.Plan:
    return dpsco.Plan(
        problem, N, dpsco.Budget(1.0, 1e-5, adjacency), dpsco.AcceleratedSRGD(rounds=8, beta=0.3, clip=1.0)
    )


# --- samples --------------------------------------------------------------------------------------


def apart_by_place(query, oracle) -> float:
    """How far a zero row in front moves a sum of 100 blocks whose sums lie a hair beside a rounding boundary."""
    blocks, grid, size = 100, query.grid or 2.0**-12, DenseBlock.rows(P, 1)
    hair = grid / 1e5
    last = 2 * hair * np.arange(1, blocks + 1)
    rows = np.zeros((size * blocks, P))
    rows[size - 1 :: size, 0] = 2 * last
    rows[0::size, 0] = 2 * (grid / 2 + hair - last)  # at x = 0 and y = 0 a row's gradient is half of it
    labels = np.zeros(len(rows))
    without = oracle.answer(query, Batch(0, [(rows, labels)])).total
    front = np.vstack([np.zeros((1, P)), rows]), np.zeros(len(rows) + 1)
    return float(np.linalg.norm(without - oracle.answer(query, Batch(0, [front])).total))


@pytest.mark.parametrize("method", SAMPLED, ids=named)
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_a_zero_row_in_a_sample_leaves_the_sum_that_there_is_without_it(method, adjacency) -> None:
    """Amplification by sampling compares a sum with the row, zeroed or not, with the sum without it.

    A row that is in the sample shifts all later ones: in blocks cut by position every block would round anew, and the
    sums were apart by one step of the grid a block, without bound.
    """
    plan = under(plan_for(adjacency), method)
    query = plan.method.ask(plan.schedule, plan.method.start(plan.schedule, np.zeros(P)))
    for oracle in (LinearOracle(PROBLEM.loss), linear_oracle(PROBLEM, 10**7, slow_source=False)):
        assert apart_by_place(query, oracle) == 0.0
    in_blocks = apart_by_place(dataclasses.replace(query, rowwise=False), LinearOracle(PROBLEM.loss))
    assert in_blocks > 50 * query.grid  # the attack: it came off before


def test_an_oracle_of_the_callers_sees_that_sampled_rows_are_rounded_one_by_one() -> None:
    plan = under(plan_for(), methods.PoissonDPSGD, epochs=2.0)
    query = plan.method.ask(plan.schedule, plan.method.start(plan.schedule, np.zeros(P)))
    own = PerExample(lambda x, a, y: a * (1 / (1 + math.exp(-a @ x)) - y))
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((700, P)) / 3, np.zeros(700)
    order = rng.permutation(700)
    sums = [own.answer(query, Batch(0, [(rows[o], labels[o])])).total for o in (np.arange(700), order)]
    assert np.array_equal(*sums)


def test_a_sampled_method_at_rate_1_reports_that_a_row_is_in_every_round() -> None:
    """mu = difference * sensitivity / sigma must come out as the budget's, as for full-batch descent."""
    plan = plan_for()
    rows = np.zeros((N, P)), np.zeros(N)
    for method in (partial(methods.PoissonDPSGD, epochs=8.0), methods.AcceleratedGD):
        report = dpsco.train(under(plan, method), dpsco.stream(*rows)).report
        assert report.difference * report.sensitivity / report.noise_std == pytest.approx(plan.budget.mu, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta", "rate"), [(0.05, 1e-2, 1e-3), (1.0, 1e-3, 1e-5)])
def test_a_delta_that_would_let_sampled_rows_leak_whole_still_gets_noise(epsilon, delta, rate) -> None:
    """Where delta is above the chance of being sampled, no noise at all keeps the promise: the search must end."""
    mu = dpsco.Budget(epsilon, delta).mu
    found = multiplier(epsilon=epsilon, delta=delta, rate=rate, rounds=5, adjacency="zero-out", mu=mu)
    assert found.z > 0.2
    assert found.epsilon <= epsilon


# --- convexity ------------------------------------------------------------------------------------


class Wavy(dpsco.Logistic):
    """Not convex, and called logistic."""

    def slope(self, scores, labels):
        return np.sin(3 * scores)


class Stretched(dpsco.L2Ball):
    """A projection that pushes points apart."""

    def project(self, x):
        return super().project(3 * x)


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize(
    "problem",
    [
        dpsco.Problem(Wavy(), dpsco.L2Ball(2.0), dimension=P),
        dpsco.Problem(dpsco.Logistic(), Stretched(2.0), dimension=P),
        dpsco.Problem(dpsco.Logistic(), dpsco.Product((Stretched(1.0), dpsco.Box(-1, 1)), (1, 1)), dimension=P),
    ],
    ids=["loss", "domain", "part of a product"],
)
def test_a_class_derived_from_the_librarys_is_not_vouched_for(name, problem) -> None:
    """It passed for its parent, whose convexity or projection it need not have."""
    rows = np.zeros((N, P)), np.zeros(N)
    with pytest.raises(dpsco.InvalidArgument, match="cannot know"):
        dpsco.train(under(plan_for(problem=problem), name), dpsco.stream(*rows))


LOSSES = [dpsco.Logistic(), dpsco.Squared(0.5), dpsco.Huber(0.5), dpsco.SmoothedHinge(0.3), dpsco.Softmax(3)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
@pytest.mark.parametrize("form", ["dense", "float32", "sparse"])
def test_a_computed_step_of_snowball_pushes_no_two_points_apart(loss, form) -> None:
    """At the largest step allowed: rows far beyond feature_norm, an intercept, a clip below L where it may be."""
    rng = np.random.default_rng(7)
    scalar = loss.outputs == 1
    parameters = (P + 1) * loss.outputs
    for domain in (dpsco.L2Ball(3.0), dpsco.Box(-0.2, 1.0), dpsco.Simplex(2.0)):
        problem = dpsco.Problem(loss, domain, dimension=P, feature_norm=2.0, intercept=True)
        clip = problem.lipschitz * (0.3 if scalar else 1.0)
        plan = dpsco.Plan(
            problem, 600, dpsco.Budget(1.0, 1e-4, "replace"), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=clip)
        )
        step = 2.0 / problem.smoothness * (1 - 1e-8)
        plan = under(plan, methods.SnowballSGD, step_size=step, rounds=2)
        method, schedule = plan.method, plan.schedule
        size, slack = schedule.portions[0].rows, schedule.calibration.at(0).slack
        features = rng.standard_normal((size, P)) * rng.choice([0.1, 1.0, 1e4], (size, 1))
        labels = rng.integers(0, 2, size).astype(float)
        rows = {"dense": features, "float32": features.astype(np.float32), "sparse": csr_array(features)}[form]
        counted = CountedRows(LinearOracle(loss, True), problem, lambda *_: np.zeros(0, np.int64), bounded=True)
        for apart in (3.0, 1e-3):
            x = domain.project(rng.standard_normal(parameters))
            pair = x, domain.project(x + apart * rng.standard_normal(parameters))
            queries = [method._query(schedule, 0, (point,)) for point in pair]
            sums = [counted.answer(query, Batch(0, [(rows, labels)])).total for query in queries]
            moved = [domain.project(point - step * total / size) for point, total in zip(pair, sums, strict=True)]
            before = np.linalg.norm(pair[0] - pair[1])
            assert np.linalg.norm(moved[0] - moved[1]) <= before + step * slack / size + 1e-14


# --- snowball's last bits -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 400])
def test_cells_of_snowballs_model_are_wide_beside_what_is_below_the_noise(p) -> None:
    """p coordinates, each of which shifts a cell's edge by the fine grid: that costs less than was kept back."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=p)
    plan = dpsco.Plan(problem, N, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    plan = under(plan, methods.SnowballSGD, step_size=0.05, rounds=10)
    schedule = plan.schedule
    last, size = schedule.calibration.at(9), schedule.portions[-1].rows
    x = dpsco.train(plan, dpsco.stream(np.zeros((N, p)), np.zeros(N))).model.coef
    cell = 2.0 ** math.ceil(math.log2(0.05 * last.sigma / size / 32))
    assert np.array_equal(x, np.rint(x / cell) * cell)
    assert 4 * p * (0.05 * last.grid / size) / cell < 2.0**-10 * plan.budget.mu


def test_snowball_refuses_steps_whose_last_bits_are_those_of_the_iterate() -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e9), dimension=P)
    plan = plan_for(problem=problem)
    with pytest.raises(dpsco.InvalidArgument, match="Rounding"):
        under(plan, methods.SnowballSGD, step_size=1e-3, rounds=1)


# --- phased ERM -----------------------------------------------------------------------------------


def test_a_certificate_that_rounding_could_keep_away_is_refused_before_a_row_is_read() -> None:
    """Whether a solver ends may not depend on the rows: an error is an output that nothing noised."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e4), dimension=P)
    with pytest.raises(dpsco.InvalidArgument, match="too fine for float64"):
        under(plan_for(problem=problem), methods.PhasedERM, step_size=1e-4)
    under(plan_for(problem=problem), methods.PhasedERM)


@pytest.mark.parametrize("solver", ["svrg", "accelerated"])
def test_phases_end_on_rows_made_to_hinder_the_solver(solver) -> None:
    """One long row among zeros, all rows alike, rows that fight one another: a phase ends with a model every time."""
    problem = dpsco.Problem(dpsco.Squared(1.0), dpsco.L2Ball(1.0), dimension=P)
    plan = dpsco.Plan(
        problem, 64, dpsco.Budget(1.0, 1e-3), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=problem.lipschitz)
    )
    lone, alike, fight = (np.zeros((64, P)) for _ in range(3))
    lone[0, 0] = 1.0
    alike[:, 0] = 1.0
    fight[:] = np.resize([[1.0, 0.0], [-1.0, 1e-3], [0.0, 1.0]], (64, P))
    for features in (lone, alike, fight):
        rows = features, np.resize([1.0, -1.0, 1.0], 64)
        result = dpsco.train(under(plan, methods.PhasedERM, step_size=10.0, solver=solver), dpsco.stream(*rows))
        assert np.all(np.isfinite(result.model.coef))


class Hasty(methods.PhasedERM):
    """SVRG without a step between snapshots: it stays where it starts."""

    def subproblem(self, problem, n, step_size, phase):
        return dataclasses.replace(super().subproblem(problem, n, step_size, phase), inner=0, rounds=1)


def test_a_phase_that_svrg_does_not_solve_is_solved_and_certified_all_the_same() -> None:
    """No proof says that SVRG halves the distance for all rows; an error instead of a model would tell of them."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, P)) / 2, (rng.random(400) < 0.8).astype(float)
    plan = dpsco.Plan(PROBLEM, 400, dpsco.Budget(2.0, 1e-4), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))
    plan, solved = under(plan, Hasty, step_size=4.0), []
    with watching(lambda query, clipped, _: solved.append((query.points[0], clipped.total.copy()))):
        counts = dpsco.train(plan, dpsco.stream(*rows)).counts
    at = plan.method.subproblem(PROBLEM, 400, 4.0, 0)
    a = rows[0][: at.rows] / np.maximum(1.0, np.linalg.norm(rows[0][: at.rows], axis=1))[:, None]
    (centre, reached), v = solved[0], solved[0][0]
    for _ in range(20_000):
        v = PROBLEM.domain.project(
            v - (a.T @ PROBLEM.loss.slope(a @ v, rows[1][: at.rows]) / at.rows + at.lam * (v - centre)) / at.smoothness
        )
    assert np.linalg.norm(reached - v) <= at.tau
    assert np.linalg.norm(reached - centre) > 10 * at.tau
    assert counts.batch_steps == 2 * len(plan.schedule.portions)  # two snapshots: what followed is not told


# --- what is claimed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "seen", "absent"),
    [
        (partial(methods.SnowballSGD, rounds=8), "no earlier version", "every intermediate"),
        (methods.PhasedSGD, "outputs of its phases", "every intermediate"),
        (methods.PoissonDPSGD, "No other pair is promised", "curve"),
        (methods.DPSGD, "every intermediate", "nothing is promised"),
    ],
)
def test_the_guarantee_in_words_is_no_larger_than_the_proof(method, seen, absent) -> None:
    rows = np.zeros((N, P)), np.zeros(N)
    report = dpsco.train(under(plan_for(), method), dpsco.stream(*rows)).report
    words = " ".join(answer for _, answer in guarantee_in_words(report))
    assert seen in words
    assert absent not in words


@pytest.mark.parametrize("method", ["phased-sgd", "phased-erm"])
def test_no_row_ends_a_run_under_the_caller_s_error_mode(method: str) -> None:
    """np.seterr(all="raise") is a habit; whether a product of a row underflows is an output."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(600, 5)) / 3, rng.integers(0, 2, 600)
    rows[10] = [1.0, 1e-160, 1e-200, 1e-310, 0.0]
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=5)
    plan = dpsco.plan(problem, n=600, budget=dpsco.Budget(2.0, 1e-6), method=method)
    stream = dpsco.stream(rows, labels)
    with np.errstate(all="raise"):
        assert np.all(np.isfinite(dpsco.train(plan, stream).model.coef))


@pytest.mark.parametrize(
    "method", ["objective-perturbation", "localized-accelerated", "surveyed-objective-perturbation"]
)
def test_error_modes_of_the_caller_do_not_decide_on_a_plan(method: str) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=6)
    with np.errstate(all="raise"):
        dpsco.plan(problem, n=6000, budget=dpsco.Budget(4.0, 1e-5), method=method)
