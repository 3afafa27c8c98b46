"""Checkpoints: damage is refused, a killed run resumes bit for bit, and no round is released twice."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.method_plans import algorithm_1_plan

import dpsco
from dpsco import (
    Account,
    Budget,
    CheckpointError,
    InvalidArgument,
    L2Ball,
    LedgerError,
    Logistic,
    Plan,
    Problem,
    Result,
    Round,
    stream,
    train,
)
from dpsco.query import Clipped, Query, Released
from dpsco.release.ledger import open_folder
from dpsco.release.releaser import Releaser

KEY = bytes(range(32))
ROUNDS, DIMENSION = 5, 3
_rng = np.random.default_rng(8)
X, Y = _rng.normal(size=(40, DIMENSION)), _rng.integers(0, 2, 40)


def plan(**changes: object) -> Plan:
    arguments: dict[str, object] = {
        "problem": Problem(Logistic(), L2Ball(2.0), DIMENSION),
        "n": 40,
        "budget": Budget(1.0, 1e-6),
        "rounds": ROUNDS,
        "beta": 0.25,
        "clip": 1.0,
        "mechanism": "sqrt",
    }
    return algorithm_1_plan(**{**arguments, **changes})  # type: ignore[arg-type]


PLAN = plan()


class Stopped(BaseException):
    pass


def stop_after(step: int) -> object:
    def on_round(done: Round) -> None:
        if done.step == step:
            raise Stopped

    return on_round


def stopped_run(folder: Path, step: int = 2, key: bytes | None = KEY) -> Path:
    """A checkpoint whose process ended right after round ``step``."""
    with pytest.raises(Stopped):
        train(PLAN, stream(X, Y), key=key, checkpoint=folder, on_round=stop_after(step))  # type: ignore[arg-type]
    return folder


def resume(folder: Path, **changes: object) -> Result:
    arguments: dict[str, object] = {"plan": PLAN, "stream": stream(X, Y), "key": KEY, "resume": True, **changes}
    return train(checkpoint=folder, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return train(PLAN, stream(X, Y), key=KEY).model.coef


# --- going on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(ROUNDS))
def test_a_run_stopped_after_any_round_goes_on_bit_for_bit(step: int, tmp_path: Path, expected: np.ndarray) -> None:
    folder = stopped_run(tmp_path / "run", step)
    before = (folder / "released.bin").read_bytes()
    assert np.array_equal(resume(folder).model.coef, expected)
    assert (folder / "released.bin").read_bytes().startswith(before)


def test_a_finished_run_resumed_gives_the_same_model_and_releases_nothing(tmp_path: Path, expected: np.ndarray) -> None:
    folder = tmp_path / "run"
    train(PLAN, stream(X, Y), key=KEY, checkpoint=folder)
    released = (folder / "released.bin").read_bytes()
    assert np.array_equal(resume(folder).model.coef, expected)
    assert (folder / "released.bin").read_bytes() == released


def test_an_unseeded_run_keeps_its_own_key_when_resumed(tmp_path: Path) -> None:
    """Its released rounds remain, it stays private, and its id (under which an account is charged) stays the same."""
    folder = stopped_run(tmp_path / "run", key=None)
    identity = json.loads((folder / "run.json").read_text())["id"]
    before = (folder / "released.bin").read_bytes()
    result = resume(folder, key=None)
    assert (folder / "released.bin").read_bytes().startswith(before)
    assert result.report.private
    assert result.report.run_id == identity


def test_a_resumed_run_is_charged_once(tmp_path: Path) -> None:
    account = Account.create(tmp_path / "people.json", limit=Budget(3.0, 1e-6))
    with pytest.raises(Stopped):
        train(PLAN, stream(X, Y), checkpoint=tmp_path / "run", account=account, on_round=stop_after(1))  # type: ignore[arg-type]
    resume(tmp_path / "run", key=None, account=account)
    assert len(account.runs) == 1


def test_rows_in_another_order_are_refused_on_resume(tmp_path: Path) -> None:
    """Re-shuffled rows would enter a second round under the same budget: twice the sensitivity."""
    folder = stopped_run(tmp_path / "run")
    released = (folder / "released.bin").read_bytes()
    with pytest.raises(LedgerError):
        resume(folder, stream=stream(X[::-1], Y[::-1]))
    assert (folder / "released.bin").read_bytes() == released


def test_another_row_in_a_round_that_is_out_is_refused_on_resume(tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "run", 2)
    changed = X.copy()
    changed[1] = -changed[1]
    with pytest.raises(LedgerError):
        resume(folder, stream=stream(changed, Y))


@pytest.mark.parametrize(
    "change",
    [
        {"plan": plan(beta=0.26)},
        {"plan": plan(budget=Budget(2.0, 1e-6))},
        {"plan": plan(mechanism="tree")},
        {"plan": plan(rounds=4, batch_size=8)},
        {"start": np.full(DIMENSION, 0.1)},
        {"key": None},
    ],
)
def test_another_plan_start_or_kind_of_key_is_refused_on_resume(change: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        resume(stopped_run(tmp_path / "run"), **change)


def test_a_begun_folder_is_not_begun_again(tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match="resume"):
        train(PLAN, stream(X, Y), checkpoint=folder)


def test_resume_without_a_folder_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="checkpoint"):
        train(PLAN, stream(X, Y), resume=True)


def test_only_one_process_writes_a_folder(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path, {}, "digest", 1, 1, KEY, resume=False),
        pytest.raises(CheckpointError, match="in use"),
        open_folder(tmp_path, {}, "digest", 1, 1, KEY, resume=True),
    ):
        pass


def test_noise_from_another_version_of_the_libraries_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dpsco.release.ledger as ledger

    folder = stopped_run(tmp_path / "run")
    original = ledger.normals
    monkeypatch.setattr(ledger, "normals", lambda *arguments: np.nextafter(original(*arguments), 9.0))
    with pytest.raises(CheckpointError, match="versions"):
        resume(folder)


def test_noise_calibrated_otherwise_than_when_the_run_began_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may change the factorisation or sigma of the same plan; a mixed run has no known distribution."""
    folder = stopped_run(tmp_path / "run")
    other = plan()
    noise = other.schedule.calibration
    changed = dataclasses.replace(noise, sigma=noise.sigma * 0.9)
    other.__dict__["schedule"] = dataclasses.replace(other.schedule, calibration=changed)
    with pytest.raises(CheckpointError):
        resume(folder, plan=other)
    strategy = dpsco.mechanism("tree", horizon=ROUNDS)
    other = plan()
    other.__dict__["schedule"] = dataclasses.replace(other.schedule, mechanism=strategy)
    with pytest.raises(CheckpointError):
        resume(folder, plan=other)


