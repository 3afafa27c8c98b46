"""What is counted at the waist, against the table of the methods; and what each method says of itself."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from tests.method_plans import under

import dpsco
from dpsco import methods
from dpsco.methods import METHODS
from dpsco.query import Array
from dpsco.run import Counts

N, P, T = 1024, 3, 16
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(2.0), dimension=P)
PLAN = dpsco.Plan(PROBLEM, N, dpsco.Budget(0.5, 1e-4), dpsco.AcceleratedSRGD(rounds=T, beta=0.3, clip=1.0))


@pytest.fixture(scope="module")
def rows() -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((N, P)) / 3
    return features, (rng.random(N) < 0.5).astype(float)


def result(method, rows, plan=PLAN, **options):
    return dpsco.train(under(plan, method), dpsco.stream(*rows), **options)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accelerated-srgd", Counts(2 * N - N // T, T, 1)),
        ("unaccelerated-srgd", Counts(2 * N - N // T, T, 1)),
        ("online-to-batch", Counts(2 * N - N // T, T, 1)),
        ("accelerated-sgd", Counts(N, T, 1)),
        ("dp-sgd", Counts(N, T, 1)),
        ("dp-ftrl", Counts(N, T, 1)),
        ("accelerated-gd", Counts(N * T, T, T)),
        ("dp-sgd-poisson", Counts(N, T, T)),
        ("phased-sgd", Counts(N - 1, N - 1, 1)),
        ("objective-perturbation", Counts(10 * N, 10, 10)),
        ("sufficient-statistics", Counts(N, 1, 1)),
        ("dp-newton", Counts(N * T, T, T)),
    ],
)
def test_gradients_steps_and_participation_come_out_as_in_the_table(rows, name, expected) -> None:
    assert result(name, rows).counts == expected


def test_snowball_reads_every_row_it_planned_for_once(rows) -> None:
    run = result("snowball-sgd", rows)
    assert run.counts.participation == 1
    assert run.counts.gradients == run.report.rows_planned <= N
    assert run.counts.batch_steps == run.report.rounds


@pytest.mark.parametrize("solver", ["svrg", "accelerated"])
def test_phased_erm_counts_the_public_number_of_solver_steps(rows, solver) -> None:
    """Other rows, the same counts: a count that followed the rows would be an output that nothing noised."""
    method = partial(methods.PhasedERM, solver=solver)
    counts = result(method, rows).counts
    steps = gradients = 0
    schedule = under(PLAN, method).schedule
    for phase, _ in enumerate(schedule.portions):
        at = under(PLAN, method).method.subproblem(PROBLEM, N, schedule.settings["step_size"], phase)
        passes = at.rounds + 1
        inner = at.inner * at.rounds if solver == "svrg" else 0
        steps, gradients = steps + passes + inner, gradients + passes * at.rows + 2 * inner
    assert (counts.gradients, counts.batch_steps) == (gradients, steps)
    assert counts.participation > 1
    other = result(method, (rows[0][::-1] / 2, 1 - rows[1])).counts
    assert (other.gradients, other.batch_steps) == (gradients, steps)


def test_localized_accelerated_counts_the_expected_samples_of_every_round(rows) -> None:
    method = methods.LocalizedAccelerated
    portions = under(PLAN, method).schedule.portions
    counts = result(method, rows).counts
    assert counts.batch_steps == len(portions)
    assert counts.gradients == sum(max(1, round(portion.rows * portion.rate)) for portion in portions)
    assert counts.participation == max(portions.count(portion) for portion in set(portions))


def test_a_run_given_back_complete_did_no_work(rows, tmp_path) -> None:
    first = result("phased-sgd", rows, checkpoint=tmp_path)
    again = result("phased-sgd", rows, checkpoint=tmp_path, resume=True)
    assert np.array_equal(first.model.coef, again.model.coef)
    assert again.counts == Counts()


EXPECTED = {
    # name: (single epoch, what privacy needs, what may be shown)
    "accelerated-srgd": (True, "clipping", "all iterates"),
    "unaccelerated-srgd": (True, "clipping", "all iterates"),
    "accelerated-sgd": (True, "clipping", "all iterates"),
    "accelerated-gd": (False, "clipping", "all iterates"),
    "dp-sgd": (True, "clipping", "all iterates"),
    "dp-sgd-poisson": (False, "clipping", "all iterates"),
    "dp-ftrl": (True, "clipping", "all iterates"),
    "snowball-sgd": (True, "convexity", "last iterate"),
    "phased-sgd": (True, "convexity", "phase outputs"),
    "online-to-batch": (True, "clipping", "all iterates"),
    "phased-erm": (False, "convexity", "phase outputs"),
    "localized-accelerated": (False, "clipping", "all iterates"),
    "objective-perturbation": (False, "convexity", "last iterate"),
    "sufficient-statistics": (True, "clipping", "all iterates"),
    "dp-newton": (False, "clipping", "all iterates"),
}


def test_every_method_of_the_table_is_there() -> None:
    assert set(METHODS) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_method_says_what_its_privacy_needs_and_what_it_may_show(rows, name) -> None:
    single, needs, releases = EXPECTED[name]
    run = result(name, rows)
    method = under(PLAN, name).method
    assert (method.single_epoch, method.needs, method.releases) == (single, needs, releases)
    assert single == (run.counts.participation == 1)
    report = run.report
    assert (report.needs, report.releases, report.private) == (needs, releases, True)
    assert report.reason == method.reason
    assert any(needs.removesuffix("ity") in line for line in report.assumptions)
    assert any({"all iterates": "every iterate", "phase outputs": "phase"}.get(releases, "last") in line
               for line in report.publishable)  # fmt: skip
    assert ("exactly" in str(report)) == report.gaussian
    assert dpsco.PrivacyReport.from_json(report.to_json()) == report
    assert bool(run.trace) == (releases != "last iterate")
    defaults = method.defaults(under(PLAN, name).problem, N, PLAN.budget)
    assert set(defaults) == set(method.tunable)
    assert all(math.isfinite(value) and value > 0 for value in defaults.values())


@pytest.mark.parametrize("name", EXPECTED)
def test_hyperparameters_as_the_formula_says_change_nothing(rows, name) -> None:
    """Another run digest means other noise and samples, so this is compared without any."""
    plan = dpsco.Plan(
        PROBLEM, N, dpsco.Budget(math.inf, 1e-4), dpsco.AcceleratedSRGD(rounds=T, beta=0.3, clip=math.inf)
    )
    options = {"dp-sgd-poisson": {"epochs": float(T)}, "phased-erm": {"solver": "accelerated"}}.get(name, {})
    by_formula = partial(METHODS[name], **options)
    defaults = under(plan, by_formula).method.defaults(under(plan, by_formula).problem, N, plan.budget)
    by_hand = partial(METHODS[name], **options, **defaults)
    assert np.array_equal(result(by_formula, rows, plan).model.coef, result(by_hand, rows, plan).model.coef)
