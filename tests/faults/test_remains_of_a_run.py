"""What is left of a run after its key was deleted does not stop the next one behind its survey."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.accounting.account import Account
from dpsco.errors import CheckpointError

N, P = 4_000, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P)) / 4
Y = (X[:, 0] > 0).astype(float)
BUDGET = dpsco.Budget(epsilon=1.0, delta=1e-6)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=P)
PLAN = dpsco.plan(PROBLEM, n=N, budget=BUDGET, survey="full")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("lost", [("secret.json", "released.bin"), ("secret.json", "released.bin", "run.json")])
def test_a_folder_with_rounds_of_another_run_is_refused_before_anything_is_spent(
    lost: tuple[str, ...], resume: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    dpsco.train(PLAN, dpsco.stream(X, Y), checkpoint=folder)
    for name in lost:
        (folder / name).unlink()
    account = Account.create(tmp_path / "account.json", BUDGET)
    with pytest.raises(CheckpointError, match="lost files"):
        dpsco.train(PLAN, dpsco.stream(X, Y), checkpoint=folder, resume=resume, account=account)
    assert not account.runs
    assert not (folder / "released.bin").stat().st_size
