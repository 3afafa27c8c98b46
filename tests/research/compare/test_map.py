"""The map of regimes: its contenders, their tuning, its standings, its picture and its command."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math

import numpy as np
import pytest

import dpsco
from dpsco.cli import compare as command
from dpsco.research.compare import behind_survey as behind_survey_module
from dpsco.research.compare import map_contenders, regime_map
from dpsco.research.compare import simulated_rows as simulated_rows_module
from dpsco.research.compare.behind_survey import behind_survey
from dpsco.research.compare.map_contenders import OURS, bracketed, contenders, kind, left_out, scaled
from dpsco.research.compare.map_picture import draw_map, map_lines, summary
from dpsco.research.compare.regime_map import CELLS, LIMITS, Cell, measure_cell, runs_of, standings
from dpsco.research.compare.simulated_rows import simulated_rows

SMALL = Cell(n=600, p=3, epsilon=2.0, badly_scaled=True)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), 3)
OF_ALL = {"error": 0.0, "factor": 1.0, "bracketed": True, "seconds": 0.1, "bytes": 96}
LINES = [
    {"limit": "4 rounds", "method": "DP-FTRL", "kind": "DP-FTRL", "excess": 0.2, **OF_ALL},
    {"limit": "4 rounds", "method": "default", "kind": "survey + SRGD", "excess": 0.1, **OF_ALL},
    {"limit": "16 rounds", "method": "DP-FTRL", "kind": "DP-FTRL", "excess": 0.05, **OF_ALL},
    {"limit": "one pass", "method": "default", "kind": "SRGD", "excess": 0.06, **OF_ALL},
    {"limit": "passes free", "method": "default", "kind": "objective", "excess": 0.06, **OF_ALL},
    {"limit": "passes free", "method": "objective", "kind": "objective", "excess": 0.04, **OF_ALL, "bracketed": False},
]
RESULTS = {"scale": "quick", "keys": 1, "seconds": 3.0, "left_out": [],
           "cells": [{"n": 600, "p": 3, "epsilon": 2.0, "badly_scaled": True, "table": "", "lines": LINES},
                     {"n": 80, "p": 4, "epsilon": 2.0, "badly_scaled": False, "table": "people", "lines": LINES}],
           }  # fmt: skip


def test_a_looser_limit_admits_the_methods_of_a_tighter_one() -> None:
    found = {limit: (line["kind"], ratio) for limit, (line, ratio) in standings(RESULTS["cells"][0]).items()}
    assert tuple(found) == LIMITS
    assert found["4 rounds"] == found["8 rounds"] == ("survey + SRGD", 2.0)
    assert found["16 rounds"] == ("DP-FTRL", 2.0)
    assert found["one pass"] == ("DP-FTRL", pytest.approx(1.2))
    assert found["passes free"] == ("objective", 1.25)


@pytest.mark.parametrize("scale", ["quick", "medium", "full"])
def test_no_contender_goes_beyond_its_limit(scale) -> None:
    names = set()
    for each in contenders(PROBLEM, 4_000, 2.0, scale=scale):
        names.add(each.name)
        planned = each.plan()
        if each.limit.endswith("rounds"):
            assert planned.rounds <= int(each.limit.split()[0])
        assert planned.method.single_epoch or each.limit == "passes free"
        assert each.tuned == (bool(each.behind) or (each.name not in OURS and "survey" not in each.name))
        assert not each.tuned or each.behind or planned.method.tunable
        assert kind(each.name, planned) in {each.name, "survey + SRGD", "survey + objective", "SRGD", "objective"}
    both = {"DP-FTRL", "unaccelerated", *(("objective", "Newton", "DP-GD") if scale != "quick" else ())}
    assert {*OURS, *both, *(f"survey + {name}" for name in both)} <= names


@pytest.mark.parametrize("best", [-5, 0, 3, 40])
def test_a_rival_is_tuned_until_both_neighbours_are_worse(best) -> None:
    tried: list[float] = []

    def measure(factor: float) -> float:
        tried.append(factor)
        return math.inf if factor > 2.0**6 and best < 6 else abs(math.log2(factor) - best)

    factor, inside = bracketed(measure)
    assert inside == (best < 12)
    assert factor == 2.0 ** min(best, 12)
    assert len(tried) == len(set(tried)) <= abs(min(best, 12)) + 3


def test_a_scaled_plan_changes_its_tunable_number_alone() -> None:
    plan = dpsco.plan(PROBLEM, n=600, budget=dpsco.Budget(1.0, 1e-5), method="dp-ftrl", rounds=4)
    twice = scaled(plan, 2.0)
    assert twice.method.step_size == 2 * plan.method.step_size
    assert (twice.n, twice.budget, twice.rounds, twice.clip) == (plan.n, plan.budget, plan.rounds, plan.clip)


def test_a_regime_is_measured_for_every_limit() -> None:
    lines = measure_cell(SMALL, 1, "quick")
    assert {line["limit"] for line in lines} == set(LIMITS)
    assert all(math.isfinite(line["excess"]) and line["excess"] > 0 and line["bytes"] > 0 for line in lines)
    assert {line["factor"] for line in lines if line["method"] in OURS} == {1.0}
    assert lines == [
        {**line, "seconds": other["seconds"]}
        for line, other in zip(measure_cell(SMALL, 1, "quick"), lines, strict=True)
    ]


def test_tuned_lines_of_an_earlier_run_can_be_kept() -> None:
    contender = next(one for one in contenders(PROBLEM, SMALL.n, SMALL.epsilon, scale="quick") if one.tuned)
    known = {"limit": contender.limit, "method": contender.name, "kind": contender.name, "excess": 7.0, **OF_ALL}
    ours = {"limit": "one pass", "method": "default", "kind": "SRGD", "excess": 7.0, **OF_ALL}
    given = {(line["limit"], line["method"]): line for line in (known, ours)}
    lines = measure_cell(SMALL, 1, "quick", tuned=given)
    assert [line for line in lines if line["excess"] == 7.0] == [known]  # ours are measured always


def test_rows_that_tune_do_not_score() -> None:
    scoring, tuning, again = (simulated_rows(600, 3, True, role, 0) for role in ("scoring", "tuning", "scoring"))
    assert not np.array_equal(scoring.arrays()[0], tuning.arrays()[0])
    assert np.array_equal(scoring.arrays()[0], again.arrays()[0])


def test_rows_that_are_not_kept_are_drawn_alike_by_every_run(monkeypatch) -> None:
    kept = simulated_rows(45_000, 3, False, "scoring", 7)
    monkeypatch.setattr(simulated_rows_module, "KEPT", 1e5)
    drawn = simulated_rows_module._drawn(45_000, 3, False, "scoring", 7)
    with pytest.raises(dpsco.errors.DataError, match="one pass"):
        drawn.arrays()
    for part in (0, 1):
        together = np.concatenate([chunk[part] for chunk in drawn.chunks()])
        assert np.array_equal(together, kept.arrays()[part])
    plan = dpsco.plan(PROBLEM, n=45_000, budget=dpsco.Budget(4.0, 1e-5))
    models = [dpsco.train(plan, rows.stream(), key=bytes(32)).model for rows in (drawn, kept)]
    assert drawn.excess(models[0]) == pytest.approx(kept.excess(models[1]), rel=1e-6)


def test_the_known_minimiser_has_no_excess_and_others_have() -> None:
    rows = simulated_rows(60_000, 4, False, "scoring", 0)
    plan = dpsco.Plan(
        dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), 4),
        60_000,
        dpsco.Budget(math.inf, 1e-6),
        dpsco.ObjectivePerturbation(clip=math.inf, ridge=1e-3),
    )
    exact = dpsco.train(plan, rows.stream()).model
    assert 0 < rows.excess(exact) < 5 * 4 / 60_000
    assert rows.excess(dataclasses.replace(exact, coef=0 * exact.coef)) > 0.05


def test_many_passes_behind_a_survey_reach_what_the_rows_themselves_hide() -> None:
    """Columns differ a hundredfold: without the survey's geometry the ridge and the noise hide the small ones."""
    rows, budget = simulated_rows(20_000, 4, True, "scoring", 0), dpsco.Budget(2.0, 1e-5)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5_000.0), 4)
    plain = dpsco.plan(problem, n=20_000, budget=budget, method="objective-perturbation")
    alone = rows.excess(dpsco.train(plain, rows.stream(), key=bytes(32)).model)
    survey = dpsco.plan(problem, n=20_000, budget=budget, survey="full")
    model, made = behind_survey(survey, "objective-perturbation", *rows.arrays(), key=bytes(range(32)))
    assert made.n == 20_000 - survey.method.rows
    assert made.budget == budget
    assert rows.excess(model) < 0.5 * alone
    with pytest.raises(dpsco.errors.InvalidArgument, match="survey"):
        behind_survey(plain, "dp-newton", *rows.arrays(), key=bytes(32))


