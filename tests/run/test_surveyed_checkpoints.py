"""Checkpoints of surveyed runs: a run that ended anywhere goes on to the same bits, with the same rows alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.run.test_surveyed import KEY, PLAN, N, data
from threadpoolctl import threadpool_limits

import dpsco
from dpsco.query import Batch
from dpsco.run import Run, stage
from dpsco.run.train import library_oracle


class Stop(Exception):
    pass


def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(tmp_path):
    rows, labels = data()
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY)
    for at in range(len(whole.trace)):
        folder = tmp_path / str(at)

        def stop(seen, at=at):
            if seen.step == at:
                raise Stop

        with pytest.raises(Stop):
            dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder, on_round=stop)
        with pytest.raises(dpsco.CheckpointError):
            dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder)
        again = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder, resume=True)
        np.testing.assert_array_equal(again.model.coef, whole.model.coef)
        back = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder, resume=True)
        np.testing.assert_array_equal(back.model.coef, whole.model.coef)


def test_a_run_stopped_in_one_thread_goes_on_in_another_to_the_same_bits(tmp_path):
    """Iterates leave the ball, whose projection decomposes a matrix: with two threads of BLAS it has other bits."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((8_000, 100))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows[:, 0] > 0).astype(float)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 100)
    plan = dpsco.plan(problem, n=8_000, budget=dpsco.Budget(2.0, 1e-6))

    def stop(seen):
        if seen.step == 3:
            raise Stop

    with threadpool_limits(2, user_api="blas"):
        whole = dpsco.train(plan, dpsco.stream(rows, labels), key=KEY)
        with pytest.raises(Stop):
            dpsco.train(plan, dpsco.stream(rows, labels), key=KEY, checkpoint=tmp_path, on_round=stop)
        with ThreadPoolExecutor(1) as pool:
            resumed = {"checkpoint": tmp_path, "resume": True}
            again = pool.submit(dpsco.train, plan, dpsco.stream(rows, labels), key=KEY, **resumed).result()
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)


def test_a_checkpoint_without_its_rounds_is_refused(tmp_path):
    """New noise for rows that were released before would be a second release."""
    rows, labels = data()
    dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path)
    for file in (tmp_path / "rounds").iterdir():
        file.unlink()
    with pytest.raises(dpsco.CheckpointError, match="survey"):
        dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)


def test_other_rows_are_refused_after_a_stop(tmp_path):
    rows, labels = data()

    def stop(seen):
        if seen.step == 2:
            raise Stop

    with pytest.raises(Stop):
        dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, on_round=stop)
    rows[400] += 1.0
    with pytest.raises(dpsco.LedgerError):
        dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)


_KILLED = """
import os, signal, sys
import dpsco
from tests.run.test_surveyed import KEY, PLAN, data

def kill(seen):
    if seen.step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

dpsco.train(PLAN, dpsco.stream(*data()), key=KEY, checkpoint=sys.argv[1], on_round=kill)
"""


@pytest.mark.parametrize("step", [0, 1])
def test_a_killed_run_goes_on_to_the_same_bits(step, tmp_path):
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), str(step)], cwd=root, check=False)
    assert done.returncode == -9
    whole = dpsco.train(PLAN, dpsco.stream(*data()), key=KEY)
    again = dpsco.train(PLAN, dpsco.stream(*data()), key=KEY, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)


def test_a_checkpoint_that_lost_the_key_of_its_rounds_is_refused(tmp_path: Path) -> None:
    rows, labels = data()

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, on_round=stop)
    (tmp_path / "rounds" / "secret.json").unlink()
    with pytest.raises(dpsco.CheckpointError, match="lost files"):
        dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)


def stopped_after(rounds: int, folder: Path, key: bytes | None = None) -> None:
    """Leave a run in ``folder`` that ended after some rounds, the survey among them."""
    left = [rounds]

    def stop(_: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.train(PLAN, dpsco.stream(*data()), checkpoint=folder, on_round=stop, key=key)


@pytest.mark.parametrize("rounds", [1, 3])
def test_other_rows_or_another_order_behind_a_survey_are_refused(rounds: int, tmp_path: Path) -> None:
    """Rows of the survey would enter a later round too, and the run would cost sqrt 2 of what it paid."""
    stopped_after(rounds, tmp_path)
    rows, labels = data()
    order = np.roll(np.arange(N), 300)
    with pytest.raises(dpsco.LedgerError, match="other rows"):
        dpsco.train(PLAN, dpsco.stream(rows[order], labels[order]), checkpoint=tmp_path, resume=True)
    changed = rows.copy()
    changed[7] = 0.0
    with pytest.raises(dpsco.LedgerError, match="other rows"):
        dpsco.train(PLAN, dpsco.stream(changed, labels), checkpoint=tmp_path, resume=True)
    assert dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True).report.private


