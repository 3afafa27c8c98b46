"""A run that threads share, that forks Python is not told of copy, or that is used after its folder was given back."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.run.test_surveyed import PLAN as SURVEYED
from tests.run.test_surveyed import data

import dpsco
import dpsco.run.run as run_module
from dpsco.held_files import locked
from dpsco.query import Batch
from dpsco.run import Run, watching
from dpsco.run.train import library_oracle

N, WIDTH = 64, 3
PLAN = dpsco.Plan(
    problem=dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), WIDTH),
    n=N,
    budget=dpsco.Budget(1.0, 1e-6),
    method=dpsco.AcceleratedSRGD(rounds=4, beta=0.25, clip=1.0),
)


def rows(count: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, WIDTH)) / 3, (rng.random(count) < 0.5) * 1.0


def test_threads_behind_one_survey_do_not_make_its_noise_twice(monkeypatch):
    """Both would plan the rounds: two ledgers, one key, and round 0 released for two sums."""
    features, labels = data()
    seen, errors = [], []
    with watching(lambda query, clipped, released: seen.append((query.step, released.value - clipped.total))):
        run = Run(SURVEYED, oracle=library_oracle(SURVEYED))
    first = SURVEYED.method.rows
    run.absorb(Batch(0, [(features[:first], labels[:first])]))
    planned, released, real = threading.Event(), threading.Event(), run_module.rounds_behind

    def slow(*args, **options):
        made = real(*args, **options)
        if threading.current_thread() is late:
            planned.set()
            released.wait(0.5)
        return made

    def more():
        try:
            run.finish_round()
            run.absorb(Batch(0, [(features[first : first + 50], labels[first : first + 50])]))
            run.finish_round()
        except dpsco.LedgerError as error:
            errors.append(error)
        released.set()

    monkeypatch.setattr(run_module, "rounds_behind", slow)
    late, other = threading.Thread(target=run.finish_round), threading.Thread(target=more)
    late.start()
    assert planned.wait(30)
    other.start()
    late.join()
    other.join()
    run.absorb(Batch(0, [(features[first + 50 : first + 100], labels[first + 50 : first + 100])]))
    run.finish_round()
    noises = [noise for step, noise in seen[1:] if step == 0]
    assert len(noises) == 1
    assert len(errors) == 1


def test_rows_that_a_thread_adds_late_do_not_count_in_another_round():
    """They answered another query. Added to a sum that was read before, they would bring its rows along."""
    features, labels = rows()
    inner = library_oracle(PLAN)

    class Late:
        def answer(self, query, batch):
            clipped = inner.answer(query, batch)
            if threading.current_thread() is late:
                answered.set()
                assert finished.wait(30)
            return clipped

    sums = []
    with watching(lambda query, clipped, released: sums.append((query.step, clipped.total))):
        run = Run(PLAN, oracle=Late())
    answered, finished = threading.Event(), threading.Event()
    late = threading.Thread(target=lambda: run.absorb(Batch(0, [(features[8:16], labels[8:16])])))
    run.absorb(Batch(0, [(features[:8], labels[:8])]))
    late.start()
    assert answered.wait(30)
    run.finish_round()
    finished.set()
    late.join()
    run.finish_round()
    assert sums[1][0] == 1
    np.testing.assert_array_equal(sums[1][1], 0.0)


def test_a_run_whose_folder_was_given_back_does_not_bring_the_key_back(tmp_path):
    features, labels = rows()
    with Run(PLAN, oracle=library_oracle(PLAN), checkpoint=tmp_path) as run:
        run.absorb(Batch(0, [(features[:16], labels[:16])]))
        run.finish_round()
    dpsco.train(PLAN, dpsco.stream(features, labels), checkpoint=tmp_path, resume=True)
    complete = (tmp_path / "secret.json").read_bytes()
    assert json.loads(complete)["key"] is None
    for call in (lambda: run.absorb(Batch(1, [(features[16:32], labels[16:32])])), run.finish_round):
        with pytest.raises(dpsco.LedgerError, match="resume"):
            call()
    assert (tmp_path / "secret.json").read_bytes() == complete


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_that_python_is_not_told_of_does_not_unlock_the_folder_of_its_parent(tmp_path):
    script = (
        "import sys, pathlib\n"
        "from dpsco import CheckpointError\n"
        "from dpsco.held_files import locked\n"
        "try:\n"
        "    with locked(pathlib.Path(sys.argv[1]), 'folder'): print('taken')\n"
        "except CheckpointError: print('held')\n"
    )
    lock = locked(tmp_path, "folder")
    with lock:
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            try:
                lock.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        said = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "held"


def test_a_signal_handler_that_goes_on_with_a_run_makes_no_noise_twice(monkeypatch) -> None:
    """It runs in the thread that plans the rounds behind a survey, which holds the lock."""
    features, labels = data()
    seen, real, handled = [], run_module.rounds_behind, []
    with watching(lambda query, clipped, released: seen.append((query.step, clipped.total))):
        run = Run(SURVEYED, oracle=library_oracle(SURVEYED))
    first = SURVEYED.method.rows
    run.absorb(Batch(0, [(features[:first], labels[:first])]))

    def interrupted(*args, **options):
        if not handled:
            handled.append(True)
            run.finish_round()
            run.absorb(Batch(0, [(features[first : first + 50], labels[first : first + 50])]))
            run.finish_round()
        return real(*args, **options)

    monkeypatch.setattr(run_module, "rounds_behind", interrupted)
    run.finish_round()
    while not run.complete:
        run.absorb(Batch(run.query.step, [(features[first + 50 : first + 90], labels[first + 50 : first + 90])]))
        run.finish_round()
    steps = [step for step, _ in seen[1:]]
    assert steps == sorted(set(steps))
    assert len(run.trace) == len(seen)


def test_a_signal_handler_that_adds_rows_inside_a_release_does_not_wait_for_its_end(monkeypatch) -> None:
    """Its rows are summed with a helper, which would draw noise under the lock that the interrupted release holds."""
    features, labels = np.zeros((4096, 300)), np.zeros(4096)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 300)
    plan = dpsco.Plan(problem=problem, n=16_384, budget=PLAN.budget, method=PLAN.method)
    run = Run(plan, oracle=dpsco.clipping.CompiledOracle(dpsco.Logistic(), threads=2))
    run.absorb(Batch(0, [(features, labels)]))
    ledger, handled = run._stage.ledger, []
    real = ledger.record

    def interrupted(step, fingerprint):
        real(step, fingerprint)
        if not handled:
            handled.append(step)
            run.absorb(Batch(0, [(features, labels)]))

    monkeypatch.setattr(ledger, "record", interrupted)
    caller = threading.Thread(target=run.finish_round, daemon=True)
    caller.start()
    caller.join(60)
    assert handled
    assert not caller.is_alive()
