"""Methods refuse what their proofs do not cover, before a row is read."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from tests.method_plans import under

import dpsco
from dpsco import methods
from dpsco.methods import METHODS
from dpsco.run import Run
from dpsco.run.train import library_oracle

N, P = 1000, 3
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(2.0), dimension=P)
PLAN = dpsco.Plan(PROBLEM, N, dpsco.Budget(2.0, 1e-4), dpsco.AcceleratedSRGD(rounds=8, beta=0.3, clip=1.0))
CONVEX = ["snowball-sgd", "phased-sgd", "phased-erm"]
ROWS = np.full((N, P), 0.1), np.tile([0.0, 1.0], N // 2)


def train(method, plan=PLAN, **options):
    stream = dpsco.stream(*ROWS, ids=range(N) if plan.budget.adjacency == "add-remove" else None)
    return dpsco.train(under(plan, method), stream, **options)


def with_loss(loss: dpsco.problem.Loss, clip: float, domain=PROBLEM.domain) -> dpsco.Plan:
    method = dataclasses.replace(PLAN.method, clip=clip)
    return dataclasses.replace(PLAN, problem=dpsco.Problem(loss, domain, dimension=P), method=method)


@pytest.mark.parametrize("name", CONVEX)
def test_a_loss_that_the_library_cannot_vouch_for_is_refused(name) -> None:
    oracle = dpsco.PerExample(lambda x, a, y: a)
    with pytest.raises(dpsco.InvalidArgument, match="convex"):
        train(name, oracle=oracle)
    with pytest.raises(dpsco.InvalidArgument, match="convex"):
        train(name, with_loss(dpsco.CustomLoss(), 1.0), oracle=oracle)
    with pytest.raises(dpsco.InvalidArgument, match="convex"):
        train(name, with_loss(dpsco.CustomLoss(), 1.0))


@pytest.mark.parametrize("name", CONVEX)
def test_a_clip_that_breaks_convexity_is_refused_and_one_that_keeps_it_is_not(name) -> None:
    softmax = dpsco.Softmax(3)
    with pytest.raises(dpsco.InvalidArgument, match="clip=1 >= L"):
        train(name, with_loss(softmax, 1.0))
    train(name, with_loss(softmax, math.sqrt(2.0) + 1e-9))
    train(name, with_loss(dpsco.Logistic(), 0.2))  # clamps the derivative of a scalar model: convex as before


def test_clipping_a_scalar_model_keeps_its_derivative_monotone_and_smooth() -> None:
    """The argument of methods/convex.py, on a grid of scores: non-decreasing, and no steeper than before."""
    scores = np.linspace(-20, 20, 4001)
    for loss in (dpsco.Logistic(), dpsco.Squared(1.0), dpsco.Huber(2.0), dpsco.SmoothedHinge(0.5)):
        slope = loss.slope(scores, np.ones_like(scores))
        for length, clip in ((1.0, 0.3), (2.5, 0.3), (0.1, 5.0)):
            clipped = np.clip(slope, -clip / length, clip / length)
            rise = np.diff(clipped)
            assert np.all(rise >= 0)
            assert np.all(rise <= np.diff(slope) + 1e-15)


@pytest.mark.parametrize(("name", "largest"), [("snowball-sgd", 2.0), ("phased-sgd", 8.0)])
def test_a_step_beyond_2_over_m_is_refused(name, largest) -> None:
    """M = 1/4; phased SGD takes a quarter of its step in the first phase."""
    train(partial(METHODS[name], step_size=largest / 0.25 * 0.999))
    with pytest.raises(dpsco.InvalidArgument, match="2/M"):
        train(partial(METHODS[name], step_size=largest / 0.25 * 1.001))
    assert under(PLAN, name).schedule.settings["step_size"] <= largest / 0.25


@pytest.mark.parametrize("name", CONVEX)
def test_an_unbounded_domain_and_add_remove_are_refused(name) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="bounded domain"):
        train(name, with_loss(dpsco.Logistic(), 1.0, dpsco.Everything()))
    with pytest.raises(dpsco.InvalidArgument, match="add-remove"):
        train(name, dataclasses.replace(PLAN, budget=dpsco.Budget(2.0, 1e-4, "add-remove")))


def test_snowball_shows_nothing_before_its_last_iterate(tmp_path) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="last iterate"):
        train("snowball-sgd", checkpoint=tmp_path / "run")
    with pytest.raises(dpsco.InvalidArgument, match="last iterate"):
        train("snowball-sgd", on_round=print)
    assert not (tmp_path / "run").exists()
    shown = under(PLAN, "snowball-sgd")
    with Run(shown, oracle=library_oracle(shown)) as run:
        with pytest.raises(dpsco.HorizonError, match="last iterate"):
            _ = run.query
        with pytest.raises(dpsco.HorizonError, match="last iterate"):
            _ = run.model
    result = train("snowball-sgd")
    assert result.trace == ()
    assert "last iterate" in str(result.report)
    with pytest.raises(dpsco.InvalidArgument, match="too few"):
        train("snowball-sgd", dataclasses.replace(PLAN, budget=dpsco.Budget(1e-3, 1e-9)))


@pytest.mark.parametrize("name", ["dp-sgd", "dp-ftrl", "accelerated-sgd", "unaccelerated-srgd", "online-to-batch"])
def test_one_pass_methods_take_add_remove_and_any_stream(name) -> None:
    budget = dpsco.Budget(2.0, 1e-4, "add-remove")
    report = train(name, dataclasses.replace(PLAN, budget=budget)).report
    assert report.rows_missing is None
    chunks = ((ROWS[0][i : i + 77], ROWS[1][i : i + 77]) for i in range(0, N, 77))
    by_chunks = dpsco.train(under(PLAN, name), dpsco.stream(chunks), key=bytes(32)).model.coef
    assert np.array_equal(by_chunks, train(name, key=bytes(32)).model.coef)


@pytest.mark.parametrize("name", ["snowball-sgd", "phased-sgd", "phased-erm"])
def test_uneven_batches_come_from_any_stream(name) -> None:
    chunks = ((ROWS[0][i : i + 77], ROWS[1][i : i + 77]) for i in range(0, N, 77))
    by_chunks = dpsco.train(under(PLAN, name), dpsco.stream(chunks), key=bytes(32))
    arrays = train(name, key=bytes(32))
    assert np.array_equal(by_chunks.model.coef, arrays.model.coef)
    assert by_chunks.report.rows_missing == arrays.report.rows_missing == 0


@pytest.mark.parametrize("factor", [1e9, 1e300])
def test_localized_rounds_beyond_any_horizon_are_refused_before_they_are_accounted_for(factor: float) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=6)
    with pytest.raises(dpsco.InvalidArgument, match="horizon"):
        dpsco.Plan(problem, 3000, dpsco.Budget(1.0, 1e-5), dpsco.LocalizedAccelerated(clip=1.0, factor=factor))


def test_full_batch_descent_refuses_add_remove() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="add-remove"):
        train("accelerated-gd", dataclasses.replace(PLAN, budget=dpsco.Budget(2.0, 1e-4, "add-remove")))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: under(PLAN, methods.DPSGD, step_size=-1.0), "step"),
        (lambda: under(PLAN, methods.DPSGD, iterate="best"), "iterate"),
        (lambda: under(PLAN, methods.DPFTRL, momentum=1.0), "momentum"),
        (lambda: under(PLAN, methods.DPFTRL, restarts=-1), "restarts"),
        (lambda: under(PLAN, methods.DPFTRL, decay="cosine"), "decay"),
        (lambda: under(PLAN, methods.OnlineToBatch, power=0), "power"),
        (lambda: under(PLAN, methods.PhasedSGD, constants="magic"), "constants"),
        (lambda: under(PLAN, methods.PhasedERM, solver="magic"), "solver"),
        (lambda: under(PLAN, methods.SnowballSGD, rounds=0), "rounds"),
        (lambda: under(PLAN, methods.LocalizedAccelerated, factor=0.0), "factor"),
        (lambda: under(PLAN, methods.PoissonDPSGD, epochs=0.0), "epochs"),
        (lambda: under(PLAN, methods.AcceleratedSRGD, beta=math.nan), "beta"),
        (lambda: train(partial(methods.DPFTRL, restarts=8)), "restarts=8"),
        (lambda: train(partial(methods.SnowballSGD, rounds=N + 1)), "rounds"),
    ],
)
def test_options_out_of_range_are_refused_by_name(make, says) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=says):
        make()


def test_options_are_part_of_the_run_so_other_ones_have_other_noise_and_no_resume(tmp_path) -> None:
    one, other = (
        train(partial(methods.DPSGD, step_size=0.1 * k), key=bytes(32)).trace[0].gradient_norm for k in (1, 2)
    )
    assert one != other
    train(partial(methods.DPSGD, step_size=0.1), checkpoint=tmp_path)
    with pytest.raises(dpsco.CheckpointError, match="another run"):
        train(partial(methods.DPSGD, step_size=0.2), checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize(("delta", "least"), [(1e-6, 32.0), (1e-9, 25.0)])
def test_noise_that_ends_too_early_for_the_later_rounds_is_refused_before_the_survey(
    delta: float, least: float
) -> None:
    """The draws of the rounds behind it are more than those of a survey of few columns."""
    rng = np.random.default_rng(0)
    rows, released, refused = rng.normal(size=(20_000, 5)), 0, 0
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=5, feature_norm=4.0)
    for epsilon in np.arange(least, least + 5.0, 0.06):
        budget = dpsco.Budget(epsilon, delta)
        try:
            plan = dpsco.plan(problem, n=20_000, budget=budget, survey="full")
        except dpsco.InvalidArgument:
            refused += 1
            continue
        dpsco.train(plan, dpsco.stream(rows, rows[:, 0] > 0))
        released += 1
    assert released > 5
    assert refused > 5
