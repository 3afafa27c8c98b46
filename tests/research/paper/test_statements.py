"""Every statement of the paper has a check that runs, and the docs quote its findings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from dpsco.cli import main
from dpsco.research.paper import STATEMENTS, VERDICTS, Finding

LABELS = [statement.label for statement in STATEMENTS]
# alg, 6 theorems, 6 lemmas, 3 corollaries and the sketch: what the paper numbers.
KINDS = {"Algorithm": 1, "Theorem": 6, "Lemma": 6, "Corollary": 3, "Sketch": 1}
ERRATA = {"thm:excesspop-simplified", "lem:potDrop", "cor:dp-guarantee", "lem:sens"}


@cache
def finding(label: str, seed: int) -> Finding:
    return next(s for s in STATEMENTS if s.label == label).check(seed)


def test_every_numbered_statement_is_there() -> None:
    assert len(set(LABELS)) == len(LABELS)
    assert {kind: sum(s.kind == kind for s in STATEMENTS) for kind in KINDS} == KINDS


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("label", LABELS)
def test_the_check_runs_and_its_verdict_does_not_hang_on_the_seed(label: str, seed: int) -> None:
    found = finding(label, seed)
    assert found.verdict in VERDICTS
    assert (found.verdict == "erratum") == (label in ERRATA)
    assert found.instances >= 1
    assert found.sentence.endswith(".")


def test_the_structural_lemma_holds_without_the_lipschitz_and_the_diameter_term() -> None:
    figures = finding("lem:struct1", 1).figures
    assert figures["the same, sharper form"] <= 0
    assert figures["largest (left - right)"] <= 0


def test_the_printed_potential_rises_without_noise_and_the_corrected_one_never() -> None:
    figures = finding("lem:potDrop", 1).figures
    assert figures["rise of the printed potential, no noise"] > 0.003
    assert figures["rise of the corrected one"] <= 1e-12
    assert figures["largest (left - right), corrected potential"] <= 0
    assert figures["the same, sharper form"] <= 0


def test_the_simplified_theorem_lost_a_factor_of_the_horizon() -> None:
    figures = finding("thm:excesspop-simplified", 0).figures
    assert figures["growth exponent over the printed form"] == pytest.approx(1.0, abs=0.05)
    assert figures["largest over the corrected form"] < 1


def test_the_second_sensitivity_bound_is_exceeded_and_the_first_is_not() -> None:
    figures = finding("lem:sens", 0).figures
    assert figures["over the first bound"] < 1 < figures["over the printed second bound"]


def test_the_printed_noise_misses_its_delta() -> None:
    assert min(finding("cor:dp-guarantee", 0).figures.values()) > 5


def test_the_command_prints_every_statement_and_takes_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "lem:sens", "cor:dp-guarantee", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in printed["statements"]] == ["lem:sens", "cor:dp-guarantee"]
    assert main(["paper", "lem:btm"]) == 0
    assert "1 checked: 1 as printed, 0 up to a factor, 0 errata." in capsys.readouterr().out


def test_an_unknown_label_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "lem:none"]) == 2
    assert "lem:sens" in capsys.readouterr().err


def test_the_page_of_the_docs_has_every_statement_with_the_verdict_found() -> None:
    page = (Path(__file__).parents[3] / "docs" / "paper" / "statements.md").read_text()
    for statement in STATEMENTS:
        assert f"`{statement.label}` | {VERDICTS[finding(statement.label, 0).verdict]}" in page
