"""A process that is asked to end, or made to: what it began goes on later, with the same model."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest


def _hearing() -> None:
    """A suite that runs in the background may be deaf to SIGINT, and its children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_fit_that_is_ended_goes_on_with_the_same_model(sign: signal.Signals, tmp_path) -> None:
    x = np.random.default_rng(0).standard_normal((20_000, 3))
    (tmp_path / "rows.csv").write_text(
        "a,b,c,y\n" + "".join(f"{a:.3f},{b:.3f},{c:.3f},{int(a > 0)}\n" for a, b, c in x)
    )

    def command(run) -> list[str]:
        options = "--label y --features a,b,c --epsilon 1 --delta 1e-6 --rounds 200 --rows 20000 --survey none"
        options += " --resume --json --shuffle 500"
        files = [str(tmp_path / "rows.csv"), "--checkpoint", str(run), "--out", str(run.with_suffix(".json"))]
        return [sys.executable, "-m", "dpsco.cli", "fit", *files, *options.split()]

    for attempt in range(5):  # a run may be faster than the signal
        run = tmp_path / f"run {attempt}"
        process = subprocess.Popen(
            command(run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_hearing
        )
        released = run / "released.bin"
        while process.poll() is None and not (released.exists() and released.stat().st_size > 3 * 64):
            time.sleep(0.001)
        process.send_signal(sign)
        told = process.communicate()[1]
        if process.returncode != 0:
            break
    assert process.returncode != 0
    if sign == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in told
    assert not run.with_suffix(".json").exists()
    twin = shutil.copytree(run, tmp_path / "twin")
    for folder in (run, twin):
        subprocess.run(command(folder), check=True, capture_output=True)
    assert run.with_suffix(".json").read_bytes() == twin.with_suffix(".json").read_bytes()
    assert released.read_bytes() == (twin / "released.bin").read_bytes()
