"""What the end of a command needs is looked for before its first row: nothing is spent on a run that cannot be kept."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import dpsco
from dpsco.cli import main
from dpsco.json_files import check_writable
from dpsco.run.model_file import SavedModel


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"0.{i % 7},0.{i % 3},{i % 2}\n" for i in range(400)))
    return path


def fit(rows: Path, *options: str) -> int:
    return main(["fit", str(rows), "--label", "y", "--epsilon", "1", "--delta", "1e-6", *options])


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(dpsco, "train", trained)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("option", ["--out", "--html", "--checkpoint"])
def test_a_place_that_cannot_be_written_is_found_before_training(
    option: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands where a folder would have to be made, which stops root too."""
    (tmp_path / "file").write_text("")
    places = {"--out": tmp_path / "model.json", option: tmp_path / "file" / "deep" / "place"}
    assert fit(rows, *(str(word) for pair in places.items() for word in pair)) == 2
    said = capsys.readouterr().err
    assert option in said
    assert "Nothing was read or spent" in said


@pytest.mark.usefixtures("no_training")
def test_no_command_writes_over_a_file_that_it_reads(rows: Path, tmp_path: Path, capsys) -> None:
    before, out = rows.read_bytes(), str(tmp_path / "model.json")
    features = ["--features", "a,b"]
    assert fit(rows, *features, "--out", str(rows)) == 2
    assert fit(rows, *features, "--out", out, "--html", str(tmp_path / "." / "model.json")) == 2
    assert fit(rows, *features, "--out", out, "--public-test", str(rows), "--html", str(rows)) == 2
    assert main(["columns", str(rows), "--out", str(rows)]) == 2
    assert main(["predict", out, str(rows), "--out", str(rows)]) == 2
    assert main(["predict", out, str(rows), "--out", out]) == 2
    assert main(["report", out, "--html", out]) == 2
    assert capsys.readouterr().err.count("would be lost") == 7
    assert rows.read_bytes() == before


@pytest.mark.usefixtures("no_training")
def test_no_command_writes_over_a_file_that_it_reads_by_a_folder_or_a_glob(rows: Path, tmp_path: Path, capsys) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in ("0.csv", "1.csv"):
        (parts / name).write_bytes(rows.read_bytes())
    (tmp_path / "link.json").symlink_to(parts / "0.csv")
    out, features = str(tmp_path / "model.json"), ["--features", "a,b"]
    for data in (parts, parts / "*.csv"):
        assert fit(data, *features, "--out", str(parts / "1.csv")) == 2
        assert fit(data, *features, "--out", str(tmp_path / "link.json")) == 2
        assert fit(rows, *features, "--out", out, "--public-test", str(data), "--html", str(parts / "0.csv")) == 2
        assert main(["predict", out, str(data), "--out", str(parts / "0.csv")]) == 2
        assert main(["columns", str(data), "--out", str(parts / "0.csv")]) == 2
        assert main(["audit", "my.py:oracle", "--data", str(data), "--html", str(parts / "0.csv")]) == 2
    assert main(["audit", f"{rows}:oracle", "--html", str(rows)]) == 2
    assert capsys.readouterr().err.count("would be lost") == 13
    assert all((parts / name).read_bytes() == rows.read_bytes() for name in ("0.csv", "1.csv"))


@pytest.mark.usefixtures("no_training")
def test_no_output_is_in_the_folder_of_the_checkpoint(rows: Path, tmp_path: Path, capsys) -> None:
    run, out = tmp_path / "run", tmp_path / "model.json"
    (tmp_path / "other").symlink_to(run)
    options = ["--features", "a,b", "--checkpoint", str(run)]
    for inside in (run / "secret.json", run / "rounds" / "run.json", tmp_path / "other" / "model.json"):
        assert fit(rows, *options, "--out", str(inside)) == 2
        assert fit(rows, *options, "--out", str(out), "--html", str(inside)) == 2
    assert capsys.readouterr().err.count("folder of the checkpoint") == 6
    assert not run.exists()


