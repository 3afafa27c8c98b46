"""Checkpoints: a run that crashed or was killed at any moment resumes bit for bit; no round is released twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.release.stopped_runs import (
    DIMENSION,
    KEY,
    PLAN,
    ROUNDS,
    Stopped,
    X,
    Y,
    released_values,
    resume,
    stopped_run,
)

from dpsco import (
    LedgerError,
    stream,
    train,
)
from dpsco.query import Clipped, Query, Released
from dpsco.release.ledger import open_folder
from dpsco.release.releaser import Releaser

# --- crashes ----------------------------------------------------------------------------------


def test_a_crash_at_every_disk_operation_then_resume_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: np.ndarray
) -> None:
    """Every fsync and every replacement of a run is made to fail once, before or after it took place.

    After the crash the released rounds on disk are a prefix of the undisturbed ones, and the resumed run ends with
    the same model: nothing was released twice, nothing lost.
    """
    reference = tmp_path / "reference"
    train(PLAN, stream(X, Y), key=KEY, checkpoint=reference)
    whole = released_values(reference)
    fsync, replace = os.fsync, Path.replace
    strike, crashes = 0, 0
    while True:
        calls = [0]

        def reached(calls: list[int] = calls, strike: int = strike) -> None:
            calls[0] += 1
            if calls[0] == strike + 1:
                raise Stopped

        def failing_fsync(descriptor: int, reached: object = reached) -> None:
            reached()  # type: ignore[operator]
            fsync(descriptor)
            reached()  # type: ignore[operator]

        def failing_replace(self: Path, target: Path, reached: object = reached) -> Path:
            reached()  # type: ignore[operator]
            done = replace(self, target)
            reached()  # type: ignore[operator]
            return done

        folder = tmp_path / f"run {strike}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_fsync)
            patch.setattr(Path, "replace", failing_replace)
            try:
                train(PLAN, stream(X, Y), key=KEY, checkpoint=folder)
            except Stopped:
                crashes += 1
            else:
                break
        assert whole.startswith(released_values(folder))
        assert np.array_equal(resume(folder).model.coef, expected), strike
        assert released_values(folder) == whole
        strike += 1
    assert crashes > 8 * ROUNDS


def test_a_torn_last_record_can_only_be_completed_with_the_same_rows(tmp_path: Path, expected: np.ndarray) -> None:
    folder = stopped_run(tmp_path / "run", 2)
    raw = (folder / "released.bin").read_bytes()
    size = 8 * DIMENSION + 32
    changed = X.copy()
    changed[16:24] = 0.0  # rows of round 2
    for keep in (0, 1, size - 1):
        (folder / "released.bin").write_bytes(raw[: 2 * size + keep])
        with pytest.raises(LedgerError):
            resume(folder, stream=stream(changed, Y))
    assert np.array_equal(resume(folder).model.coef, expected)
    assert (folder / "released.bin").read_bytes().startswith(raw)


def test_a_failed_write_in_the_same_process_keeps_the_round_for_the_same_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise, strategy = PLAN.schedule.calibration, PLAN.schedule.mechanism
    with open_folder(tmp_path, {}, "digest", DIMENSION, ROUNDS, KEY, resume=False) as ledger:
        source = Releaser(noise, strategy, DIMENSION, ledger)
        asked = Query(0, (np.zeros(DIMENSION),), (1.0,), noise.clip, 8, noise.grid, noise.rowwise)
        with monkeypatch.context() as patch:
            patch.setattr(type(ledger), "store", _disk_full)
            with pytest.raises(OSError, match="full"):
                source.release(asked, Clipped(np.zeros(DIMENSION), 1))
        with pytest.raises(LedgerError):
            source.release(asked, Clipped(np.ones(DIMENSION), 1))
        first: Released = source.release(asked, Clipped(np.zeros(DIMENSION), 1))
        assert np.array_equal(source.release(asked, Clipped(np.zeros(DIMENSION), 1)).value, first.value)


def _disk_full(*_: object) -> None:
    raise OSError("disk full")


# --- kill -9 ----------------------------------------------------------------------------------

_PROGRAM = """
import os, signal, sys, time
import numpy as np
import randomgen, scipy.linalg
from dpsco import *
from dpsco.clipping import *
rng = np.random.default_rng(8)
X, y = rng.normal(size=(6000, 20)), rng.integers(0, 2, 6000)
plan = Plan(problem=Problem(Logistic(), L2Ball(2.0), 20), n=6000, budget=Budget(1.0, 1e-6),
            method=AcceleratedSRGD(rounds=60, beta=0.25, clip=1.0, mechanism="sqrt"))
for line in sys.stdin:
    folder, seconds = line.strip().split("\\t")
    begun, (here, there) = time.perf_counter(), os.pipe()
    process = os.fork()
    if not process:
        result = train(plan, stream(X, y), key=bytes(32), checkpoint=folder, resume=True)
        os.write(there, result.model.coef.tobytes().hex().encode())
        os._exit(0)
    os.close(there)
    if seconds != "never":
        time.sleep(float(seconds))
        os.kill(process, signal.SIGKILL)
    with os.fdopen(here) as pipe:
        model = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(code, model or "none", time.perf_counter() - begun, flush=True)
"""


class Runs:
    """A process that starts or resumes the run in another one, forked when all is imported, and kills that one."""

    def __enter__(self) -> Runs:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-c", _PROGRAM], text=True, **pipes)  # type: ignore[call-overload]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def once(self, folder: Path, kill_after: float | None = None) -> tuple[str | None, float]:
        """SIGKILL so many seconds after the start: the model's bytes if it ended before, and how long it took."""
        self._process.stdin.write(f"{folder}\t{'never' if kill_after is None else kill_after}\n")
        self._process.stdin.flush()
        code, model, seconds = self._process.stdout.readline().split()
        assert int(code) in (0, -signal.SIGKILL)
        assert (int(code) == 0) <= (model != "none")
        return None if model == "none" else model, float(seconds)


def kill_and_resume(tmp_path: Path, kills: int) -> int:
    """How many of the kills left some rounds on disk and not all."""
    with Runs() as runs:
        return _kill_and_resume(tmp_path, kills, runs)


def _kill_and_resume(tmp_path: Path, kills: int, runs: Runs) -> int:
    expected, duration = runs.once(tmp_path / "calm")
    assert expected is not None
    whole = released_values(tmp_path / "calm", 20)
    done, run = 0, 0
    moments = random.Random()  # noqa: S311
    partly = 0
    while done < kills:
        run += 1
        folder = tmp_path / f"run {run}"
        model = None
        while model is None:
            model, _ = runs.once(folder, moments.uniform(0, 0.6 * duration) if done < kills else None)
            done += model is None
            stored = released_values(folder, 20)
            assert whole.startswith(stored)
            partly += 0 < len(stored) < len(whole)
        assert model == expected
        assert released_values(folder, 20) == whole
        assert run < 20 * kills, "the runs end before they can be killed"
    assert partly > 0, "no kill fell into the rounds"
    return partly


def test_kill_9_at_random_moments_then_resume_gives_the_same_model(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=6)


@pytest.mark.slow
def test_kill_9_two_hundred_times_then_resume_gives_the_same_model(
    tmp_path: Path, mark_figure: Callable[[int, str], None]
) -> None:
    between = kill_and_resume(tmp_path, kills=200)
    mark_figure(20, f"200 of 200 kills resumed to the same bytes, {between} of them between two rounds")
