"""Commands on raw files: drafts of schemas, compressed and odd text files, refusals before a row is read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsco
from dpsco.cli import main
from dpsco.datasets import people

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--rows", "3000"]
TASK = ["--label", "bought", "--classes", "no,yes", *BUDGET]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pandas as pd

    place = tmp_path_factory.mktemp("raw")
    table = people(n=3_000)
    frame = pd.DataFrame({"user_id": np.arange(3_000), **table.columns, "bought": table.labels})
    frame.to_csv(place / "people.csv", index=False)
    frame.to_csv(place / "semicolon.csv", index=False, sep=";")
    frame.to_csv(place / "bare.csv", index=False, header=False)
    frame.to_json(place / "people.jsonl", orient="records", lines=True)
    text = (place / "people.csv").read_bytes()
    (place / "twice.csv").write_bytes(text.replace(b"user_id", b"age", 1))
    (place / "people.csv.gz").write_bytes(gzip.compress(text))
    (place / "people.csv.zst").write_bytes(pa.compress(text, codec="zstd", asbytes=True))
    (place / "lines.jsonl.gz").write_bytes(gzip.compress((place / "people.jsonl").read_bytes()))
    dpsco.PublicColumns(**table.declared).write(place / "columns.json")
    (place / "names").write_text(",".join(frame.columns))
    return place


def fit(data: Path, out: Path, *options: str) -> int:
    schema = ["--columns", str(data.parent / "columns.json")]
    return main(["fit", str(data), *TASK, *schema, "--out", str(out), "--json", *options])


def test_a_draft_of_json_lines_is_that_of_the_same_rows_in_csv(folder, tmp_path) -> None:
    """JSON lines state no columns: those of a public file are the keys that occur."""
    drafts = []
    for name in ("people.csv", "people.jsonl"):
        out = tmp_path / f"{name}.json"
        assert main(["columns", str(folder / name), "--label", "bought", "--out", str(out)]) == 0
        drafts.append(dpsco.PublicColumns.read(out).to_dict())
    assert drafts[0] == drafts[1]


def test_a_draft_says_what_a_file_lacks_and_begins_with_the_year_1(tmp_path, capsys) -> None:
    empty, early = tmp_path / "empty.csv", tmp_path / "early.csv"
    empty.write_text("a,b\n")
    assert main(["columns", str(empty), "--out", str(tmp_path / "c.json")]) == 2
    assert "no row" in capsys.readouterr().err
    early.write_text("a\n" + "\n".join(f"000{k % 8 + 2}-05-0{k % 9 + 1}" for k in range(40)) + "\n")
    assert main(["columns", str(early), "--out", str(tmp_path / "c.json")]) == 0
    assert dpsco.PublicColumns.read(tmp_path / "c.json").to_dict()["columns"][0]["range"][0] == "0001-01-01"


def test_a_draft_of_a_public_file_is_a_schema_to_fit_with(folder, tmp_path, capsys) -> None:
    out = tmp_path / "draft.toml"
    assert main(["columns", str(folder / "people.csv"), "--label", "bought", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "left out: user_id (looks like an id)" in said
    assert "must be public" in said
    columns = dpsco.PublicColumns.read(out)
    kinds = {entry["name"]: entry for entry in columns.to_dict()["columns"]}
    assert kinds["age"]["kind"] == "number"
    assert kinds["age"]["missing"]
    assert kinds["age"]["range"][0] == 0
    assert kinds["balance"]["range"][0] < 0
    assert kinds["clicks"]["log"]
    assert kinds["balance"]["log"]
    assert kinds["member"]["kind"] == "boolean"
    assert kinds["since"]["kind"] == "date"
    assert kinds["city"]["levels"] == ["Brest", "Lille", "Lyon", "Nice", "Paris"]
    assert "bought" not in kinds
    assert main(["columns", str(folder / "people.csv"), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"user_id": "looks like an id"}


def test_a_draft_leaves_codes_for_missing_cells_out_of_a_range(tmp_path, capsys) -> None:
    public, out = tmp_path / "public.csv", tmp_path / "columns.json"
    lines = [f"{20 + k % 60},{k % 9 - 1},{k - 50}" for k in range(100)]
    public.write_text("\n".join(["age,visits,balance", *lines, "-999,3,4"]) + "\n")
    assert main(["columns", str(public), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "check: age (-999 looks like a code" in said
    assert "check: visits (-1 looks like a code" in said
    assert "check: balance" not in said
    ranges = {entry["name"]: entry["range"][0] for entry in dpsco.PublicColumns.read(out).to_dict()["columns"]}
    assert ranges["age"] == ranges["visits"] == 0
    assert ranges["balance"] < -50


def test_every_kind_of_text_file_has_the_same_rows(folder, tmp_path, capsys) -> None:
    from dpsco.rows.file_stream import FileRows, Labels

    columns = dpsco.PublicColumns.read(folder / "columns.json")
    names = (folder / "names").read_text().split(",")
    kinds: dict[str, dict] = {
        "people.csv": {},
        "people.csv.gz": {},
        "people.csv.zst": {},
        "semicolon.csv": {"delimiter": ";"},
        "bare.csv": {"names": names},
        "people.jsonl": {},
        "lines.jsonl.gz": {},
    }
    seen = {}
    for name, how in kinds.items():
        chunks = list(FileRows(folder / name, Labels("bought", ("no", "yes")), columns, **how))
        seen[name] = [np.concatenate([part[k] for part in chunks]) for k in (0, 1)]
    for name in kinds:
        np.testing.assert_array_equal(seen[name][0], seen["people.csv"][0], err_msg=name)
        np.testing.assert_array_equal(seen[name][1], seen["people.csv"][1], err_msg=name)
    assert fit(folder / "people.csv.gz", tmp_path / "m.json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["headline"].startswith("Private: ")
    assert (
        main(["predict", str(tmp_path / "m.json"), str(folder / "lines.jsonl.gz"), "--out", str(tmp_path / "p")]) == 0
    )
    assert len((tmp_path / "p").read_text().splitlines()) == 3_001


def test_one_odd_line_of_json_changes_its_own_row(tmp_path) -> None:
    from dpsco.rows.file_stream import FileRows, Labels

    columns = dpsco.PublicColumns(ranges={"a": (0, 10)}, categories={"b": ["x", "1"]})
    lines = [{"a": k, "b": "x" if k % 2 else 1, "y": k % 2} for k in range(9)]
    clean = [json.dumps(line) for line in lines]
    path, rows = tmp_path / "rows.jsonl", []
    for odd in (
        clean[4],
        "",
        "no json",
        "[1, 2]",
        '{"a": "text", "b": [1], "y": {}}',
        '{"a": ' + "9" * 500 + "}",
        "[" * 9_000,
    ):
        path.write_text("\n".join([*clean[:4], odd, *clean[5:]]) + "\n")
        (chunk,) = FileRows(path, Labels("y", ("0", "1")), columns)
        rows.append([np.delete(part, 4, 0) for part in chunk])
        assert len(chunk[1]) == 9
    for features, labels in rows:
        np.testing.assert_array_equal(features, rows[0][0])
        np.testing.assert_array_equal(labels, rows[0][1])


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("people.csv", ["--label-bound", "3"], "--label-bound is for regressions"),
        ("people.csv", ["--loss", "huber"], "--classes is for classifiers"),
        ("people.csv", ["--range", "age=0:120"], "leave out --range"),
        ("people.csv", ["--max-rows-per-unit", "2"], "--unit and --max-rows-per-unit go together"),
        ("people.csv", ["--public-test", "none.csv"], "none.csv"),
        ("people.csv", ["--account", "none.json"], "dpsco account none.json"),
        ("people.csv", ["--label", "age"], "among the features: age"),
        ("people.csv", ["--unit", "age", "--max-rows-per-unit", "1"], "among the features: age"),
        ("people.csv", ["--rows", "0"], "--rows 0"),
        ("twice.csv", [], "see columns 1, 2"),
        ("semicolon.csv", [], "--delimiter ';'"),
        ("bare.csv", [], "first line"),
    ],
)
def test_contradictions_are_found_before_a_row_is_read(file, options, words, folder, tmp_path, capsys) -> None:
    assert fit(folder / file, tmp_path / "m.json", *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert not any(value in error for value in ("Lyon", "2010-"))


def test_a_file_of_names_alone_has_no_row(folder, tmp_path, capsys) -> None:
    names = tmp_path / "names.csv"
    names.write_text((folder / "names").read_text() + "\n")
    schema, budget = ["--columns", str(folder / "columns.json")], BUDGET[:4]
    task = ["--label", "bought", "--classes", "no,yes", *budget, *schema]
    assert main(["fit", str(names), *task, "--out", str(tmp_path / "m.json")]) == 2
    assert "There is no row in" in capsys.readouterr().err


def test_a_row_that_holds_the_name_of_the_label_is_not_quoted(tmp_path, capsys) -> None:
    """A file without a header line: its first row has the same cell twice, and one that reads like the label."""
    rows = tmp_path / "rows.csv"
    rows.write_text("secret,secret,y\n1,2,n\n")
    assert main(["fit", str(rows), "--features", "a", *BUDGET, "--out", str(tmp_path / "m.json")]) == 2
    said = capsys.readouterr().err
    assert "see columns 1, 2" in said
    assert "secret" not in said


def test_columns_that_nobody_declared_are_refused_by_name(folder, tmp_path, capsys) -> None:
    command = ["fit", str(folder / "people.csv"), *TASK, "--out", str(tmp_path / "m.json"), "--json"]
    assert main([*command, "--range", "age=0:120"]) == 2
    assert "The columns user_id, income, balance" in capsys.readouterr().err
    assert main([*command, "--features", "user_id,clicks", "--feature-norm", "3000"]) == 0
    error = capsys.readouterr().err
    assert "look like ids: user_id" in error
    assert "not used: columns age" in error
    stated = ["--names", (folder / "names").read_text(), "--range", "age=0:120"]
    assert main(["fit", str(folder / "bare.csv"), *command[2:], *stated]) == 2
    assert "The columns user_id, income, balance" in capsys.readouterr().err
    assert main([*command, "--features", "bought"]) == 2
    assert "among the features" in capsys.readouterr().err


def test_the_index_that_pandas_writes_is_no_feature_unless_it_is_asked_for(tmp_path, capsys) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400), "y": rng.integers(0, 2, 400)})
    command = ["--rows", "200", *BUDGET[:4], "--out", str(tmp_path / "m.json"), "--feature-norm", "3", "--json"]
    for name, table in (
        ("places", frame.sample(200)),
        ("people", frame.head(200).set_index(np.arange(200).astype(str))),
    ):
        table.to_parquet(tmp_path / f"{name}.parquet")
        assert main(["fit", str(tmp_path / f"{name}.parquet"), *command]) == 0
        assert "not used: columns __index_level_0__" in capsys.readouterr().err
        stated = json.loads((tmp_path / "m.json").read_text())["columns"]
        assert dpsco.PublicColumns.from_dict(stated).names == ("a", "b")
    assert main(["fit", str(tmp_path / "places.parquet"), *command, "--features", "a,__index_level_0__"]) == 0


def test_a_first_row_that_holds_the_name_of_the_label_is_not_printed_as_names(tmp_path, capsys) -> None:
    """ "y" is the default label, and what a column of yes and no may hold."""
    (tmp_path / "bare.csv").write_text("41.5,Cologne,y\n39.0,other,n\n")
    command = ["fit", str(tmp_path / "bare.csv"), "--classes", "y,n", *BUDGET, "--out", str(tmp_path / "m.json")]
    for options, code in (([], 2), (["--range", "41.5=0:100"], 2), (["--features", "41.5", "--json"], 0)):
        assert main([*command, *options]) == code
        told = capsys.readouterr()
        assert "Cologne" not in told.out + told.err


def test_the_plan_is_that_of_the_fit(folder, tmp_path, capsys) -> None:
    shared = [*BUDGET, "--classes", "no,yes", "--columns", str(folder / "columns.json"), "--survey", "none"]
    assert main(["plan", *shared, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    out = tmp_path / "m.json"
    assert main(["fit", str(folder / "people.csv"), "--label", "bought", *shared, "--out", str(out), "--json"]) == 0
    assert json.loads(out.read_text())["plan"] == plan


def test_label_and_features_are_listed_before_training(folder, tmp_path, capsys) -> None:
    shared = [*TASK, "--columns", str(folder / "columns.json"), "--out", str(tmp_path / "m.json")]
    assert main(["fit", str(folder / "people.csv"), *shared]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Label: bought (no or yes). Features: ")
    assert "balance" in first
    assert first.endswith("Not used: user_id.")


def test_an_account_is_charged(folder, tmp_path, capsys) -> None:
    account = dpsco.Account.create(tmp_path / "people.json", limit=dpsco.Budget(1.2, 1e-6))
    assert fit(folder / "people.csv", tmp_path / "m.json", "--account", str(account.path)) == 0
    assert account.epsilon == pytest.approx(1.0, rel=1e-6)
    assert fit(folder / "people.csv", tmp_path / "m.json", "--account", str(account.path)) == 2


def test_an_account_is_begun_and_shown(tmp_path, capsys) -> None:
    file = tmp_path / "people.json"
    assert main(["account", str(file)]) == 2
    assert main(["account", str(file), "--epsilon", "2"]) == 2
    assert main(["account", str(file), "--epsilon", "2", "--delta", "1e-6", "--max-rows-per-unit", "0"]) == 2
    assert "--delta" in capsys.readouterr().err
    assert main(["account", str(file), "--epsilon", "2", "--delta", "1e-6"]) == 0
    assert main(["account", str(file), "--epsilon", "2", "--delta", "1e-6"]) == 2
    assert "exists already" in capsys.readouterr().err
    dpsco.Account(file).charge("week 1", dpsco.Budget(1.0, 1e-6))
    assert main(["account", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["runs"] == 1
    assert shown["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert shown["left"] == pytest.approx(dpsco.Account(file).remaining().epsilon)
    dpsco.Account(file).charge("week 2", dpsco.Account(file).remaining())
    assert main(["account", str(file)]) == 0
    said = capsys.readouterr().out
    assert "2 runs" in said
    assert "left   nothing" in said


def test_help_loads_no_optional_package() -> None:
    script = "import sys, dpsco.cli; dpsco.cli.main(['columns', '--help'])"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert not any(f" {name}\n" in done.stderr for name in ("pyarrow", "pandas", "sklearn", "numba", "matplotlib"))


def test_help_loads_neither_methods_nor_planners() -> None:
    script = (
        "import contextlib, sys, dpsco.cli\nwith contextlib.suppress(SystemExit):\n    dpsco.cli.main(['--help'])\n"
    )
    script += "assert not {'dpsco.methods', 'dpsco.planning', 'dpsco.clipping', 'scipy', 'rich'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
