"""`--solver` of `dpsco fit` and `dpsco plan`: files that may be read again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dpsco
from dpsco.cli import main

PROMISE = ["--epsilon", "2", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 4)) / 3
    y = (rng.random(2_000) < 1 / (1 + np.exp(-4 * X[:, 0]))).astype(int)
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, X=X, y=y)
    return str(path)


def fitted(file, tmp_path, capsys, *more: str) -> dict[str, object]:
    assert main(["fit", file, *PROMISE, "--json", "--out", str(tmp_path / "m.json"), *more]) == 0
    report: dict[str, object] = json.loads(capsys.readouterr().out)["report"]
    return report


def test_auto_reads_files_again_where_that_is_predicted_to_win(file, tmp_path, capsys) -> None:
    report = fitted(file, tmp_path, capsys, "--solver", "auto", "--epsilon", "0.1")
    assert report["method"] == "objective-perturbation"
    assert report["needs"] == "convexity"
    assert main(["predict", str(tmp_path / "m.json"), file, "--out", str(tmp_path / "p.csv")]) == 0


@pytest.mark.parametrize("case", ["default", "rounds", "intervals", "checkpoint", "account"])
def test_what_belongs_to_one_pass_stays_one_pass(case, file, tmp_path, capsys) -> None:
    more = {
        "default": [],
        "rounds": ["--solver", "auto", "--rounds", "4"],
        "intervals": ["--solver", "auto", "--survey", "intervals"],
        "checkpoint": ["--solver", "auto", "--checkpoint", str(tmp_path / "run")],
        "account": ["--solver", "auto", "--account", str(tmp_path / "account.json")],
    }[case]
    if case == "account":
        dpsco.Account.create(tmp_path / "account.json", dpsco.Budget(3.0, 1e-5))
    assert fitted(file, tmp_path, capsys, *more)["needs"] == "clipping"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--solver", "sufficient-statistics"], "squared"),
        (["--solver", "objective-perturbation", "--rounds", "4"], "rounds"),
        (["--solver", "objective-perturbation", "--checkpoint", "run"], "checkpoint"),
    ],
)
def test_a_solver_that_cannot_do_it_is_refused_first(more, words, file, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", file, *PROMISE, "--out", str(tmp_path / "m.json"), *more]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "m.json").exists()


def test_the_plan_says_which_and_why(capsys) -> None:
    size = ["--rows", "500", "--dimension", "4"]
    assert main(["plan", *size, *PROMISE, "--solver", "auto"]) == 0
    said = capsys.readouterr().out
    assert "objective-perturbation" in said
    assert "least predicted" in said
    assert main(["plan", *size, *PROMISE, "--solver", "auto", "--rule", "response"]) == 0
    assert "Method: accelerated-srgd" in capsys.readouterr().out
    devices = ["--devices", "1e6", "--dimension", "4", *PROMISE]
    assert main(["plan", *devices, "--solver", "objective-perturbation"]) == 2
    assert "answers once" in capsys.readouterr().err
