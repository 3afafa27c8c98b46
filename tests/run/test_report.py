"""The privacy report in its three forms."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import dpsco

ROWS = (np.ones((100, 2)) / 2, np.tile([0, 1], 50))
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)


def report_of(budget: dpsco.Budget, clip: float = 1.0, **arguments) -> dpsco.PrivacyReport:
    plan = dpsco.Plan(PROBLEM, 100, budget, dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=clip))
    ids = range(100) if budget.adjacency == "add-remove" else None
    return dpsco.train(plan, dpsco.stream(*ROWS, ids=ids), **arguments).report


BUDGETS = [
    dpsco.Budget(1.0, 1e-5),
    dpsco.Budget(1.0, 1e-5, "replace", records=3),
    dpsco.Budget(2.0, 1e-3, "add-remove"),
    dpsco.Budget(math.inf, 1e-5),
]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: f"{b.adjacency}-{b.epsilon}")
def test_the_report_survives_json_and_says_the_same_in_every_form(budget) -> None:
    report = report_of(budget)
    assert dpsco.PrivacyReport.from_json(report.to_json()) == report
    for text in (report.to_text(), report.to_markdown()):
        for words in (budget.adjacency, "accelerated-srgd", "4 rounds", "secret.json", "every iterate", "clipping"):
            assert words in text
    assert report.to_text().startswith("PRIVATE" if budget.private else "NOT PRIVATE")


def test_the_curve_is_the_exact_one() -> None:
    report = report_of(dpsco.Budget(1.0, 1e-5))
    assert dict(report.curve)[1e-5] == pytest.approx(1.0, rel=1e-12)
    for delta, epsilon in report.curve:
        assert dpsco.delta_of(report.mu, epsilon) <= delta * (1 + 1e-9)
    assert [e for _, e in report.curve] == sorted(e for _, e in report.curve)


def test_the_curve_pays_for_what_float64_noise_loses_at_every_delta() -> None:
    """A change of probability l of either neighbour adds (1 + e^epsilon) l to delta(epsilon)."""
    budget = dpsco.Budget(1.0, 1e-5)
    for delta, epsilon in report_of(budget).curve:
        lost = (1.0 + math.exp(epsilon)) * math.exp(budget.log_float_loss)
        assert dpsco.delta_of(budget.mu, epsilon) + lost <= delta


def test_the_reported_noise_carries_the_promise() -> None:
    """mu recomputed by hand from what the report says about the noise."""
    for budget in BUDGETS[:3]:
        report = report_of(budget)
        mu = budget.records * report.sensitivity * report.difference / report.noise_std
        assert mu <= report.mu
        assert mu == pytest.approx(report.mu, rel=1e-9)
        assert report.difference >= budget.clips_apart * report.clip + math.sqrt(2) * report.grid


def test_row_counts_are_not_in_the_report_under_add_remove() -> None:
    report = report_of(dpsco.Budget(2.0, 1e-3, "add-remove"))
    assert report.rows_missing is None
    assert report.rows_unread is None
    assert "secret" in report.unit


def test_a_group_costs_more_and_the_promise_for_k_records_covers_k() -> None:
    report = report_of(dpsco.Budget(1.0, 1e-5, records=3))
    assert report.group_epsilon(3) == pytest.approx(1.0, rel=1e-9)
    assert report.group_epsilon(1) < 1.0 < report.group_epsilon(6)


@pytest.mark.parametrize("damage", [{"format": 2}, {"extra": 1}, {"mu": None}])
def test_a_damaged_report_is_refused(damage) -> None:
    data = json.loads(report_of(BUDGETS[0]).to_json())
    data.update(damage)
    with pytest.raises(dpsco.InvalidArgument):
        dpsco.PrivacyReport.from_json(json.dumps(data))
    with pytest.raises(dpsco.InvalidArgument):
        dpsco.PrivacyReport.from_json("not json")


CONTRADICTIONS = {
    "epsilon": {"epsilon": 0.1},
    "delta": {"delta": 1e-9},
    "mu": {"mu": 0.01},
    "adjacency": {"adjacency": "whatever"},
    "no noise": {"epsilon": "inf", "mu": "inf"},
    "a point of the curve": {"curve": [[1e-5, 0.5]]},
    "no curve": {"curve": []},
    "words for a curve": {"curve": [["a", "b"]]},
    "a number for a curve": {"curve": 1},
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_report_that_contradicts_itself_is_refused(case: str) -> None:
    report = report_of(dpsco.Budget(1.0, 1e-5, records=3))
    data = {**json.loads(report.to_json()), **CONTRADICTIONS[case]}
    with pytest.raises(dpsco.InvalidArgument, match="Not a privacy report"):
        dpsco.PrivacyReport.from_json(json.dumps(data))


def test_no_point_of_the_curve_can_be_changed() -> None:
    data = json.loads(report_of(BUDGETS[0]).to_json())
    for at in range(len(data["curve"])):
        for end in (0, 1):
            changed = json.loads(json.dumps(data))
            changed["curve"][at][end] *= 0.99
            with pytest.raises(dpsco.InvalidArgument, match="curve"):
                dpsco.PrivacyReport.from_json(json.dumps(changed))