def test_a_row_of_the_survey_is_no_row_of_the_method_behind_it(monkeypatch) -> None:
    rows, budget = simulated_rows(3_000, 3, False, "scoring", 0), dpsco.Budget(2.0, 1e-5)
    survey = dpsco.plan(PROBLEM, n=3_000, budget=budget, survey="full")
    features, labels = rows.arrays()
    seen: list[np.ndarray] = []
    real = behind_survey_module.stream
    monkeypatch.setattr(behind_survey_module, "stream", lambda a, b: seen.append(b) or real(a, b))
    behind_survey(survey, "dp-newton", features, labels, key=bytes(range(32)))
    assert len(seen) == 1
    assert np.array_equal(seen[0], labels[survey.method.rows :])


def test_larger_data_sets_have_fewer_runs() -> None:
    sizes = ((1_000, 10), (10_000, 100), (100_000, 100), (1_000_000, 100))
    assert [runs_of(Cell(n, p, 1.0), 8) for n, p in sizes] == [8, 4, 2, 1]


def test_what_does_not_run_has_a_line(monkeypatch) -> None:
    assert left_out("quick", [(1_000, 10)]) == []
    assert len(left_out("medium", [(1_000, 10), (100_000, 1_000)])) == 3
    monkeypatch.setattr(map_contenders, "find_spec", lambda name: None)
    assert "dpsco[accounting]" in left_out("full", [])[0]
    assert "Poisson" not in {each.name for each in contenders(PROBLEM, 4_000, 2.0, scale="full")}


