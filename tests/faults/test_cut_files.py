"""Files that were cut short: refused, or the run goes on to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import LocalNodes, linear_gradients, serve
from dpsco.errors import DpscoError
from dpsco.rows.file_stream import Labels
from dpsco.run.model_file import SavedModel

PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2)
PLAN = dpsco.Plan(PROBLEM, 30, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=3, beta=1.0, clip=1.0))
ROWS = np.random.default_rng(0).standard_normal((30, 2))


class Stop(Exception):
    pass


def stop(at: dpsco.Round) -> None:
    if at.step == 1:
        raise Stop


def a_model(folder: Path) -> tuple[Path, Callable[[], object]]:
    result = dpsco.train(PLAN, dpsco.stream(ROWS, (ROWS[:, 0] > 0).astype(float)))
    path = SavedModel(result, Labels("y", ("0", "1")), 2, 1.0).write(folder / "model.json")
    return path, lambda: SavedModel.read(path)


def an_account(folder: Path) -> tuple[Path, Callable[[], object]]:
    account = dpsco.Account.create(folder / "people.json", limit=dpsco.Budget(5.0, 1e-6))
    for name in ("one", "two"):
        account.charge(name, PLAN.budget)
    return account.path, lambda: account.runs


def a_plan(folder: Path) -> tuple[Path, Callable[[], object]]:
    (folder / "plan.json").write_text(PLAN.to_json())
    return folder / "plan.json", lambda: dpsco.Plan.from_json((folder / "plan.json").read_text())


def a_federation(folder: Path) -> tuple[Path, Callable[[], object]]:
    """The answers of the last round before a stop."""
    nodes = LocalNodes([{f"home-{i}": linear_gradients(PROBLEM, ROWS[i], [i % 2]) for i in range(30)}])
    run = folder / "federation"

    with pytest.raises(Stop):
        serve(PLAN, nodes, key=bytes(32), checkpoint=run, on_round=stop)
    latest = sorted((run / "cohorts").iterdir())[-1]
    return latest, lambda: serve(PLAN, nodes, key=bytes(32), checkpoint=run, resume=True)


@pytest.mark.parametrize("make", [a_model, an_account, a_plan, a_federation])
def test_a_file_cut_at_any_length_is_refused(make: Callable, tmp_path: Path) -> None:
    path, read = make(tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:length])
        with pytest.raises(DpscoError):
            read()
    path.write_bytes(whole)
    read()


def test_files_cut_at_any_length_are_refused_or_resumed_bit_for_bit(tmp_path) -> None:
    """A run that stopped after 2 of 3 rounds: every length of its releases, every fifth of its other files."""

    def run(**how: object) -> bytes:
        stream = dpsco.stream(ROWS, (ROWS[:, 0] > 0).astype(float))
        return dpsco.train(PLAN, stream, key=bytes(32), **how).model.coef.tobytes()  # type: ignore[arg-type]

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
