"""The map of regimes: its contenders, its standings, its picture and its command."""

from __future__ import annotations

import argparse
import json
import math

import pytest

from dpsco.cli import compare as command
from dpsco.research.compare import regime_map
from dpsco.research.compare.map_picture import draw_map, map_lines
from dpsco.research.compare.regime_map import CELLS, LIMITS, Cell, contenders, measure_cell, standings

SMALL = Cell(n=600, p=3, epsilon=2.0, badly_scaled=True)
LINES = [
    {"limit": "4 rounds", "method": "a", "excess": 0.2, "error": 0.0, "seconds": 0.1, "bytes": 96},
    {"limit": "4 rounds", "method": "b", "excess": 0.1, "error": 0.0, "seconds": 0.1, "bytes": 96},
    {"limit": "16 rounds", "method": "a", "excess": 0.05, "error": 0.0, "seconds": 0.1, "bytes": 96},
    {"limit": "passes free", "method": "objective", "excess": 0.04, "error": 0.0, "seconds": 0.1, "bytes": 24},
]
RESULTS = {"scale": "quick", "keys": 1, "seconds": 3.0, "left_out": [],
           "cells": [{"n": 600, "p": 3, "epsilon": 2.0, "badly_scaled": True, "lines": LINES}]}  # fmt: skip


def test_a_looser_limit_admits_the_methods_of_a_tighter_one() -> None:
    found = standings(RESULTS["cells"][0])
    assert tuple(found) == LIMITS
    assert found["4 rounds"] == found["8 rounds"] == ("b", 0.1, 2.0)
    assert found["16 rounds"] == found["one pass"] == ("a", 0.05, 2.0)
    assert found["passes free"] == ("objective", 0.04, 1.25)


@pytest.mark.parametrize("full", [False, True])
def test_no_contender_goes_beyond_its_limit(full) -> None:
    names = set()
    for limit, name, planned in contenders(Cell(n=4_000, p=3, epsilon=2.0, badly_scaled=False), full=full):
        names.add(name)
        if limit.endswith("rounds"):
            assert planned().rounds <= int(limit.split()[0])
            assert planned().method.single_epoch
        elif limit == "one pass":
            assert planned().method.single_epoch
    assert {"survey + SRGD", "SRGD", "DP-FTRL", "unaccelerated", "objective"} <= names


def test_a_regime_is_measured_for_every_limit() -> None:
    lines = measure_cell(SMALL, 1, False)
    assert {line["limit"] for line in lines} == set(LIMITS)
    assert all(math.isfinite(line["excess"]) and line["excess"] > 0 and line["bytes"] > 0 for line in lines)
    assert lines == [
        {**line, "seconds": other["seconds"]} for line, other in zip(measure_cell(SMALL, 1, False), lines, strict=True)
    ]


def test_scales_cover_what_they_promise() -> None:
    for field, values in {"n": {1_000, 1_000_000}, "p": {10, 1_000}, "epsilon": {0.1, 4.0}}.items():
        assert values <= {getattr(cell, field) for cell in CELLS["full"]}
    assert {cell.badly_scaled for cell in CELLS["quick"]} == {True, False}


def test_the_command_writes_the_map(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(regime_map, "measure_map", lambda *_, **__: json.loads(json.dumps(RESULTS)))
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    words = ["compare", "--map", "--out", str(tmp_path)]
    assert command.run(parser.parse_args(words)) == 0
    assert "objective" in capsys.readouterr().out
    assert json.loads((tmp_path / "map.json").read_text()) == RESULTS
    assert (tmp_path / "map.svg").read_text() == draw_map(RESULTS)
    assert command.run(parser.parse_args([*words, "--json"])) == 0
    assert json.loads(capsys.readouterr().out) == RESULTS
    assert len(map_lines(RESULTS)) == 1


def test_processes_measure_the_same(monkeypatch) -> None:
    monkeypatch.setitem(regime_map.CELLS, "quick", (SMALL,))
    done: list[int] = []
    found = regime_map.measure_map("quick", processes=1, keys=1, advance=done.append)
    assert done == [1]
    expected = {(line["limit"], line["method"]): line["excess"] for line in measure_cell(SMALL, 1, False)}
    assert {(line["limit"], line["method"]): line["excess"] for line in found["cells"][0]["lines"]} == expected
