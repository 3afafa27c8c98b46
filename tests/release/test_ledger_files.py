"""Checkpoints: a stopped run goes on bit for bit, with its own rows and plan only; what is on disk."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import gc
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

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
    plan,
    resume,
    stop_after,
    stopped_run,
)

import dpsco
from dpsco import (
    Account,
    Budget,
    CheckpointError,
    InvalidArgument,
    LedgerError,
    stream,
    train,
)
from dpsco.held_files import Held, locked
from dpsco.release.ledger import FileLedger, open_folder

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


def test_an_error_behind_the_last_round_leaves_no_key(tmp_path: Path) -> None:
    """A complete run needs none: it is given back as it is."""
    folder = stopped_run(tmp_path / "run", ROUNDS - 1, key=None)
    assert json.loads((folder / "secret.json").read_text())["key"] is None
    assert resume(folder, key=None).report.private


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


@pytest.mark.parametrize("planted", ["symbolic link", "hard link", "pipe", "folder"])
def test_released_values_go_into_no_file_that_the_run_did_not_create(planted: str, tmp_path: Path) -> None:
    """A run that ended between a fingerprint and its value: one released.bin of any size passes the other checks."""
    folder, victim = tmp_path / "run", tmp_path / "victim"
    with open_folder(folder, {}, "digest", 1, 2, KEY, resume=False) as ledger:
        ledger.record(0, bytes(32))
    victim.write_text("mine")
    released = folder / "released.bin"
    released.unlink()
    if planted == "symbolic link":
        released.symlink_to(victim)
    elif planted == "hard link":
        released.hardlink_to(victim)
    elif planted == "pipe":
        os.mkfifo(released)
    else:
        released.mkdir()
    with (
        pytest.raises(CheckpointError, match=r"released\.bin"),
        open_folder(folder, {}, "digest", 1, 2, KEY, resume=True),
    ):
        pass
    assert victim.read_text() == "mine"


def test_an_interrupt_while_a_folder_is_given_back_keeps_no_lock(tmp_path: Path) -> None:
    def interrupt(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Held.close.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(PLAN, stream(X, Y), key=KEY, checkpoint=tmp_path / "run")
    finally:
        sys.setprofile(None)
    gc.collect()
    resume(tmp_path / "run")


def test_what_a_killed_process_was_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """A new secret.json that did not come to its place holds the key too."""
    folder = stopped_run(tmp_path / "run")
    (folder / ".dpsco-0123456789abcdef.new").write_text("a key")
    kept = ("notes.new", ".dpsco-notes.new", "secret.json.new")
    for name in kept:
        (folder / name).write_text("mine")
    resume(folder)
    assert {path.name for path in folder.iterdir()} == {
        "run.json",
        "secret.json",
        "released.bin",
        "rows.json",
        "facts.json",
        *kept,
    }
    assert all((folder / name).read_text() == "mine" for name in kept)


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


def test_a_fingerprint_that_is_known_is_on_disk_at_every_line(tmp_path: Path) -> None:
    """An interrupt between the two would let a value out whose fingerprint is not on record."""
    lines = range(FileLedger.record.__code__.co_firstlineno + 1, FileLedger.record.__code__.co_firstlineno + 12)
    for line in lines:
        with open_folder(tmp_path / str(line), {}, "digest", 1, 2, KEY, resume=False) as ledger:

            def stop(frame, event, argument, line=line):
                if frame.f_code is not FileLedger.record.__code__:
                    return None
                if event in ("line", "return") and frame.f_lineno >= line:
                    raise KeyboardInterrupt
                return stop

            sys.settrace(stop)
            with contextlib.suppress(KeyboardInterrupt):
                ledger.record(0, b"f" * 32)
            sys.settrace(None)
            kept = json.loads((tmp_path / str(line) / "secret.json").read_bytes())["fingerprints"]
            assert ledger.fingerprint(0) is None or kept == [(b"f" * 32).hex()]


@pytest.mark.parametrize("at", ["unlock", "forget"])
def test_an_interrupt_while_a_lock_is_given_back_keeps_it_no_longer_than_that(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the error is kept, with all frames in its traceback, and without the garbage collector."""
    import fcntl

    real_flock, real_forget, strikes = fcntl.flock, Held.forget, []

    def strike(here: bool) -> None:
        if here and not strikes:
            strikes.append(at)
            raise KeyboardInterrupt

    def flock(descriptor: int, operation: int) -> None:
        strike(at == "unlock" and operation == fcntl.LOCK_UN)
        real_flock(descriptor, operation)

    def forget(held: Held) -> None:
        strike(at == "forget")
        real_forget(held)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(Held, "forget", forget)
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) as kept, locked(tmp_path, "folder"):
            pass
        with locked(tmp_path, "folder"):
            pass
    finally:
        gc.enable()
    assert strikes == [at]
    assert kept.value is not None


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_of_somebody_else_in_the_place_of_a_checkpoints_is_not_replaced(resume: bool, tmp_path: Path) -> None:
    """An account named run.json, say: its entries would be gone."""
    account = dpsco.Account.create(tmp_path / "run.json", limit=dpsco.Budget(3.0, 1e-6))
    account.charge("one", dpsco.Budget(1.0, 1e-6))
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(CheckpointError), open_folder(tmp_path, {}, "digest", 1, 1, bytes(32), resume=resume):
        pass
    assert (tmp_path / "run.json").read_bytes() == before
    assert [run["id"] for run in account.runs] == ["one"]
