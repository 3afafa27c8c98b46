"""Runs on disk: a killed comparison repeats no finished run, and an incomplete line is dropped."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dpsco.errors import CheckpointError
from dpsco.research.compare.compared_methods import OURS
from dpsco.research.compare.comparison_size import TuningBudget
from dpsco.research.compare.evaluation_data import Setting
from dpsco.research.compare.pattern_search import GridPoint
from dpsco.research.compare.process_pool import RunPool, open_pool
from dpsco.research.compare.run_cache import open_cache
from dpsco.research.compare.single_run import RunOutcome, SingleRun
from dpsco.research.compare.tuning import TuningTask

BUDGET = TuningBudget(configurations=7, tuning=2, scoring=3)
TASKS = [TuningTask(OURS, Setting(n=1_000), rounds, BUDGET) for rounds in (4, 8)]


class Killed(Exception):
    """Stands for the end of the process."""


class Here:
    """An executor that evaluates a formula instead of training, and fails after ``lives`` runs."""

    def __init__(self, lives: int) -> None:
        self.lives = lives
        self.seen: list[SingleRun] = []

    def submit(self, _: Any, run: SingleRun) -> Future[RunOutcome]:
        if len(self.seen) == self.lives:
            raise Killed
        self.seen.append(run)
        scale = dict(run.scales).get("beta", 1.0)
        score = (scale - 0.2 * run.rounds) ** 2 + 0.01 * run.replicate + (run.role == "scoring")
        future: Future[RunOutcome] = Future()
        future.set_result(RunOutcome(score=score, steps=run.rounds, gradients=2 * run.setting.n, participation=1))
        return future


def compared(folder: Path, lives: int = 10**6) -> tuple[Any, Here]:
    here = Here(lives)
    with open_cache(folder) as cache:
        try:
            return RunPool(here, cache, lambda _: None).tune(TASKS), here
        except Killed:
            return None, here


@pytest.mark.parametrize("lives", [1, 9, 20])
def test_a_killed_comparison_goes_on_where_it_was(tmp_path: Path, lives: int) -> None:
    whole, once = compared(tmp_path / "whole")
    killed, first = compared(tmp_path / "killed", lives)
    resumed, second = compared(tmp_path / "killed")
    assert killed is None
    assert resumed == whole
    # Runs in progress at the kill may be repeated, finished runs may not.
    kept = {run.digest() for run in first.seen[: max(0, lives - BUDGET.runs)]}
    assert not kept & {run.digest() for run in second.seen}
    again, third = compared(tmp_path / "killed")
    assert again == whole
    assert third.seen == []
    assert len(once.seen) == 2 * BUDGET.runs


def test_a_line_cut_short_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    compared(tmp_path)
    file = tmp_path / "runs.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    with open_cache(tmp_path) as cache:
        assert len(cache) == 5
        run = OURS.single_run(Setting(n=77), 2, GridPoint((0.0,) * len(OURS.knobs), (0,)), "tuning", 0)
        cache.put(run, RunOutcome(score=1.0))
    with open_cache(tmp_path) as cache:
        assert len(cache) == 6
        assert cache.get(run) == RunOutcome(score=1.0)


def test_two_comparisons_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with open_cache(tmp_path), pytest.raises(CheckpointError, match="in use"), open_cache(tmp_path):
        pass


def test_the_digest_knows_everything_that_a_run_depends_on() -> None:
    point = GridPoint((0.0,) * len(OURS.knobs), (0,))
    base = OURS.single_run(Setting(n=1_000), 4, point, "tuning", 0)
    others = [
        OURS.single_run(Setting(n=1_001), 4, point, "tuning", 0),
        OURS.single_run(Setting(n=1_000, epsilon=2.0), 4, point, "tuning", 0),
        OURS.single_run(Setting(n=1_000), 5, point, "tuning", 0),
        OURS.single_run(Setting(n=1_000), 4, GridPoint(point.exponents, (1,)), "tuning", 0),
        OURS.single_run(Setting(n=1_000), 4, GridPoint((1.0,) * len(OURS.knobs), (0,)), "tuning", 0),
        OURS.single_run(Setting(n=1_000), 4, point, "scoring", 0),
        OURS.single_run(Setting(n=1_000), 4, point, "tuning", 1),
    ]
    assert len({run.digest() for run in (base, *others)}) == 1 + len(others)


def test_a_killed_comparison_leaves_no_process_behind(tmp_path: Path) -> None:
    """After kill -9 of the parent, the workers of its pool exit."""
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from dpsco.research.compare.process_pool import open_pool\n"
        "from dpsco.research.compare.run_cache import open_cache\n"
        "if __name__ == '__main__':\n"
        "    with open_cache(Path(sys.argv[1])) as cache, open_pool(cache, 1, lambda _: None) as pool:\n"
        "        print(pool._executor.submit(os.getpid).result(), flush=True)\n"
        "        time.sleep(600)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(program)
    with subprocess.Popen([sys.executable, script, tmp_path / "out"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    for _ in range(600):
        if not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


def interrupted(folder: Path) -> None:
    """Interrupt a comparison during a long run."""
    with open_cache(folder) as cache, open_pool(cache, 1, lambda _: None) as pool:
        pool._executor.submit(time.sleep, 0).result()
        pool._executor.submit(time.sleep, 600)
        raise KeyboardInterrupt


def test_an_interrupted_comparison_does_not_wait_for_its_runs(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)
    assert time.monotonic() - began < 300
