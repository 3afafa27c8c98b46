"""``dpsco plan``."""

from __future__ import annotations

import json

import pytest

from dpsco.cli import main

ARGUMENTS = ["plan", "--rows", "1e6", "--dimension", "100", "--epsilon", "1", "--delta", "1e-7", "--radius", "10"]


def test_plan_prints_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--survey", "none"]) == 0
    text = capsys.readouterr().out
    for words in (
        "Predicted excess risk",
        "if one thing doubled",
        "Snowball-SGD",
        "bytes per round",
        "localized AC-SA",
    ):
        assert words in text


def test_plan_as_json_at_a_billion_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--rows", "1e9", "--delta", "1e-10", "--rounds", "16", "--json", "--survey", "none"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["plan"]["method"]["rounds"] == 16
    assert body["plan"]["n"] == 10**9
    assert set(body["doubling"]) == {"n", "epsilon", "rounds"}
    total = sum(body["plan"]["prediction"].values())
    assert all(value < total for value in body["doubling"].values())
    assert len(body["methods"]) == 8


@pytest.mark.parametrize("loss", ["squared", "huber", "smoothed-hinge", "softmax"])
def test_every_loss(loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    classes = ["--classes", "a,b,c"] if loss == "softmax" else []
    assert main([*ARGUMENTS, "--loss", loss, *classes]) == 0
    assert f"{loss} loss" in capsys.readouterr().out


def test_a_vacuous_theorem_is_an_answer_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--rows", "60000", "--delta", "1e-5", "--rule", "theorem-1"]) == 2
    assert "Vacuous" in capsys.readouterr().err


def test_wrong_arguments_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--rows", "1.5"]) == 2
    assert "whole number" in capsys.readouterr().err