def test_scales_cover_what_they_promise() -> None:
    for field, values in {"n": {1_000, 1_000_000}, "p": {10, 1_000}, "epsilon": {0.1, 4.0}}.items():
        assert values <= {getattr(cell, field) for cell in CELLS["full"]}
    assert {cell.n for cell in CELLS["medium"]} == {1_000, 10_000, 100_000}
    assert {cell.epsilon for cell in CELLS["medium"] if cell.n * cell.p**2 <= 1e6} == {0.1, 1.0, 4.0}
    assert set(CELLS["medium"]) < set(CELLS["full"])
    assert Cell(1_000_000, 1_000, 0.1, badly_scaled=True) in CELLS["full"]
    assert {cell.badly_scaled for cell in CELLS["quick"]} == {True, False}


@pytest.fixture
def parser():
    made = argparse.ArgumentParser()
    command.add_parser(made.add_subparsers())
    return made


def test_the_command_writes_the_map(parser, tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(regime_map, "measure_map", lambda *_, **__: json.loads(json.dumps(RESULTS)))
    words = ["compare", "--map", "--out", str(tmp_path)]
    assert command.run(parser.parse_args(words)) == 0
    said = capsys.readouterr().out
    assert "objective" in said
    assert "10 of 12 settings" in said
    assert json.loads((tmp_path / "map.json").read_text()) == RESULTS
    assert (tmp_path / "map.svg").read_text() == draw_map(RESULTS)
    assert command.run(parser.parse_args([*words, "--json"])) == 0
    assert json.loads(capsys.readouterr().out) == RESULTS
    assert len(map_lines(RESULTS)) == 2
    assert summary(RESULTS)[0] == ("4 rounds", "survey + SRGD 2", "1.00, 1.0")
    assert summary(RESULTS)[-1] == ("passes free", "objective 2", "1.50, 1.5")


def test_a_file_is_a_regime_of_its_own(parser, tmp_path, monkeypatch, capsys) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_500, 3)) / 2
    np.savez(tmp_path / "people.npz", X=X, y=(rng.random(1_500) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int))
    monkeypatch.setitem(regime_map.CELLS, "quick", ())
    words = [
        "compare",
        "--map",
        "--json",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
        "--data",
        str(tmp_path / "people.npz"),
    ]
    assert command.run(parser.parse_args(words)) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(cell["table"], cell["n"], cell["p"], cell["epsilon"]) for cell in cells] == [
        ("people", 600, 4, epsilon) for epsilon in (0.1, 1.0, 4.0)
    ]
    objective = [line["excess"] for cell in cells for line in cell["lines"] if line["method"] == "objective"]
    assert objective[0] > objective[2]
    assert objective[2] < 0.1


def test_processes_measure_the_same_and_no_regime_twice(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(regime_map.CELLS, "quick", (SMALL,))
    done: list[int] = []
    found = regime_map.measure_map("quick", tmp_path, processes=1, keys=1, advance=done.append)
    assert done == [1]
    with (tmp_path / "regimes.jsonl").open("ab") as file:
        file.write(b'["cut sho')
    again = regime_map.measure_map("quick", tmp_path, processes=1, keys=1, advance=done.append)
    assert done == [1]
    assert {**again, "seconds": 0} == {**found, "seconds": 0}
    expected = {(line["limit"], line["method"]): line["excess"] for line in measure_cell(SMALL, 1, "quick")}
    assert {(line["limit"], line["method"]): line["excess"] for line in found["cells"][0]["lines"]} == expected
