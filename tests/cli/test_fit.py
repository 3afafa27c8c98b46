"""`dpsco fit`, `predict` and `report` from a shell: files in, a private model, predictions and a page out."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dpsco.cli import main
from dpsco.run.model_file import SavedModel

PROMISE = ["--epsilon", "1", "--delta", "1e-6"]
COLUMNS = [
    "--features",
    "age,hours",
    "--range",
    "age=0:100",
    "--range",
    "hours=0:80",
    "--categories",
    "city=Lyon|Paris",
]
CLASSES = ["--label", "income", "--classes", "low,high"]


def people(n: int = 12_000, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    age, hours, city = rng.uniform(18, 90, n), rng.uniform(0, 80, n), rng.choice(["Lyon", "Paris", "Nice"], n)
    score = 0.08 * (age - 50) + 0.05 * (hours - 40) + (city == "Paris")
    income = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "high", "low")
    return pa.table({"age": age, "hours": hours, "city": city, "income": income, "person": rng.integers(0, n, n)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("data")
    pq.write_table(people(), folder / "people.parquet")
    pq.write_table(people(seed=1), folder / "test.parquet")
    pa_csv.write_csv(people(), folder / "people.csv")
    return folder


def test_from_a_table_to_a_model_predictions_and_a_page(folder, tmp_path, capsys) -> None:
    out, page = tmp_path / "model.json", tmp_path / "page.html"
    command = ["fit", str(folder / "people.parquet"), *CLASSES, *PROMISE, *COLUMNS, "--out", str(out)]
    assert main([*command, "--html", str(page), "--public-test", str(folder / "test.parquet"), "--json"]) == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert "12,000 rows were counted" in captured.err
    assert said["report"]["private"]
    assert float(said["reached"]["accuracy"]) > 0.7
    html = page.read_text()
    for words in ("Private", "Who is protected?", "accuracy", "one row", "plus one in 1,000,000", "delta = 1e-06"):
        assert words in html
    assert "NOT PRIVATE" not in html
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', html)
    predictions = tmp_path / "predictions.csv"
    assert main(["predict", str(out), str(folder / "test.parquet"), "--out", str(predictions)]) == 0
    with predictions.open() as file:
        rows = list(csv.DictReader(file))
    truth = people(seed=1)["income"].to_pylist()
    accuracy = np.mean([row["prediction"] == label for row, label in zip(rows, truth, strict=True)])
    assert f"{accuracy:.4f}" == said["reached"]["accuracy"]
    assert float(rows[0]["probability_low"]) + float(rows[0]["probability_high"]) == pytest.approx(1.0)


def test_the_report_of_a_model_file_in_every_form(folder, tmp_path, capsys) -> None:
    out = tmp_path / "model.json"
    assert main(["fit", str(folder / "people.csv"), *CLASSES, *PROMISE, *COLUMNS, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "PRIVATE" in text
    assert "rounds" in text
    assert main(["report", str(out)]) == 0
    assert "(1, 1e-06)-DP" in capsys.readouterr().out
    assert main(["report", str(out), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Privacy report")
    page = tmp_path / "page.html"
    assert main(["report", str(out), "--json", "--html", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["epsilon"] == 1.0
    assert page.read_text().count("<figure") == 2


def test_what_is_not_private_is_off_by_default_and_marked(folder, tmp_path, capsys) -> None:
    page = tmp_path / "page.html"
    command = ["fit", str(folder / "people.csv"), *CLASSES, *PROMISE, *COLUMNS, "--out", str(tmp_path / "m.json")]
    assert main([*command, "--html", str(page), "--not-private", "--json"]) == 0
    html = page.read_text()
    assert html.count("NOT PRIVATE") >= 3
    assert "rows clipped" in html
    assert "rows clipped" not in (tmp_path / "m.json").read_text()


def test_a_complete_run_is_not_read_with_other_classes_or_ranges(folder, tmp_path, capsys) -> None:
    """Its parameters would mean something else: the classes swapped, or a column in another unit."""
    out, run = tmp_path / "model.json", ["--checkpoint", str(tmp_path / "run")]
    label, rest = ["--label", "income", "--classes"], [*PROMISE, "--features", "age", "--rows", "12000", *run]
    command = ["fit", str(folder / "people.csv"), *rest, "--out", str(out), "--json"]
    assert main([*command, *label, "low,high", "--range", "age=0:100"]) == 0
    kept = out.read_bytes()
    for classes, ages in (("high,low", "age=0:100"), ("low,high", "age=0:1000")):
        assert main([*command, *label, classes, "--range", ages, "--resume"]) == 2
        assert "other columns, labels" in capsys.readouterr().err
    assert main([*command, *label, "low,high", "--range", "age=0:100", "--resume"]) == 0
    assert out.read_bytes() == kept


def test_csv_and_parquet_of_the_same_rows_and_units(folder, tmp_path, capsys) -> None:
    for name in ("people.csv", "people.parquet"):
        command = ["fit", str(folder / name), *CLASSES, *PROMISE, *COLUMNS, "--out", str(tmp_path / f"{name}.json")]
        assert main([*command, "--unit", "person", "--max-rows-per-unit", "2", "--rows", "12000", "--json"]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["report"]["records"] == 2
        assert "counted" not in said.err
    models = [SavedModel.read(tmp_path / f"{name}.json") for name in ("people.csv", "people.parquet")]
    assert models[0].columns == models[1].columns
    assert models[0].result.plan == models[1].result.plan


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        ("smoothed-hinge", CLASSES),
        ("softmax", ["--label", "city", "--classes", "Lyon,Paris,Nice"]),
        ("huber", ["--label", "hours"]),
    ],
)
def test_other_losses(loss, more, folder, tmp_path, capsys) -> None:
    out = tmp_path / "model.json"
    features = ["--range", "age=0:100", "--features", "age"]
    bound = ["--label-bound", "80"] if loss == "huber" else []
    command = ["fit", str(folder / "people.parquet"), *PROMISE, "--loss", loss, *more, *features, *bound]
    assert main([*command, "--out", str(out), "--public-test", str(folder / "test.parquet"), "--json"]) == 0
    reached = json.loads(capsys.readouterr().out)["reached"]
    assert ("R^2" if loss == "huber" else "accuracy") in reached
    assert main(["predict", str(out), str(folder / "test.parquet")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12_001
    assert lines[0].startswith("prediction")


def test_matrices(tmp_path, capsys) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3_000, 5)), rng.integers(0, 2, 3_000)
    np.savez(tmp_path / "rows.npz", X=x, y=y)
    np.savez(tmp_path / "new.npz", X=x[:10])
    lines = [" ".join([str(b), *(f"{j + 1}:{v}" for j, v in enumerate(row))]) for row, b in zip(x, y, strict=True)]
    (tmp_path / "rows.libsvm").write_text("\n".join(lines) + "\n")
    out = str(tmp_path / "model.json")
    assert main(["fit", str(tmp_path / "rows.npz"), *PROMISE, "--out", out, "--json"]) == 0
    assert main(["predict", out, str(tmp_path / "new.npz"), "--out", str(tmp_path / "p.csv"), "--json"]) == 0
    assert main(["fit", str(tmp_path / "rows.libsvm"), *PROMISE, "--dimension", "5", "--out", out, "--json"]) == 0
    assert SavedModel.read(out).columns == 5
    assert main(["predict", out, str(tmp_path / "rows.libsvm"), "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["fit", str(tmp_path / "rows.libsvm"), *PROMISE, "--out", out]) == 2
    assert "--dimension" in capsys.readouterr().err


def test_many_hash_buckets(folder, tmp_path, capsys) -> None:
    out = str(tmp_path / "model.json")
    command = ["fit", str(folder / "people.parquet"), *CLASSES, *PROMISE, *COLUMNS, "--hashed", "person=20000"]
    assert main([*command, "--out", out, "--public-test", str(folder / "test.parquet"), "--json"]) == 0
    assert float(json.loads(capsys.readouterr().out)["reached"]["accuracy"]) > 0.6
    assert main(["predict", out, str(folder / "test.parquet")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12_001


WRONG = {
    "no file": (["none.csv", *CLASSES, *PROMISE], "none.csv"),
    "no column": (["people.csv", "--label", "salary", *PROMISE, "--features", "age"], "salary"),
    "no feature": (["people.csv", *CLASSES, *PROMISE, "--features", "weight"], "weight"),
    "range": (["people.csv", *CLASSES, *PROMISE, "--range", "age=0"], "age=0:100"),
    "form": (["people.csv", *CLASSES, *PROMISE, "--range", "age"], "COLUMN=VALUE"),
    "hash": (["people.csv", *CLASSES, *PROMISE, "--hashed", "city=many"], "city=64"),
    "epsilon": (["people.csv", *CLASSES, "--epsilon", "-1", "--delta", "1e-6"], "epsilon"),
    "resume": (["people.csv", *CLASSES, *PROMISE, "--resume"], "--checkpoint"),
    "bound": (["people.csv", "--label", "age", *PROMISE, "--loss", "huber"], "--label-bound"),
    "classes": (["people.csv", *PROMISE, "--loss", "softmax"], "--classes"),
    "three": (["people.csv", *PROMISE, "--classes", "a,b,c"], "softmax"),
    "unit": (["people.csv", *CLASSES, *PROMISE, "--unit", "person"], "max"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_exits_with_2_and_says_what_to_do(case, folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    arguments, words = WRONG[case]
    assert main(["fit", *arguments, "--out", str(tmp_path / "m.json"), "--rows", "100"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert not (tmp_path / "m.json").exists()


def test_a_sorted_file_is_warned_of_unless_mixed(folder, tmp_path, capsys) -> None:
    command = [
        "fit",
        str(folder / "people.csv"),
        *CLASSES,
        *PROMISE,
        *COLUMNS,
        "--out",
        str(tmp_path / "m.json"),
        "--json",
    ]
    for block, words in (("0", "order of the files"), ("1000", "blocks of 1,000"), ("12000", None)):
        assert main([*command, "--shuffle", block]) == 0
        error = capsys.readouterr().err
        assert ("sorted" in error) == (words is not None)
        assert words is None or words in error


@pytest.mark.parametrize("command", ["fit", "predict", "report"])
def test_help_teaches(command, capsys) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert len(capsys.readouterr().out) > 600


def test_optional_packages_are_loaded_on_first_use() -> None:
    script = (
        "import dpsco, dpsco.cli.fit, sys; print([m for m in ('sklearn', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_damaged_model_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "model.json").write_text("{}")
    assert main(["report", str(tmp_path / "model.json")]) == 2
    assert main(["predict", str(tmp_path / "model.json"), "x.csv"]) == 2
    assert "damaged" in capsys.readouterr().err


def test_predictions_go_through_no_link_and_into_no_other_file(folder, tmp_path) -> None:
    out, predictions = tmp_path / "model.json", tmp_path / "p.csv"
    assert main(["fit", str(folder / "people.parquet"), *CLASSES, *PROMISE, *COLUMNS, "--out", str(out)]) == 0
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "p.csv.new").symlink_to(victim)
    predictions.symlink_to(victim)
    assert main(["predict", str(out), str(folder / "test.parquet"), "--out", str(predictions)]) == 0
    assert victim.read_text() == "mine"
    assert not predictions.is_symlink()
    assert predictions.read_text().startswith("prediction")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "p.csv", "p.csv.new", "victim"]


def test_predictions_that_fail_leave_what_was_there(folder, tmp_path) -> None:
    out, predictions, rows = tmp_path / "model.json", tmp_path / "p.csv", tmp_path / "rows.csv"
    assert main(["fit", str(folder / "people.parquet"), *CLASSES, *PROMISE, *COLUMNS, "--out", str(out)]) == 0
    predictions.write_text("earlier")
    rows.write_text("other,columns\n1,2\n")
    assert main(["predict", str(out), str(rows), "--out", str(predictions)]) == 2
    assert predictions.read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "p.csv", "rows.csv"]
