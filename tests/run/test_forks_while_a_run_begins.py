"""A fork from the handler of a signal while a run is being made: the key exists already, its ledger not yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.test_shared_runs import PLAN

import dpsco.held_files as held_files
import dpsco.run.run as run_module
import dpsco.run.stage as stage_module
from dpsco import Account, Budget
from dpsco.engines.flower import presence
from dpsco.query import Clipped
from dpsco.run import Run, watching

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Forks:
    """The handler of SIGUSR1 forks, and both processes go on behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.child = monkeypatch, -1

    def __call__(self, *_: Any) -> None:
        self.child = os.fork()

    def behind(self, module: Any, name: str) -> None:
        """The signal arrives once, right behind the first call of ``module.name``."""
        real = getattr(module, name)

        def then(*args: Any, **options: Any) -> Any:
            made = real(*args, **options)
            if self.child == -1:
                os.kill(os.getpid(), signal.SIGUSR1)
            return made

        self._patch.setattr(module, name, then)

    def both(self, work: Callable[[], str]) -> tuple[str, str]:
        """Return what ``work`` says in this process and in the child that it forks."""
        reading, writing = os.pipe()
        try:
            said = work()
        except Exception as error:
            said = type(error).__name__
        finally:
            if self.child == 0:
                os.write(writing, said.encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            other = pipe.read().decode()
        os.waitpid(self.child, 0)
        return said, other


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    made = Forks(monkeypatch)
    before = signal.signal(signal.SIGUSR1, made)
    yield made
    signal.signal(signal.SIGUSR1, before)


def first_noise(**options: Any) -> str:
    """The noise of the first round of a run; each process has a sum of its own."""
    noise = []
    with watching(lambda query, clipped, released: noise.append(released.value - clipped.total)):
        run = Run(PLAN, oracle=None, **options)
    with run:
        own = (os.getpid() % 97) * run.query.grid
        run.absorb_sum(Clipped(np.full(PLAN.problem.dimension, own), 1))
        run.finish_round()
    return noise[0].tobytes().hex()


@pytest.mark.parametrize(("module", "name"), [(run_module, "new_key"), (stage_module, "derive")])
@pytest.mark.parametrize("on_disk", [False, True])
def test_two_processes_never_have_the_noise_of_one_key(
    forks: Forks, tmp_path: Path, module: Any, name: str, on_disk: bool
) -> None:
    forks.behind(module, name)
    options = {"checkpoint": tmp_path / "run"} if on_disk else {}
    here, there = forks.both(lambda: first_noise(**options))
    assert there in ("LedgerError", "CheckpointError")
    assert len(here) == 16 * PLAN.problem.dimension or (on_disk and here == "CheckpointError")


def test_a_fork_between_the_opening_of_a_folder_and_its_lock_does_not_share_the_lock(
    forks: Forks, tmp_path: Path
) -> None:
    forks.behind(held_files, "_opened")
    here, there = forks.both(lambda: first_noise(checkpoint=tmp_path / "run"))
    assert there in ("LedgerError", "CheckpointError")
    assert len(here) == 16 * PLAN.problem.dimension


def test_a_fork_between_the_opening_of_an_account_and_its_lock_charges_nothing(forks: Forks, tmp_path: Path) -> None:
    account = Account.create(tmp_path / "account.json", Budget(3.0, 1e-6))
    forks.behind(held_files, "_opened")

    def charge() -> str:
        account.charge(f"run {'here' if forks.child else 'there'}", Budget(1.0, 1e-6))
        return "charged"

    here, there = forks.both(lambda: charge())
    assert (here, there) == ("charged", "CheckpointError")
    assert len(Account(tmp_path / "account.json").runs) == 1


def test_the_count_of_a_federation_is_released_in_one_process(forks: Forks) -> None:
    forks.behind(presence, "new_key")
    began = os.getpid()
    here, there = forks.both(lambda: str(presence.Count(PLAN).release(os.getpid() % 97, None, "a run", began)))
    assert there == "LedgerError"
    assert float(here) == float(here)
