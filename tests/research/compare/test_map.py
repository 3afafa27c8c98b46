"""The map of regimes: its contenders, their tuning, its standings, its picture and its command."""

from __future__ import annotations

import argparse
import json
import math

import numpy as np
import pytest

import dpsco
from dpsco.cli import compare as command
from dpsco.research.compare import regime_map
from dpsco.research.compare.map_contenders import OURS, bracketed, contenders, scaled
from dpsco.research.compare.map_picture import draw_map, map_lines, summary
from dpsco.research.compare.regime_map import CELLS, LIMITS, Cell, kind_of, measure_cell, standings

SMALL = Cell(n=600, p=3, epsilon=2.0, badly_scaled=True)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), 3)
OF_ALL = {"error": 0.0, "factor": 1.0, "bracketed": True, "seconds": 0.1, "bytes": 96}
LINES = [
    {"limit": "4 rounds", "method": "DP-FTRL", "excess": 0.2, **OF_ALL},
    {"limit": "4 rounds", "method": "survey + SRGD", "excess": 0.1, **OF_ALL},
    {"limit": "16 rounds", "method": "DP-FTRL", "excess": 0.05, **OF_ALL},
    {"limit": "one pass", "method": "planned", "excess": 0.06, **OF_ALL},
    {"limit": "passes free", "method": "objective", "excess": 0.04, **OF_ALL, "bracketed": False},
]
RESULTS = {"scale": "quick", "keys": 1, "seconds": 3.0, "left_out": [],
           "cells": [{"n": 600, "p": 3, "epsilon": 2.0, "badly_scaled": True, "table": "", "lines": LINES},
                     {"n": 80, "p": 4, "epsilon": 2.0, "badly_scaled": False, "table": "people", "lines": LINES}],
           }  # fmt: skip


def test_a_looser_limit_admits_the_methods_of_a_tighter_one() -> None:
    found = {limit: (kind_of(line), ratio) for limit, (line, ratio) in standings(RESULTS["cells"][0]).items()}
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
        assert each.tuned == (each.name not in OURS and "survey" not in each.name)
        assert not each.tuned or planned.method.tunable
    assert {*OURS, "DP-FTRL", "unaccelerated", "survey + DP-FTRL", "survey + unaccelerated", "Newton"} <= names


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


def test_rows_that_tune_do_not_score() -> None:
    scoring, tuning = (regime_map._simulated(SMALL, role, 0) for role in ("scoring", "tuning"))
    assert not np.array_equal(scoring[0], tuning[0])
    assert np.array_equal(scoring[0], regime_map._simulated(SMALL, "scoring", 0)[0])


def test_scales_cover_what_they_promise() -> None:
    for field, values in {"n": {1_000, 1_000_000}, "p": {10, 1_000}, "epsilon": {0.1, 4.0}}.items():
        assert values <= {getattr(cell, field) for cell in CELLS["full"]}
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
    assert "8 of 10 settings" in said
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
