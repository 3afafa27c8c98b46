"""Checkpoints: any changed byte, missing file or foreign field is refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.release.stopped_runs import (
    DIMENSION,
    KEY,
    PLAN,
    X,
    Y,
    resume,
    stopped_run,
)

import dpsco
from dpsco import (
    CheckpointError,
    stream,
    train,
)


def assert_refused(folder: Path) -> None:
    """Resuming is refused by a CheckpointError before anything is released."""
    released = folder / "released.bin"
    before = released.read_bytes() if released.exists() else None
    with pytest.raises(CheckpointError):
        resume(folder)
    assert (released.read_bytes() if released.exists() else None) == before


def flip_bytes(folder: Path) -> int:
    count = 0
    for name in ("run.json", "secret.json", "released.bin", "facts.json"):
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


def test_the_name_of_a_run_that_was_paid_for_pays_for_no_other(tmp_path: Path) -> None:
    """An account knows a run by the name in run.json: that file of another run of the plan is refused."""
    paid, folder = stopped_run(tmp_path / "paid", 2), stopped_run(tmp_path / "run", 2)
    shutil.copy(paid / "run.json", folder / "run.json")
    assert_refused(folder)


@pytest.mark.parametrize("name", ["released.bin", "rows.json"])
def test_what_another_run_of_the_plan_released_is_not_given_back_under_this_name(name: str, tmp_path: Path) -> None:
    """The report, and an account, would name a run that released something else."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder, rows in ((ours, X), (other, -X[:30])):
        train(PLAN, stream(rows, Y[: len(rows)]), key=KEY, checkpoint=folder)
    shutil.copy(other / name, ours / name)
    with pytest.raises(CheckpointError, match="of another run"):
        resume(ours)


def test_a_run_without_a_release_takes_no_name_of_another(tmp_path: Path) -> None:
    limit = dpsco.Budget(1.1, 1e-6)
    account = dpsco.Account.create(tmp_path / "people.json", limit)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=3)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    plan = dpsco.Plan(problem, 400, dpsco.Budget(1.0, 1e-6), method)
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)

    def run(name: str) -> dpsco.Result:
        given = {"checkpoint": tmp_path / name, "resume": True, "account": account}
        return dpsco.train(plan, dpsco.stream(rows, labels), **given)

    run("first")
    for _ in range(2):
        with pytest.raises(dpsco.AccountError):
            run("second")
        shutil.copy(tmp_path / "first" / "run.json", tmp_path / "second" / "run.json")
    assert len(account.runs) == 1
