"""A federation on paper and by simulation."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import dpsco
from dpsco.cli import main
from dpsco.engines.flower import Attendance, LocalNodes, linear_gradients, serve, wire
from dpsco.engines.flower.simulate import Availability, simulate
from dpsco.errors import ClusterError, InvalidArgument
from dpsco.planning.federation_costs import device_costs

PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=10)
ARGUMENTS = [
    "plan",
    "--dimension",
    "100",
    "--epsilon",
    "1",
    "--delta",
    "1e-10",
    "--adjacency",
    "add-remove",
    "--survey",
    "auto",
]


def a_plan(n: int, survey: str = "none") -> dpsco.Plan:
    return dpsco.plan(PROBLEM, n=n, budget=dpsco.Budget(1.0, 1e-6, adjacency="add-remove"), survey=survey)


def test_the_answers_have_the_law_that_was_asked_for() -> None:
    """1e6 devices of one round: mean within 6 standard errors, and devices that differ from each other."""
    rng = np.random.default_rng(0)
    there = Availability(response=0.8, devices=0.4, rounds=0.0)
    assert abs(np.mean(there.answers(10**6, 1.0, rng)) - 0.8) < 6 * np.sqrt(0.16 / 1e6)
    assert np.all(Availability(response=1.0, rounds=0.0).answers(1_000, 1.0, rng))
    hours = Availability(rounds=0.1).hours(10_000, rng)
    assert abs(np.mean(hours) - 1) < 0.006
    assert np.std(hours) == pytest.approx(0.1, rel=0.05)


def test_simulated_devices_reach_what_the_plan_predicts() -> None:
    """Within the planner's own factor of 3; a fifth of the devices does not answer."""
    plan = a_plan(40_000)
    runs = [simulate(plan, devices=50_000, seed=seed)[1] for seed in range(2)]
    assert 1 / 3 < plan.predicted_excess / np.mean(runs) < 3


def test_drop_out_that_was_not_planned_for_costs_accuracy_and_never_the_guarantee() -> None:
    plan = a_plan(30_000)
    result, _ = simulate(plan, devices=30_000, availability=Availability(response=0.3))
    assert result.report.private
    assert result.report.mu == plan.budget.mu
    assert result.report.rows_missing is None


def test_the_simulation_is_of_the_reference_problem_alone() -> None:
    problem = dpsco.Problem(dpsco.Huber(), dpsco.L2Ball(10.0), dimension=10)
    plan = dpsco.plan(problem, n=1_000, budget=dpsco.Budget(1.0, 1e-6))
    with pytest.raises(InvalidArgument, match="reference problem"):
        simulate(plan, devices=1_000)
    with pytest.raises(InvalidArgument, match="response"):
        Availability(response=0.0)


def test_a_survey_of_simulated_devices_learns_more_in_fewer_rounds() -> None:
    wide, budget = dataclasses.replace(PROBLEM, dimension=50), dpsco.Budget(1.0, 1e-6, "add-remove")
    surveyed = dpsco.plan(wide, n=80_000, budget=budget, rounds=8, survey="full")
    plain = dpsco.plan(wide, n=80_000, budget=budget, rounds=16, survey="none")
    result, excess = simulate(surveyed, devices=100_000, key=bytes(32))
    assert result.report.rounds <= 8
    assert excess < 0.5 * simulate(plain, devices=100_000, key=bytes(32))[1]
    assert abs(result.health.usable - 1) < 6 * result.health.noise + 0.05


@pytest.mark.parametrize("survey", ["none", "full", "diagonal", "low-rank"])
def test_the_bytes_of_a_device_are_those_of_its_messages(survey: str) -> None:
    plan = a_plan(1_000, survey)
    sizes: list[tuple[int, int]] = []

    class Weighed:
        def ask(self, query: bytes, step: int):
            asked = wire.decode_query(query)
            answer = wire.encode_answer(asked, [("x" * 16, np.zeros(asked.length))])
            sizes.append((len(query), len(answer)))
            return [(0, answer)]

    with pytest.raises(ClusterError, match="Nobody answered"):  # it is not the round of that id
        serve(plan, Weighed())
    *_, ours = lines = device_costs(plan)[: 1 if survey == "none" else 2]
    assert sizes[-1] == (ours.bytes_down, ours.bytes_up) or (survey == "low-rank" and sizes[-1][0] < ours.bytes_down)
    assert sizes[0] == (lines[0].bytes_down, lines[0].bytes_up) or survey == "none"
    assert sum(line.cohort * line.rounds for line in lines) == pytest.approx(plan.n)


def test_a_device_takes_part_once_in_the_plan_and_in_the_run() -> None:
    plan, rng = a_plan(300), np.random.default_rng(0)
    nodes = LocalNodes([{f"d{i}": linear_gradients(PROBLEM, rng.random(10), 1)} for i in range(300)])
    seen = Attendance()
    serve(plan, nodes, attendance=seen)
    assert sum(counted["counted"] for counted in seen.rounds) == 300
    assert device_costs(plan)[0].participations == 1.0


def test_plan_devices_prints_every_method_at_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--devices", "1e6", "1e9", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)["federations"]
    assert [federation["plan"]["n"] for federation in body] == [10**6, 10**9]
    for federation in body:
        ours, later, *others = federation["methods"]
        assert len(others) == 7
        assert (ours["method"], later["method"]) == ("this plan, survey", "this plan, later rounds")
        assert ours["rounds"] + later["rounds"] == federation["plan"]["method"]["rounds"]
        assert ours["participations"] == 1.0
        assert ours["rounds"] * 1_000 < {line["method"]: line["rounds"] for line in others}["Phased-SGD"]
    assert main([*ARGUMENTS, "--devices", "1e6"]) == 0
    assert "localized AC-SA" in capsys.readouterr().out


def test_plan_devices_simulates(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--devices", "20000", "--response", "0.8", "--radius", "10", "--simulate"]
    assert main([*ARGUMENTS, "--dimension", "10", *options, "--survey", "none"]) == 0
    assert "ratio" in capsys.readouterr().out
    assert main([*ARGUMENTS, "--dimension", "10", *options, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["simulations"]
    assert 0 < line["measured"] < 0.1
    assert 2 <= line["rounds"] <= 16
