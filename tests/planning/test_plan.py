"""Plans: what they refuse, what they say, and that they survive JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from tests.method_plans import algorithm_1_plan

import dpsco

PROBLEM = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=50, feature_norm=1.0)
BUDGET = dpsco.Budget(epsilon=1.0, delta=1e-6)


def make(**changes):
    arguments = {"problem": PROBLEM, "n": 200_000, "budget": BUDGET, "rounds": 16, "beta": 0.05, "clip": 1.0}
    return algorithm_1_plan(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n": 0}, "n=0"),
        ({"n": 10.5}, "n=10.5"),
        ({"n": True}, "n=True"),
        ({"rounds": 0}, "rounds=0"),
        ({"rounds": 200_001}, "rounds=200001 <= n=200000"),
        ({"batch_size": 12_501}, "each row is used once"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"beta": 0.0}, "beta"),
        ({"beta": math.inf}, "beta"),
        ({"clip": 0.0}, "clip"),
        ({"clip": -1.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"clip": 1e-200}, "clip"),
        ({"clip": math.inf}, "no noise hides that"),
        ({"clip": "1"}, "clip"),
        ({"z_step": "double"}, "z_step"),
        ({"mechanism": "magic"}, "mechanism='magic'"),
        ({"problem": "logistic"}, "problem"),
        ({"budget": 1.0}, "budget"),
        ({"budget": dpsco.Budget(500.0, 1e-6)}, "standard deviations"),
        ({"budget": dpsco.Budget(1e-12, 1e-15), "n": 10**9, "rounds": 1}, "exactly"),
    ],
)
def test_a_plan_that_cannot_be_honoured_is_refused_by_name(changes, says) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=says):
        make(**changes)


@pytest.mark.parametrize(
    ("method", "radius", "n", "dimension"),
    [
        (dpsco.PhasedSGD(clip=1.0), 1e300, 3_000, 4),
        (dpsco.PhasedERM(clip=1.0), 1e300, 3_000, 4),
        (dpsco.PhasedERM(clip=1.0), 5.0, 10**300, 1),
    ],
)
def test_a_plan_whose_formulas_overflow_is_refused_in_our_words(method, radius, n, dimension) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius), dimension)
    with pytest.raises(dpsco.InvalidArgument):
        dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-6), method)


def test_more_sampled_rounds_than_a_mechanism_takes_are_refused_before_the_accountant_is_asked(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("dpsco.methods.dp_sgd_poisson.sampled_noise", lambda *args, **options: asked.append(options))
    with pytest.raises(dpsco.InvalidArgument, match="horizon"):
        dpsco.Plan(PROBLEM, 3_000, dpsco.Budget(1.0, 1e-6), dpsco.PoissonDPSGD(rounds=10**9, clip=1.0))
    assert not asked


@pytest.mark.parametrize(
    ("epsilon", "delta", "says"),
    [
        (0.0, 1e-6, "epsilon"),
        (-1.0, 1e-6, "epsilon"),
        (math.nan, 1e-6, "epsilon"),
        (1.0, 0.0, "delta"),
        (1.0, 1.0, "delta"),
        (1.0, 2.0, "delta"),
        (1.0, math.nan, "delta"),
        ("1", 1e-6, "epsilon"),
    ],
)
def test_impossible_budgets_are_refused_by_name(epsilon, delta, says) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=says):
        dpsco.Budget(epsilon, delta)


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        dpsco.Problem(dpsco.Softmax(7), dpsco.Everything(), dimension=3, feature_norm=2.5),
        dpsco.Problem(dpsco.Squared(3.0), dpsco.Box(-1, (1.0, 2.0)), dimension=2),
        dpsco.Problem(dpsco.Huber(0.1), dpsco.Box(0.0, math.inf), dimension=2),
        dpsco.Problem(dpsco.SmoothedHinge(0.2), dpsco.HalfSpace((1.0, 2.0), 3.0), dimension=2),
        dpsco.Problem(dpsco.CustomLoss(2.0, 3.0), dpsco.L2Ball(1.0, center=(0.0, 1.0)), dimension=2),
        dpsco.Problem(
            dpsco.Logistic(), dpsco.Product((dpsco.Simplex(), dpsco.Product((dpsco.L2Ball(1.0),), (2,))), (2, 2)), 4
        ),
    ],
    ids=lambda problem: f"{problem.loss.kind}-{problem.domain.kind}",
)
def test_every_plan_survives_json(problem) -> None:
    for plan in (
        make(problem=problem, z_step="listed", mechanism="tree"),
        make(problem=problem, budget=dpsco.Budget(math.inf, 1e-6), clip=math.inf),
        make(problem=problem, budget=dpsco.Budget(1.0, 1e-6, "replace", records=3), n=1e5),
        dataclasses.replace(make(problem=problem), prediction=dpsco.Prediction(0.1, 0.2, 0.3), rule="response"),
    ):
        back = dpsco.Plan.from_json(plan.to_json())
        assert back == plan
        assert back.digest() == plan.digest()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data["method"].pop("beta"),
        lambda data: data.update(extra=1),
        lambda data: data.update(format=99),
        lambda data: data.update(problem={}),
        lambda data: data["problem"]["loss"].update(kind="unknown"),
        lambda data: data["problem"]["loss"].update(width=3),
        lambda data: data["budget"].pop("epsilon"),
        lambda data: data["method"].update(clip="a lot"),
        lambda data: data.update(budget=None),
        lambda data: data.update(prediction={"noise": 1}),
    ],
)
def test_a_damaged_plan_file_is_refused(damage) -> None:
    data = json.loads(make().to_json())
    damage(data)
    with pytest.raises(dpsco.InvalidArgument):
        dpsco.Plan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"format": 1}'])
def test_what_is_not_a_plan_is_refused(text) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="Not a plan"):
        dpsco.Plan.from_json(text)


def test_any_changed_number_changes_the_digest() -> None:
    changed = [
        {"n": 200_001},
        {"rounds": 17},
        {"beta": 0.0500001},
        {"clip": 1.0000001},
        {"z_step": "listed"},
        {"mechanism": "tree"},
        {"budget": dpsco.Budget(1.0000001, 1e-6)},
        {"budget": dpsco.Budget(1.0, 1e-6, "replace")},
        {"problem": dataclasses.replace(PROBLEM, feature_norm=1.1)},
    ]
    digests = {make(**c).digest() for c in changed} | {make().digest()}
    assert len(digests) == len(changed) + 1


def test_explain_says_what_matters() -> None:
    text = make(n=200_007).explain()
    for words in (
        "T = 16 rounds",
        "B = 12,500",
        "7 rows are left over",
        "zero-out",
        "mu = 0.2",
        "below the worst-case",
    ):
        assert words in text
    assert "not private" in make(budget=dpsco.Budget(math.inf, 1e-6)).explain()
    assert "cut short" in make(clip=0.5).explain()
    assert "leak whole" in make(budget=dpsco.Budget(1.0, 1e-3)).explain()
    assert "unbounded" in make(problem=dataclasses.replace(PROBLEM, domain=dpsco.Everything())).explain()


def test_replace_one_costs_twice_the_noise_and_k_records_k_times() -> None:
    """For each unit of difference, that is: what float64 takes of mu is paid for by both."""
    budgets = (BUDGET, dpsco.Budget(1.0, 1e-6, "replace"), dpsco.Budget(1.0, 1e-6, records=5))
    base, double, group = (make(budget=budget).schedule.calibration for budget in budgets)
    assert double.sigma == pytest.approx(2 * base.sigma, rel=1e-3)
    assert group.sigma / group.difference == pytest.approx(5 * base.sigma / base.difference, rel=1e-9)
    assert group.sigma >= 5 * base.sigma * (1 - 1e-12)


def test_noise_is_clip_times_sensitivity_over_mu_and_never_less() -> None:
    for mechanism in ("tree", "sqrt", "independent"):
        plan = make(mechanism=mechanism)
        least = plan.clip * plan.schedule.mechanism.sensitivity / BUDGET.mu
        assert least < plan.schedule.calibration.sigma < 1.01 * least


def test_a_feature_norm_whose_square_is_no_float_is_refused_by_name() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="feature_norm"):
        dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2, feature_norm=1e300)
