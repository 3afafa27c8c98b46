"""The choice of a solver for rows at rest: which, why, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.planning.at_rest import SOLVERS, least_excess, rest_plan
from dpsco.planning.table_problem import table_plan

BUDGET = dpsco.Budget(1.0, 1e-6)


def problem_of(p: int = 30, loss: dpsco.problem.Loss | None = None) -> dpsco.Problem:
    return dpsco.Problem(loss or dpsco.SmoothedHinge(), dpsco.L2Ball(20.0), p)


def test_one_pass_is_the_default_and_free_passes_are_asked_for() -> None:
    problem = problem_of()
    assert dpsco.plan(problem, n=2_000, budget=BUDGET).method.single_epoch
    free = dpsco.plan(problem, n=2_000, budget=BUDGET, passes=None)
    assert free.method.name == "objective-perturbation"
    assert "least predicted excess" in free.explain()
    assert "convex" in free.explain()
    assert dpsco.Plan.from_json(free.to_json()) == free
    for passes in (2, 0, True, 1.0, "1"):
        with pytest.raises(dpsco.InvalidArgument, match="passes"):
            dpsco.plan(problem, n=2_000, budget=BUDGET, passes=passes)


def test_one_pass_is_kept_where_less_excess_is_predicted_for_it() -> None:
    """Noise rules, and there are too few rows for a survey."""
    chosen = dpsco.plan(problem_of(3), n=300, budget=dpsco.Budget(0.1, 1e-5), passes=None)
    assert chosen.method.single_epoch
    assert "against objective-perturbation" in chosen.rule
    assert "least predicted excess" in " ".join(chosen.explain().split())


def test_given_rounds_and_methods_are_kept() -> None:
    problem = problem_of()
    assert dpsco.plan(problem, n=20_000, budget=BUDGET, passes=None, rounds=4).rounds <= 4
    assert dpsco.plan(problem, n=20_000, budget=BUDGET, passes=None, method="dp-sgd").method.name == "dp-sgd"


@pytest.mark.parametrize(
    "budget",
    [dpsco.Budget(1.0, 1e-6, "zero-out", 3), dpsco.Budget(float("inf"), 1e-6)],
    ids=["several records", "no noise"],
)
def test_where_no_proof_covers_rows_at_rest_one_pass_stays(budget) -> None:
    assert dpsco.plan(problem_of(), n=20_000, budget=budget, passes=None).method.single_epoch


def test_an_account_gets_runs_that_it_can_add_up() -> None:
    one_pass = dpsco.plan(problem_of(), n=2_000, budget=BUDGET)
    assert not least_excess(one_pass, problem_of()).schedule.accounting.gaussian
    assert least_excess(one_pass, problem_of(), gaussian=True) is one_pass


def test_what_belongs_to_one_pass_stays_one_pass() -> None:
    for kind in ("full", "diagonal", "intervals"):
        assert dpsco.plan(problem_of(), n=20_000, budget=BUDGET, passes=None, survey=kind).method.name == "surveyed"
    shared = {"n": 2_000, "budget": BUDGET, "intercept": True}
    for given in ({"rounds": 4}, {"survey": "full"}, {"rule": "response"}, {"mechanism": "tree"}):
        assert table_plan(dpsco.Logistic(), 8, **shared, **given, solver="auto").method.single_epoch
        with pytest.raises(dpsco.InvalidArgument, match="one-pass"):
            table_plan(dpsco.Logistic(), 8, **shared, **given, solver="objective-perturbation")


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_tables_get_an_objective_behind_a_survey_where_one_sees_their_scales(adjacency) -> None:
    """At 300 rows there is none, at 10,000 its noise over a typical direction is 0.02 with all rows."""
    budget = dpsco.Budget(1.0, 1e-5, adjacency)
    few, many = (
        table_plan(dpsco.Logistic(), 10, n=n, budget=budget, intercept=True, solver="auto") for n in (300, 10_000)
    )
    assert few.method.name == "objective-perturbation"
    assert many.method.name == "surveyed-objective-perturbation"
    assert many.problem.radius == 1000.0
    said = " ".join(many.explain().split())
    assert "how the columns are scaled" in said
    assert "convex" in said


def test_few_rows_without_an_intercept_get_a_survey_that_one_pass_does_without() -> None:
    shared = {"n": 1_537, "budget": dpsco.Budget(2.6, 1e-5), "intercept": False}
    assert table_plan(dpsco.Logistic(), 6, **shared).method.name == "accelerated-srgd"
    chosen = table_plan(dpsco.Logistic(), 6, **shared, solver="auto")
    assert chosen.method.name == "surveyed-objective-perturbation"
    assert chosen.problem.radius == 1000.0
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), 6)
    for survey, name in (("auto", "surveyed-objective-perturbation"), ("none", "objective-perturbation")):
        given = {"n": 1_537, "budget": dpsco.Budget(2.6, 1e-5), "survey": survey}
        assert dpsco.plan(problem, **given, passes=None).method.name == name
        assert table_plan(dpsco.Logistic(), 6, **given, intercept=False, solver="auto").method.name == name
    account = table_plan(dpsco.Logistic(), 6, **shared, solver="auto", gaussian=True)
    assert account.method.name == "accelerated-srgd"


def test_a_survey_that_hardly_sees_scales_is_weighed_against_none() -> None:
    """With an intercept and some noise the objective behind a survey is taken, with much noise the plain one."""
    chosen = {
        n: table_plan(dpsco.Logistic(), width, n=n, budget=dpsco.Budget(epsilon, 1e-5), intercept=True, solver="auto")
        for n, width, epsilon in ((3_563, 18, 0.36), (4_240, 123, 0.37))
    }
    assert chosen[3_563].method.name == "surveyed-objective-perturbation"
    assert chosen[4_240].method.name == "objective-perturbation"
    assert all("least predicted excess" in one.rule for one in chosen.values())


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"gaussian": True}),
        ({"budget": dpsco.Budget(1.0, 1e-5, "zero-out", 2)}, {}),
        ({"loss": dpsco.MulticlassHinge(3)}, {}),
        ({"n": 100_000_000, "width": 200}, {}),
    ],
    ids=["account", "several records", "no proof", "too much work"],
)
def test_where_it_cannot_one_pass_learns_the_scales(given, options) -> None:
    given = {"loss": dpsco.Logistic(), "width": 10, "n": 10_000, "budget": dpsco.Budget(1.0, 1e-9), **given}
    loss, width = given.pop("loss"), given.pop("width")
    chosen = table_plan(loss, width, **given, **options, intercept=True, solver="auto")
    assert chosen.method.name == "surveyed"
    assert "how the columns are scaled" in chosen.rule


def test_scales_that_a_survey_sees_are_worth_more_than_passes() -> None:
    """Twelve columns that differ a hundredfold, with an intercept: the choice has half the excess of the other."""
    rng = np.random.default_rng(3)
    n, scale = 20_000, 10.0 ** rng.uniform(-2.5, -0.5, 12)
    a = rng.standard_normal((n, 12)) * scale
    truth = rng.standard_normal(12) * 1.5 / (scale * np.sqrt(12))
    y = (rng.random(n) < 0.5 * (1 + np.tanh(a @ truth / 2))).astype(float)
    chance = 0.5 * (1 + np.tanh(a @ truth / 2))

    def excess(solver: str) -> float:
        plan = table_plan(dpsco.Logistic(), 12, n=n, budget=BUDGET, intercept=True, solver=solver)
        runs = [dpsco.train(plan, dpsco.stream(a, y), key=bytes([k]) * 32).model for k in range(4)]
        scores = [a @ run.coef + run.intercept for run in runs]
        return float(np.mean([np.mean(np.logaddexp(0, s) - chance * s) for s in scores]))

    least = float(np.mean(np.logaddexp(0, a @ truth) - chance * (a @ truth)))
    assert excess("auto") - least < 0.5 * (excess("objective-perturbation") - least)


def test_every_solver_has_a_plan_and_a_prediction() -> None:
    problem = problem_of(loss=dpsco.Squared(1.0))
    for name in SOLVERS[2:]:
        plan = rest_plan(problem, 20_000, BUDGET, name)
        assert plan.method.name == name
        if name.startswith("surveyed"):  # predicted by what the survey releases
            continue
        assert plan.predicted_excess is not None
        assert 1e-7 < plan.predicted_excess < 1.0


@pytest.mark.parametrize("n", [1_000, 100_000])
@pytest.mark.parametrize("solver", ["objective-perturbation", "sufficient-statistics"])
def test_predictions_are_of_the_measured_size(solver, n) -> None:
    """On rows of the planner's own kind, 4 keys: within a factor of 4, most of it what the prior cannot know."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, 10)) * np.arange(1, 11) ** -0.5
    a /= np.maximum(1.0, np.linalg.norm(a, axis=1))[:, None]
    truth = rng.standard_normal(10) / 3
    problem = dpsco.Problem(dpsco.Squared(1.0), dpsco.L2Ball(10.0), 10)
    y = np.clip(a @ truth + 0.3 * rng.standard_normal(n), -1, 1)
    plan = rest_plan(problem, n, BUDGET, solver)
    runs = [dpsco.train(plan, dpsco.stream(a, y), key=bytes([k]) * 32).model.coef - truth for k in range(4)]
    measured = np.mean([0.5 * np.mean((a @ error) ** 2) for error in runs])
    assert plan.predicted_excess is not None
    assert 0.25 < measured / plan.predicted_excess < 4.0


def test_tables_take_a_solver_by_name() -> None:
    shared = {"n": 300, "budget": BUDGET, "intercept": True}
    assert table_plan(dpsco.Logistic(), 8, **shared).method.single_epoch
    for name in ("auto", "objective-perturbation"):
        assert table_plan(dpsco.Logistic(), 8, **shared, solver=name).method.name == "objective-perturbation"
    assert table_plan(dpsco.Logistic(), 8, **shared, solver="auto", rounds=4).rounds <= 4
    with pytest.raises(dpsco.InvalidArgument, match="solver"):
        table_plan(dpsco.Logistic(), 8, **shared, solver="newton")
    with pytest.raises(dpsco.InvalidArgument, match="squared"):
        table_plan(dpsco.Logistic(), 8, **shared, solver="sufficient-statistics")
