"""kill -9 at random moments of a file-backed run, then --resume: the same model, byte for byte."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROUNDS, ROWS = 60, 30_000


def command(folder: Path, run: Path) -> list[str]:
    options = f"--label y --features a,b,c --epsilon 1 --delta 1e-6 --rounds {ROUNDS} --rows {ROWS}"
    options += " --shuffle 1000 --resume --json"
    options += " --survey none"  # 60 rounds to be killed in; tests/run/test_surveyed.py kills surveyed runs
    arguments = [str(folder / "rows.csv"), *options.split(), "--checkpoint", str(run), "--out", str(model(run))]
    return [sys.executable, "-m", "dpsco.cli", "fit", *arguments]


def model(run: Path) -> Path:
    return run.with_name(f"{run.name}.json")


def released(run: Path) -> bytes:
    path = run / "released.bin"
    return path.read_bytes() if path.exists() else b""


def start_and_kill(folder: Path, run: Path, rounds: int, delay: float) -> None:
    """Run until ``rounds`` rounds are on disk and a little longer, then kill -9."""
    process = subprocess.Popen(command(folder, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    record = 8 * 4 + 32
    while process.poll() is None and len(released(run)) < rounds * record:
        time.sleep(0.0005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


def kill_and_resume(folder: Path, kills: int) -> None:
    rng = np.random.default_rng()
    x = np.random.default_rng(0).standard_normal((ROWS, 3))
    lines = (f"{a:.4f},{b:.4f},{c:.4f},{int(a > 0)}" for a, b, c in x)
    (folder / "rows.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    first = folder / "first"
    start_and_kill(folder, first, 1, 0.0)  # a run begun: its key is on disk, and every copy goes on with that key
    assert 0 < len(released(first)) < ROUNDS * 64
    whole = shutil.copytree(first, folder / "whole")
    subprocess.run(command(folder, whole), check=True, capture_output=True)
    wanted = model(whole).read_bytes()
    caught = 0
    for k in range(kills):
        run = shutil.copytree(first, folder / f"run {k}")
        start_and_kill(folder, run, int(rng.integers(1, ROUNDS)), float(rng.uniform(0, 0.01)))
        before = released(run)
        caught += not model(run).exists()
        complete = len(before) // 64 * 64
        assert before[:complete] == released(whole)[:complete]
        subprocess.run(command(folder, run), check=True, capture_output=True)
        assert model(run).read_bytes() == wanted
        assert released(run) == released(whole)
        assert (run / "secret.json").stat().st_mode & 0o777 == 0o600
    assert caught >= kills // 2


def test_five_kills(tmp_path) -> None:
    kill_and_resume(tmp_path, 5)


@pytest.mark.slow
def test_fifty_kills(tmp_path) -> None:
    kill_and_resume(tmp_path, 50)


def test_other_rows_or_options_are_refused_on_resume(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"{a:.3f},{b:.3f},{c:.3f},{int(a > 0)}\n" for a, b, c in rng.standard_normal((ROWS, 3)))
    (tmp_path / "rows.csv").write_text("a,b,c,y\n" + rows)
    run = tmp_path / "run"
    start_and_kill(tmp_path, run, 3, 0.0)
    again = command(tmp_path, run)
    changed = subprocess.run([*again, "--radius", "7"], capture_output=True, text=True)
    assert changed.returncode == 2
    assert "another run" in changed.stderr
    (tmp_path / "rows.csv").write_text("a,b,c,y\n" + rows.replace("1,", "2,"))
    changed = subprocess.run(again, capture_output=True, text=True)
    assert changed.returncode == 2
    assert "other rows" in changed.stderr