# --- what is on disk --------------------------------------------------------------------------


def test_the_secret_is_readable_by_its_owner_only_and_the_key_is_erased_at_the_end(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        folder = stopped_run(tmp_path / "run", key=None)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert modes.pop("secret.json") == 0o600
        assert all(not mode & 0o022 for mode in modes.values()), modes  # and nobody else may write the rest
        key = json.loads((folder / "secret.json").read_text())["key"]
        assert len(bytes.fromhex(key)) == 32
        resume(folder, key=None)
    finally:
        os.umask(previous)
    assert stat.S_IMODE((folder / "secret.json").stat().st_mode) == 0o600
    for path in folder.iterdir():
        assert key.encode() not in path.read_bytes()
        assert bytes.fromhex(key) not in path.read_bytes()


def test_public_files_hold_no_key(tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "run", key=None)
    key = json.loads((folder / "secret.json").read_text())["key"]
    for name in ("run.json", "released.bin"):
        raw = (folder / name).read_bytes()
        assert key.encode() not in raw
        assert bytes.fromhex(key) not in raw


def test_a_file_planted_in_the_way_never_receives_the_key(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text("mine")
    (folder / "secret.json.new").symlink_to(elsewhere)
    stopped_run(folder, key=None)
    assert elsewhere.read_text() == "mine"
    assert not (folder / "secret.json").is_symlink()


def test_no_file_is_read_with_pickle_or_eval() -> None:
    """By the source: no module that can run code from a file is imported, and numpy's loaders are not called."""
    package = Path(dpsco.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call):
                called = node.func
                names = [called.id] if isinstance(called, ast.Name) else []
                if any(word.arg == "allow_pickle" for word in node.keywords):
                    assert all(word.value.value is False for word in node.keywords if word.arg == "allow_pickle"), path  # type: ignore[attr-defined]
            else:
                continue
            assert not {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle", "eval", "exec"} & set(names), (
                path
            )


# --- damage -----------------------------------------------------------------------------------


def assert_refused(folder: Path) -> None:
    """Resuming is refused by a CheckpointError before anything is released."""
    released = folder / "released.bin"
    before = released.read_bytes() if released.exists() else None
    with pytest.raises(CheckpointError):
        resume(folder)
    assert (released.read_bytes() if released.exists() else None) == before


def flip_bytes(folder: Path) -> int:
    count = 0
    for name in ("run.json", "secret.json", "released.bin"):
        path = folder / name
        raw = path.read_bytes()
        for position in range(len(raw)):
            mask = random.Random(position).randrange(1, 256)  # noqa: S311
            path.write_bytes(raw[:position] + bytes([raw[position] ^ mask]) + raw[position + 1 :])
            assert_refused(folder)
            count += 1
        path.write_bytes(raw)
    return count


def test_every_flipped_byte_is_refused(tmp_path: Path, expected: np.ndarray) -> None:
    folder = stopped_run(tmp_path / "run")
    assert flip_bytes(folder) == sum(path.stat().st_size for path in folder.iterdir()) > 1000
    assert np.array_equal(resume(folder).model.coef, expected)


@pytest.mark.parametrize("name", ["run.json", "secret.json"])
def test_missing_extra_and_foreign_fields_are_refused_even_under_a_right_checksum(name: str, tmp_path: Path) -> None:
    from dpsco.json_files import write_sealed

    folder = stopped_run(tmp_path / "run")
    path = folder / name
    raw = path.read_bytes()
    payload = json.loads(raw)
    payload.pop("check")
    changes: list[dict[str, object]] = [{k: v for k, v in payload.items() if k != field} for field in payload]
    changes += [
        {**payload, "extra": 1},
        {**payload, "format": 99},
        {**payload, "format": None},
        {**payload, "digest": "0" * 64},
    ]
    changes += [{**payload, field: {"odd": []}} for field in payload]
    for changed in changes:
        write_sealed(path, changed)
        assert_refused(folder)
    path.write_bytes(raw)
    resume(folder)


@pytest.mark.parametrize("text", [b"", b"{}", b"null", b"[" * 100_000, b'{"check": NaN}', b"\xff\xfe", b"\x80\x04N."])
@pytest.mark.parametrize("name", ["run.json", "secret.json"])
def test_text_that_is_not_ours_is_refused(name: str, text: bytes, tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "run")
    (folder / name).write_bytes(text)
    assert_refused(folder)


@pytest.mark.parametrize("name", ["run.json", "secret.json", "released.bin"])
def test_a_lost_file_is_refused(name: str, tmp_path: Path) -> None:
    folder = stopped_run(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(CheckpointError):
        resume(folder)


def test_released_rounds_that_nobody_vouches_for_are_refused(tmp_path: Path) -> None:
    """An older secret.json with a newer released.bin would draw used noise again; also records swapped, appended."""
    early, late = stopped_run(tmp_path / "early", 0), stopped_run(tmp_path / "late", 3)
    shutil.copy(early / "secret.json", late / "secret.json")
    assert_refused(late)
    folder = stopped_run(tmp_path / "run", 3)
    raw, size = (folder / "released.bin").read_bytes(), 8 * DIMENSION + 32
    for damaged in (
        raw + raw[:size],
        raw[size : 2 * size] + raw[:size] + raw[2 * size :],
        raw[: 2 * size],
        raw[: size // 2],
        b"",
    ):
        (folder / "released.bin").write_bytes(damaged)
        assert_refused(folder)


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
    whole = (reference / "released.bin").read_bytes()
    size = 8 * DIMENSION + 32
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
        stored = (folder / "released.bin").read_bytes() if (folder / "released.bin").exists() else b""
        assert whole.startswith(stored[: len(stored) // size * size])
        assert np.array_equal(resume(folder).model.coef, expected), strike
        assert (folder / "released.bin").read_bytes() == whole
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
    whole = (tmp_path / "calm" / "released.bin").read_bytes()
    size, done, run = 8 * 20 + 32, 0, 0
    moments = random.Random()  # noqa: S311
    partly = 0
    while done < kills:
        run += 1
        folder = tmp_path / f"run {run}"
        model = None
        while model is None:
            model, _ = runs.once(folder, moments.uniform(0, 0.6 * duration) if done < kills else None)
            done += model is None
            released = folder / "released.bin"
            stored = released.read_bytes() if released.exists() else b""
            assert whole.startswith(stored[: len(stored) // size * size])
            partly += 0 < len(stored) < len(whole)
        assert model == expected
        assert (folder / "released.bin").read_bytes() == whole
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
