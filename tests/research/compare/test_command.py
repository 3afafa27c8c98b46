"""``dpsco compare``: tables, JSON, a page, and no run repeated."""

from __future__ import annotations

import json

import pytest

from dpsco.cli import main
from dpsco.cli.compare import print_tables
from dpsco.methods import METHODS
from dpsco.research import compare as comparison
from dpsco.research.compare import FULL, MEDIUM, QUICK, compared_methods
from dpsco.research.compare.sections import excess_by_passes, excess_by_rounds, paper_table_costs
from dpsco.research.compare.single_run import PLANNED

from .conftest import TINY, Small


def test_the_command_writes_its_folder_and_repeats_no_run(
    small: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparison, "QUICK", TINY)
    command = ["compare", "--json", "--out", str(small.folder), "--jobs", "1", "--data", str(small.rows)]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["how"]["runs_made_now"] == 0
    assert printed["rounds"] == small.results["rounds"]
    assert json.loads((small.folder / "compare.json").read_text()) == printed
    for name in ("rounds", "table", "sizes", "outside", "passes", "file"):
        assert (small.folder / f"{name}.svg").read_text().startswith("<svg")


def test_the_tables_on_the_terminal_have_every_section(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(small.results)
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "Table 1, measured",
        "Ratios of excess risks",
        "Minimiser outside the set",
        "rows.npz",
        "the tuning is not covered",
    ):
        assert words in shown


def test_the_command_says_what_is_wrong(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--jobs", "0", "--out", str(small.folder)]) == 2
    assert "--jobs" in capsys.readouterr().err
    assert main(["compare", "--data", str(small.rows), "--label", "absent", "--out", str(small.folder)]) == 2
    assert "absent" in capsys.readouterr().err


def test_without_an_accountant_the_other_methods_are_compared_and_the_gap_is_named(
    small: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compared_methods, "find_spec", lambda name: None)
    for size in (QUICK, MEDIUM, FULL):
        tasks = excess_by_rounds.tasks(size) + excess_by_passes.tasks(size)
        named = {task.method.method for task in tasks} | {run.method for run in paper_table_costs.runs(size)}
        assert named - {PLANNED} < set(METHODS) - set(compared_methods.NEED_ACCOUNTANT)
    monkeypatch.setattr(comparison, "QUICK", TINY)
    assert main(["compare", "--out", str(small.folder), "--jobs", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in ("Left out: DP-SGD with Poisson batches and localized accelerated", "dpsco[accounting]"):
        assert words in said
        assert words in (small.folder / "compare.html").read_text()