def test_a_run_that_ended_between_its_survey_and_its_rounds_goes_on(tmp_path: Path) -> None:
    stopped_after(1, tmp_path, KEY)
    shutil.rmtree(tmp_path / "rounds")
    (tmp_path / "rounds.begun").unlink()
    again = dpsco.train(PLAN, dpsco.stream(*data()), checkpoint=tmp_path, resume=True, key=KEY)
    whole = dpsco.train(PLAN, dpsco.stream(*data()), key=KEY)
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)


def test_rounds_that_were_lost_are_not_begun_again(tmp_path: Path) -> None:
    stopped_after(3, tmp_path)
    shutil.rmtree(tmp_path / "rounds")
    with pytest.raises(dpsco.CheckpointError, match="lost files"):
        dpsco.train(PLAN, dpsco.stream(*data()), checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("broken", ["dpsco.run.stage.second_stage", "dpsco.run.stage.write_atomic"])
def test_a_round_that_could_not_plan_the_next_ones_is_finished_by_another_call(broken, tmp_path, monkeypatch) -> None:
    """An error behind the survey's release: the survey is not released again, and its rows enter nothing else."""
    rows, labels = data()
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY)
    run = Run(PLAN, oracle=library_oracle(PLAN), key=KEY, checkpoint=tmp_path)
    with run:
        run.absorb(Batch(0, [(rows[:300], labels[:300])]))
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise OSError("full")

            patch.setattr(broken, fail)
            for _ in range(2):
                with pytest.raises(OSError, match="full"):
                    run.finish_round()
                assert run.query.moment is not None
                assert not run.complete
        assert run.finish_round() == whole.trace[0]
        for portion in run.coming():
            part = slice(portion.first, portion.last)
            run.absorb(Batch(0, [(rows[part], labels[part])]))
            run.finish_round()
    np.testing.assert_array_equal(run.model.coef, whole.model.coef)
    assert run.trace == whole.trace


@pytest.mark.parametrize("happens", ["another working directory", "the folder is moved"])
def test_rounds_are_in_the_folder_of_their_survey_whatever_its_path_means(
    happens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second folder of rounds behind one survey would add one noise to two sums."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    planned = stage.second_stage
    home = tmp_path / "here" / "run" if happens == "another working directory" else tmp_path / "moved"

    def meanwhile(*arguments: object) -> object:
        if happens == "another working directory":
            os.chdir(tmp_path / "there")
        else:
            (tmp_path / "here" / "run").rename(home)
        return planned(*arguments)  # type: ignore[arg-type]

    rows, labels = data()
    with monkeypatch.context() as patch:
        patch.setattr(stage, "second_stage", meanwhile)
        path = Path("run") if happens == "another working directory" else tmp_path / "here" / "run"
        first = dpsco.train(PLAN, dpsco.stream(rows, labels), checkpoint=path)
    assert {file.name for file in (home / "rounds").iterdir()} == {"run.json", "secret.json", "released.bin"}
    assert list((tmp_path / "there").iterdir()) == []
    assert [file for file in (tmp_path / "here").iterdir() if file != home] == []
    for file in (home / "secret.json", home / "rounds" / "secret.json"):
        assert json.loads(file.read_text())["key"] is None
    changed = rows.copy()
    changed[400] = 0.0  # a row behind the survey
    again = dpsco.train(PLAN, dpsco.stream(changed, labels), checkpoint=home, resume=True)
    np.testing.assert_array_equal(again.evidence.sums, first.evidence.sums)


def test_a_run_whose_folder_is_deleted_releases_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen: list[int] = []

    def delete(done: dpsco.Round) -> None:
        seen.append(done.step)
        shutil.rmtree(folder)

    with pytest.raises(FileNotFoundError):
        dpsco.train(PLAN, dpsco.stream(*data()), checkpoint=folder, on_round=delete)
    assert seen == [0]
    assert not folder.exists()


def test_rounds_that_are_a_link_are_refused_and_nothing_is_written_behind_it(tmp_path):
    """Their key would lie in a folder that nobody named. Once the link is gone, the run goes on."""
    rows, labels = data()
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "rounds").symlink_to(elsewhere, target_is_directory=True)
    for resume in (False, True):
        with pytest.raises(dpsco.CheckpointError, match="is a link"):
            dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder, resume=resume)
    assert not list(elsewhere.iterdir())
    (folder / "rounds").unlink()
    again = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=folder, resume=True)
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY)
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)
