"""On a real Dask cluster: the model of one process, whatever the workers are and whatever becomes of them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.engines.on_dask.conftest import ISOLATED, isolated

LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def found(*arguments: str) -> dict:
    done = isolated(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_one_process_and_one_and_four_workers_give_the_same_bits(table) -> None:
    run = found("bits", str(table))
    assert {name: same for name, same in run.items() if "shuffle" in name} == {
        f"{workers} workers, shuffle {how}": True for workers in (1, 4) for how in ("0", "1500", "1500, surveyed")
    }
    one, four = run["models without noise"]
    assert one == four
    np.testing.assert_allclose(one, run["exact model"], rtol=1e-12)
    assert set(run["listening"]) <= LOOPBACK
    assert any("scheduler and workers" in text for text in run["assumptions"])
    assert not any("caller's oracle" in text for text in run["assumptions"])


def test_a_worker_killed_in_the_middle_of_a_round_changes_nothing(table, tmp_path) -> None:
    assert found("killed", str(table), str(tmp_path)) == {"died": True, "same": True}


@pytest.mark.slow
def test_rows_that_no_worker_survives_stop_the_run_and_it_can_be_resumed(table, tmp_path) -> None:
    run = found("hopeless", str(table), str(tmp_path))
    assert "Several workers died" in run["error"]
    assert run["same"]


@pytest.mark.slow
def test_a_file_that_cannot_be_read_stops_the_run_and_mended_it_goes_on(table, tmp_path) -> None:
    run = found("unreadable", str(table), str(tmp_path))
    assert "part-2.parquet" in run["stopped"]
    assert 0 < run["released"] < 6 * (8 * 7 + 32)
    assert run["missing"] == 12_500 - (20_000 - run["planned"])
    assert run["same"]


def fit(table: Path, run: Path, *more: str) -> list[str]:
    options = "--label bought --classes no,yes --features x0,x1 --epsilon 1 --delta 1e-6 --rounds 60 --resume --json"
    arguments = [str(table), *options.split(), "--checkpoint", str(run), "--out", str(run.with_suffix(".json")), *more]
    return [*ISOLATED, sys.executable, "-m", "dpsco.cli", "fit", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize(("survey", "ledger"), [("none", "."), ("full", "rounds")])
def test_a_killed_driver_resumes_on_a_cluster_or_in_one_process(table, tmp_path, survey: str, ledger: str) -> None:
    begun = tmp_path / "begun"
    process = subprocess.Popen(fit(table, begun, "--survey", survey, "--local-cluster", "2"), stdout=subprocess.DEVNULL)
    records, deadline = begun / ledger / "released.bin", time.monotonic() + 120
    while time.monotonic() < deadline and not (records.exists() and records.stat().st_size > 5 * (8 * 3 + 32)):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = records.read_bytes()
    assert before
    models = []
    for where in ((), ("--local-cluster", "1")):
        run = shutil.copytree(begun, tmp_path / f"run {len(where)}")
        subprocess.run(fit(table, run, "--survey", survey, *where), check=True, capture_output=True, timeout=120)
        models.append(json.loads(run.with_suffix(".json").read_text())["parameters"])
        after = (run / ledger / "released.bin").read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
    assert models[0] == models[1]


@pytest.mark.slow
def test_the_example_shows_the_same_bits() -> None:
    example = Path(__file__).parents[3] / "examples" / "cluster" / "people.py"
    done = subprocess.run([*ISOLATED, sys.executable, str(example)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bit for bit: True" in done.stdout


@pytest.mark.slow
def test_a_scheduler_and_workers_with_tls_as_the_page_configures_them(table, tmp_path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    run = found("with_tls", str(table), str(tmp_path))
    assert run["fit"] == 0
    assert run["without certificates"] == 2
    assert run["parameters"] == 3
    assert set(run["listening"]) <= LOOPBACK


def test_the_command_says_what_is_wrong(table, tmp_path, capsys) -> None:
    from dpsco.cli import main

    (tmp_path / "rows.csv").write_text("x,y\n1,0\n0,1\n" * 50)
    common = ["--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "m.json"), "--local-cluster", "1"]
    assert main(["fit", str(tmp_path / "rows.csv"), "--features", "x", *common]) == 2
    assert "Parquet" in capsys.readouterr().err
    unit = ["--label", "bought", "--classes", "no,yes", "--unit", "city", "--max-rows-per-unit", "2"]
    assert main(["fit", str(table), *common, *unit]) == 2
    assert "--unit" in capsys.readouterr().err


@pytest.mark.slow
def test_an_address_without_a_scheduler_is_an_error_of_its_own(table, tmp_path) -> None:
    command = [*ISOLATED, sys.executable, "-m", "dpsco.cli", "fit", str(table), "--features", "x0,x1"]
    options = [
        "--label",
        "bought",
        "--classes",
        "no,yes",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--cluster",
        "tcp://127.0.0.1:1",
    ]
    done = subprocess.run([*command, *options, "--out", str(tmp_path / "m")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no Dask scheduler" in done.stderr
