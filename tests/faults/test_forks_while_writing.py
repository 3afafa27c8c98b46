"""The handler of a signal forks while a run writes its checkpoint: what the child does later changes no file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import dpsco
from dpsco import json_files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ROWS = np.random.default_rng(8).normal(size=(40, 3))
PLAN = dpsco.Plan(
    problem=dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 3),
    n=40,
    budget=dpsco.Budget(1.0, 1e-6),
    method=dpsco.AcceleratedSRGD(rounds=1, beta=0.25, clip=1.0),
)


WRITING = ("_folder_of", "replacing", "_new_file", "_refuse_forks", "write_at")


def train(folder: Path, *, resume: bool = False) -> np.ndarray:
    given = dpsco.stream(ROWS, np.arange(40) % 2)
    return dpsco.train(PLAN, given, checkpoint=folder, resume=resume).model.coef


def trained_with_a_fork(folder: Path, moment: int, *, child_first: bool) -> tuple[np.ndarray, bool]:
    """Fork at the moment-th chance of a signal inside the code that writes files.

    The child goes on with the run once its parent has ended it, or its parent once the child has ended. Returns the
    parent's model, and whether there was a fork.
    """
    waiting, ending = os.pipe()
    chances, child = 0, -1

    def strike(frame: FrameType, event: str, _: object) -> None:
        nonlocal chances, child
        code = frame.f_code
        writes = code.co_filename == json_files.__file__ and code.co_name in WRITING
        if event in ("call", "c_return") and writes:
            chances += 1
            if chances == moment:
                sys.setprofile(None)
                child = os.fork()
                if child == 0:
                    os.close(ending)
                    if not child_first:
                        os.read(waiting, 1)
                elif child_first:
                    os.waitpid(child, 0)

    sys.setprofile(strike)
    try:
        model = train(folder)
    finally:
        sys.setprofile(None)
        if child == 0:
            os._exit(0)
        os.close(ending)
        os.close(waiting)
    if child > 0 and not child_first:
        os.waitpid(child, 0)
    return model, child > 0


@pytest.mark.parametrize("child_first", [False, True])
def test_a_child_forked_while_a_file_is_written_writes_none(tmp_path: Path, child_first: bool) -> None:
    """It would put the erased noise key back on disk, or remove or write again the file of its parent."""
    for moment in range(1, 1_000):
        folder = tmp_path / f"{moment}"
        model, forked = trained_with_a_fork(folder, moment, child_first=child_first)
        assert json.loads((folder / "secret.json").read_bytes())["key"] is None, moment
        # Behind a fork between its name and its making nobody knows whose file it is: it stays, empty, until a resume.
        assert not any(path.stat().st_size for path in folder.glob(".dpsco-*")), moment
        np.testing.assert_array_equal(train(folder, resume=True), model)
        assert not list(folder.glob(".dpsco-*")), moment
        if not forked:
            assert moment > 25
            return
    pytest.fail("a run has more moments than this test tries")
