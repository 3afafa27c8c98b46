"""A live run belongs to one process: real forks, threads, and what a child may still do."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import LedgerError
from dpsco.query import Clipped, Query
from dpsco.release.ledger import MemoryLedger, open_folder
from dpsco.release.noise import Normals, new_key
from dpsco.release.releaser import Releaser

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ROUNDS, WIDTH = 4, 3
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), WIDTH)
PLAN = dpsco.Plan(
    problem=PROBLEM,
    n=64,
    budget=dpsco.Budget(1.0, 1e-6),
    method=dpsco.AcceleratedSRGD(rounds=ROUNDS, beta=0.25, clip=1.0),
)


def in_a_child(work: Callable[[], object]) -> str:
    """What ``work`` raises in a forked child: the name of the error, or "nothing"; the parent goes on."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                work()
                said = "nothing"
            except BaseException as error:
                said = type(error).__name__
                if not isinstance(error, LedgerError):
                    traceback.print_exc()
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def asked(step: int) -> Query:
    noise = PLAN.schedule.calibration
    return Query(step, (np.zeros(WIDTH),), (1.0,), noise.clip, 16, noise.grid, noise.rowwise)


def total(value: float) -> Clipped:
    return Clipped(np.full(WIDTH, value), 1)


def releaser(ledger: object) -> Releaser:
    return Releaser(PLAN.schedule.calibration, PLAN.schedule.mechanism, WIDTH, ledger)  # type: ignore[arg-type]


def test_two_children_of_a_live_run_release_nothing_and_the_parent_goes_on() -> None:
    source = releaser(MemoryLedger(new_key()))
    source.release(asked(0), total(0.0))
    for value in (0.25, 0.5):
        assert in_a_child(lambda value=value: source.release(asked(1), total(value))) == "LedgerError"
    source.release(asked(1), total(0.0))


def test_a_run_forked_before_its_first_round_releases_nothing_in_the_child() -> None:
    source = releaser(MemoryLedger(new_key()))
    assert in_a_child(lambda: source.release(asked(0), total(0.0))) == "LedgerError"


def test_a_child_finds_neither_key_nor_noise() -> None:
    key = new_key()
    ledger, normals = MemoryLedger(key), Normals(key)
    normals(0, 10)
    source = releaser(ledger)
    source.release(asked(0), total(0.0))
    for work in (
        lambda: ledger.key,
        lambda: ledger.complete,
        lambda: ledger.fingerprint(0),
        lambda: ledger.erase_key(),
        lambda: normals(0, 10),
        lambda: normals.dither(0, 10, 5),
        lambda: source.sample(0, 10, 0.5),
        lambda: source.close(),
    ):
        assert in_a_child(work) == "LedgerError"


def test_a_child_does_not_inherit_a_lock_that_a_thread_of_its_parent_holds() -> None:
    source = releaser(MemoryLedger(new_key()))
    with source._one_at_a_time:
        assert in_a_child(lambda: source.release(asked(0), total(0.0))) == "LedgerError"


def test_partial_fit_goes_on_in_the_process_that_began_it_only() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, WIDTH)), rng.integers(0, 2, 60)
    model = dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1], n=60)
    model.partial_fit(X[:30], y[:30])
    for k in (0, 1):
        assert in_a_child(lambda k=k: model.partial_fit(X[30:] * k, y[30:])) == "LedgerError"
    assert in_a_child(lambda: model.partial_fit(X[30:31], y[30:31])) == "LedgerError"  # also where no round ends
    model.partial_fit(X[30:], y[30:])
    assert model.coef_.shape == (1, WIDTH)
    assert in_a_child(lambda: model.predict(X)) == "nothing"  # a finished model is nobody's secret


def test_a_child_that_goes_on_with_a_training_is_refused_before_it_reads_a_row() -> None:
    """Its rows may come from a thread that reads ahead: there is none in the child, which would wait for ever."""
    main, read, said = os.getpid(), [], []

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(4):
            read.append(os.getpid())
            yield np.zeros((16, WIDTH)), np.zeros(16)

    reading, writing = os.pipe()

    def fork(done: Any) -> None:
        if done.step == 1 and os.getpid() == main and os.fork() == 0:
            said.append("child")

    try:
        dpsco.train(PLAN, dpsco.stream(chunks()), on_round=fork)
    except LedgerError:
        os.write(writing, f"refused {sum(process != main for process in read)}".encode())
    finally:
        if said:
            os._exit(0)
    os.wait()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read().decode() == "refused 0"


def test_a_child_of_a_checkpointed_run_writes_nothing(tmp_path: Path) -> None:
    with open_folder(tmp_path, {}, "digest", WIDTH, ROUNDS, new_key(), resume=False) as ledger:
        source = releaser(ledger)
        first = source.release(asked(0), total(0.0)).value
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for work in (
            lambda: source.release(asked(1), total(0.5)),
            lambda: ledger.value(0),
            lambda: ledger.store(1, np.zeros(WIDTH)),
            lambda: ledger.record(1, b"x" * 32),
            lambda: ledger.erase_key(),
        ):
            assert in_a_child(work) == "LedgerError"
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert np.array_equal(source.stored(0).value, first)


def test_the_lock_of_a_folder_ends_with_its_process_although_a_child_lives_on(tmp_path: Path) -> None:
    """A child forked during a run keeps no copy of the lock: the run can be resumed while the child is there."""
    wait, go = os.pipe()
    with open_folder(tmp_path, {}, "digest", WIDTH, ROUNDS, new_key(), resume=False):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(wait, 1)
            os._exit(0)
    with open_folder(tmp_path, {}, "digest", WIDTH, ROUNDS, new_key(), resume=True):
        pass
    os.close(go)
    os.waitpid(child, 0)
    os.close(wait)


def test_a_child_may_begin_runs_of_its_own() -> None:
    releaser(MemoryLedger(new_key())).release(asked(0), total(0.0))
    assert in_a_child(lambda: releaser(MemoryLedger(new_key())).release(asked(0), total(0.0))) == "nothing"


def test_threads_release_a_round_once() -> None:
    """Eight threads at once with eight sums, 20 times: one value leaves, the others are refused."""
    for _ in range(20):
        source, gate = releaser(MemoryLedger(new_key())), threading.Barrier(8)
        found: list[object] = []

        def work(value: float, source: Releaser = source, gate: threading.Barrier = gate, found: list = found) -> None:
            gate.wait()
            try:
                found.append(source.release(asked(0), total(value)).value)
            except LedgerError as error:
                found.append(error)

        threads = [threading.Thread(target=work, args=(k / 16,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(value, np.ndarray) for value in found) == 1
        assert sum(isinstance(value, LedgerError) for value in found) == 7
