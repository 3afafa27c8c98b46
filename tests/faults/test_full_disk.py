"""A disk that is full in the middle of a run: it stops, nothing is lost, and with room again it ends the same.

The disk is a real one: a tmpfs of a few pages in a mount namespace of its own, filled by another file.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import dpsco

_PROGRAM = """
import errno, json, subprocess, sys
from pathlib import Path
import numpy as np
import dpsco

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], check=True)
rows = np.random.default_rng(0).standard_normal((600, 400))
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 400)
plan = dpsco.Plan(problem, 600, dpsco.Budget(1.0, 1e-6), rounds=12, beta=1.0, clip=1.0)

def run(**how):
    stream = dpsco.stream(rows, (rows[:, 0] > 0).astype(float))
    return dpsco.train(plan, stream, key=bytes(32), **how).model.coef

ballast = folder / "ballast"
ballast.write_bytes(bytes(int(sys.argv[2])))
stopped = None
try:
    run(checkpoint=folder / "run")
except OSError as error:
    stopped = errno.errorcode[error.errno]
left = sorted(p.name for p in (folder / "run").iterdir()) if (folder / "run").exists() else []
ballast.unlink()
same = bool(np.array_equal(run(checkpoint=folder / "run", resume=True), run()))
print(json.dumps({"stopped": stopped, "left": left, "same": same}))
"""


def in_a_small_disk(folder, ballast: int) -> dict:
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        sys.executable,
        "-c",
        _PROGRAM,
        str(folder),
        str(ballast),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("this system allows no mount namespace of one's own")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "ballast", [pytest.param(90_000, marks=pytest.mark.slow), 104_000, pytest.param(116_000, marks=pytest.mark.slow)]
)
def test_a_run_that_meets_a_full_disk_stops_and_goes_on_when_there_is_room(ballast: int, tmp_path) -> None:
    told = in_a_small_disk(tmp_path, ballast)
    assert told["stopped"] == "ENOSPC"
    assert not [name for name in told["left"] if name.endswith(".new")]
    assert told["same"]


def test_a_file_that_may_not_grow_leaves_the_old_one_whole(tmp_path) -> None:
    """RLIMIT_FSIZE: the write fails half-way, and what was there before is still there."""
    program = (
        "import resource, signal, sys; from pathlib import Path; from dpsco.files import write_atomic\n"
        "path = Path(sys.argv[1]); write_atomic(path, b'old')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_atomic(path, bytes(5000))\n"
        "except OSError: print('refused', path.read_bytes(), len(list(path.parent.iterdir())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.stdout.strip() == "refused b'old' 1"


def test_files_cut_at_any_length_are_refused_or_resumed_bit_for_bit(tmp_path) -> None:
    """A run that stopped after 2 of 3 rounds: every length of its releases, every fifth of its other files."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2)
    plan = dpsco.Plan(problem, 30, dpsco.Budget(1.0, 1e-6), rounds=3, beta=1.0, clip=1.0)
    rows = np.random.default_rng(0).standard_normal((30, 2))

    class Stop(Exception):
        pass

    def stop(at: dpsco.Round) -> None:
        if at.step == 1:
            raise Stop

    def run(**how: object) -> bytes:
        stream = dpsco.stream(rows, (rows[:, 0] > 0).astype(float))
        return dpsco.train(plan, stream, key=bytes(32), **how).model.coef.tobytes()  # type: ignore[arg-type]

    with pytest.raises(Stop):
        run(checkpoint=tmp_path / "run", on_round=stop)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    expected, refused, resumed = run(), 0, 0
    for name in ("run.json", "secret.json", "released.bin"):
        for length in range(0, len(whole[name]), 1 if name == "released.bin" else 5):
            for other, data in whole.items():
                (tmp_path / "run" / other).write_bytes(data[:length] if other == name else data)
            try:
                assert run(checkpoint=tmp_path / "run", resume=True) == expected
                resumed += 1
            except dpsco.CheckpointError:
                refused += 1
    assert refused > 150
    record = len(whole["released.bin"]) // 2
    assert resumed == record  # only the last record may be torn: its round is done again, with the same noise
