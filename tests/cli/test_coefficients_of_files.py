"""``dpsco fit`` and ``dpsco report`` on a raw table: one table of coefficients, in the units of its columns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpsco
from dpsco.cli import main
from dpsco.run.model_file import SavedModel

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

N = 30_000
NAMES = ["age", "log(1 + income / 1000)", "city=Nice", "city=Paris", "intercept"]
TRUTH = [0.05, 0.4, 0.5, -0.4, -4.0]
TASK = ["--label", "bought", "--classes", "no,yes", "--epsilon", "4", "--delta", "1e-6", "--rows", str(N)]
KINDS = ["--range", "age=18:120", "--range", "income=0:1e6", "--log", "income", "--categories", "city=Lyon|Nice|Paris"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 90, N),
            "income": rng.lognormal(10, 1, N),
            "city": rng.choice(["Lyon", "Nice", "Paris"], N),
        }
    )
    rows = [frame["age"], np.log1p(frame["income"] / 1000), frame["city"] == "Nice", frame["city"] == "Paris"]
    scores = np.column_stack([np.asarray(row, dtype=float) for row in rows]) @ TRUTH[:-1] + TRUTH[-1]
    frame["bought"] = np.where(rng.random(N) < 1 / (1 + np.exp(-scores)), "yes", "no")
    frame["spent"] = scores + rng.standard_normal(N)
    frame.to_parquet(place / "people.parquet")
    return place


def fit(folder: Path, *more: str, features: str = "age,income") -> list[str]:
    return ["fit", str(folder / "people.parquet"), "--features", features, *more, "--out", str(folder / "model.json")]


def test_fit_report_file_and_page_show_one_table_in_the_units_of_the_columns(folder, capsys) -> None:
    page, again = folder / "page.html", folder / "again.html"
    command = fit(folder, *TASK, *KINDS, "--drop", "first", "--survey", "intervals", "--html", str(page))
    assert main(command) == 0
    printed = capsys.readouterr().out
    saved = SavedModel.read(folder / "model.json")
    rows = saved.table.rows
    assert [row["name"] for row in rows] == NAMES
    for row, truth in zip(rows, TRUTH, strict=True):
        assert abs(row["estimate"] - truth) < 5 * row["standard_error"]
    assert str(saved.table) in printed
    assert main(["report", str(folder / "model.json"), "--html", str(again)]) == 0
    assert str(saved.table) in capsys.readouterr().out
    assert main(["report", str(folder / "model.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coefficients"] == saved.table.to_dict()
    for text in (page.read_text(), again.read_text()):
        assert "In the units of the columns, with 95 % intervals" in text
        assert f"<td>{rows[0]['low']:.4g}</td><td>{rows[0]['high']:.4g}</td>" in text
        assert text.count('class="bar"') == 4
        per_range = rows[0]["estimate"] * 102
        assert f"{per_range:.3g} ± {rows[0]['standard_error'] * 102:.2g}" in text


def test_the_table_is_that_of_an_estimator_on_the_same_rows(folder, capsys) -> None:
    assert main([*fit(folder, *TASK, *KINDS, "--drop", "city=Lyon", "--survey", "intervals", "--json")]) == 0
    body = json.loads(capsys.readouterr().out)["coefficients"]
    columns = dpsco.PublicColumns(
        ranges={"age": (18, 120), "income": (0, 1e6)},
        log=["income"],
        categories={"city": ["Lyon", "Nice", "Paris"]},
        drop="first",
    )
    model = dpsco.PrivateLogisticRegression(4.0, 1e-6, classes=["no", "yes"], columns=columns, survey="intervals")
    frame = pd.read_parquet(folder / "people.parquet")
    table = model.fit(frame, frame["bought"]).inference_.table()
    for ours, theirs in zip(body["rows"], table, strict=True):
        assert ours["name"] == theirs["name"]
        assert abs(ours["estimate"] - theirs["estimate"]) < 6 * ours["standard_error"]  # other noise and other order
        assert 0.5 < ours["standard_error"] / theirs["standard_error"] < 2


def test_a_regression_is_in_the_units_of_its_label(folder, capsys) -> None:
    task = ["--label", "spent", "--loss", "squared", "--label-bound", "20", "--epsilon", "4", "--delta", "1e-6"]
    assert main(fit(folder, *task, *KINDS, "--drop", "first", "--survey", "intervals", "--rows", str(N), "--json")) == 0
    for row, truth in zip(json.loads(capsys.readouterr().out)["coefficients"]["rows"], TRUTH, strict=True):
        assert abs(row["estimate"] - truth) < 5 * row["standard_error"]


@pytest.mark.parametrize(("survey", "reason"), [("none", "need a survey"), ("intervals", "--drop first")])
def test_without_intervals_there_are_coefficients_and_the_reason(folder, capsys, survey, reason) -> None:
    page = folder / "page.html"
    assert main(fit(folder, *TASK, *KINDS, "--survey", survey, "--html", str(page))) == 0
    printed = capsys.readouterr().out
    saved = SavedModel.read(folder / "model.json")
    assert [row["name"] for row in saved.table.rows] == ["age", NAMES[1], "city=Lyon", *NAMES[2:]]
    assert all(set(row) == {"name", "estimate"} for row in saved.table.rows)
    scale = saved.columns.units.slopes[0] / saved.feature_norm
    assert saved.table.rows[0]["estimate"] == pytest.approx(saved.result.model.coef[0] * scale)
    assert reason in saved.table.why
    assert str(saved.table) in printed
    text = page.read_text()
    assert "In the units of the columns<" in text
    assert f"<td>{saved.table.rows[0]['estimate']:.4g}</td>" in text


def test_odd_drops_are_refused_before_a_row_is_read(folder, capsys) -> None:
    for drop in (
        ["--drop", "last"],
        ["--drop", "city=Rome"],
        ["--drop", "age=1"],
        ["--drop", "first", "--drop", "a=b"],
    ):
        assert main(fit(folder, *TASK, *KINDS, *drop)) == 2
    dpsco.PublicColumns(["age"], categories={"city": ["Lyon", "Nice"]}, drop="first").write(folder / "columns.json")
    given = ["fit", str(folder / "people.parquet"), "--columns", str(folder / "columns.json"), *TASK]
    assert main([*given, "--drop", "first", "--out", str(folder / "model.json")]) == 2
    assert "--drop" in capsys.readouterr().err