@pytest.mark.usefixtures("no_training")
def test_a_folder_in_the_place_of_the_model_is_found_before_training(rows: Path, tmp_path: Path) -> None:
    assert fit(rows, "--out", str(tmp_path)) == 2


@pytest.mark.usefixtures("no_training")
def test_a_missing_extra_is_found_before_training(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(
        "dpsco.cli.checks.find_spec", lambda name: None if name == "matplotlib" else original(name), raising=True
    )
    assert fit(rows, "--out", str(tmp_path / "m.json"), "--html", str(tmp_path / "page.html")) == 2
    assert "dpsco[report]" in capsys.readouterr().err
    assert main(["demo", "--rows", "1000", "--out", str(tmp_path / "demo")]) == 2
    assert main(["audit", "logistic", "--html", str(tmp_path / "page.html")]) == 2


@pytest.mark.usefixtures("no_training")
def test_public_test_rows_that_are_not_there_are_found_before_training(rows: Path, tmp_path: Path) -> None:
    assert fit(rows, "--out", str(tmp_path / "m.json"), "--public-test", str(tmp_path / "none.csv")) == 2


@pytest.mark.usefixtures("no_training")
def test_public_test_rows_without_a_column_of_the_model_are_found_before_training(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.csv").write_text("a,y\n0.1,1\n")
    options = ("--features", "a,b", "--out", str(tmp_path / "m.json"))
    assert fit(rows, *options, "--public-test", str(tmp_path / "test.csv")) == 2
    assert "'b'" in capsys.readouterr().err


def test_a_public_test_file_with_a_damaged_end_takes_away_neither_report_nor_page(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first rows are in order: the damage is met behind the run, whose budget is spent."""
    monkeypatch.setattr("dpsco.rows.readers.csv.BLOCK_BYTES", 1 << 10)
    (tmp_path / "test.csv").write_text(rows.read_text() + "1,2,3,4,5\n")
    out = tmp_path / "m.json"
    assert fit(rows, "--features", "a,b", "--out", str(out), "--public-test", str(tmp_path / "test.csv"), "--json") == 0
    said = capsys.readouterr()
    assert "could not be measured on --public-test" in said.err
    assert json.loads(said.out)["reached"] == {}
    assert out.exists()


def test_a_full_disk_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="bytes are free"):
        check_writable(tmp_path / "model.json", "the model", room=1 << 62)


@pytest.mark.usefixtures("no_training")
def test_the_room_that_a_model_with_a_survey_takes_is_looked_for(
    rows: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    """It holds what its survey released: of many columns more than of few."""
    rest, free = ("--range", "b=0:1", "--rows", "100000", "--survey", "full"), SimpleNamespace(free=100_000)
    monkeypatch.setattr("dpsco.json_files.shutil.disk_usage", lambda _: free)
    assert fit(rows, "--out", str(tmp_path / "model.json"), "--hashed", "a=200", *rest) == 2
    assert "bytes are free" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="training began"):
        fit(rows, "--out", str(tmp_path / "model.json"), "--hashed", "a=8", *rest)


def test_a_model_that_finds_no_room_at_the_end_is_not_lost(rows: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Its budget is spent, and a second run would spend another one."""
    write, out, elsewhere = SavedModel.write, tmp_path / "model.json", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))

    def full(model: SavedModel, path: Path) -> Path:
        if path == out:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(model, path)

    monkeypatch.setattr(SavedModel, "write", full)
    assert fit(rows, "--out", str(out), "--features", "a,b", "--json") == 0
    said = capsys.readouterr()
    (kept,) = elsewhere.glob("dpsco-*.json")
    assert str(kept) in said.err
    assert json.loads(said.out)["model"] == str(kept)
    assert SavedModel.read(kept).result.report.private


def test_checking_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("before")
    check_writable(path, "the model")
    check_writable(tmp_path / "new" / "folder" / "model.json", "the model")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.json"]
