"""A process that is forked while other threads train has none of their locks, and trains itself."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import dpsco
from dpsco import parallel
from dpsco.clipping import no_warnings
from dpsco.fork_safety import ThreadLock
from dpsco.lazy import cached_property
from dpsco.rows.readers import csv_parse

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ENTERED, LEAVE = threading.Event(), threading.Event()


class Planned:
    """An object with a value that takes long to compute in one thread."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow

    @cached_property
    def value(self) -> int:
        """Seven."""
        if self.slow:
            ENTERED.set()
            LEAVE.wait(20)
        return 7


def enter(block: AbstractContextManager[object]) -> None:
    with block:
        pass


def ends_in_a_fork(work: Callable[[], object]) -> bool:
    """Whether ``work`` ends in a child of this process, within five seconds."""
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_fork_does_not_do_what_its_parent_has_to_do() -> None:
    """The noise of the parent's round, say, while the parent's rows come from forks."""

    def shared() -> None:
        with parallel.team(2) as share:
            share(lambda _: time.sleep(0.05), lambda: None)  # long enough for the helper to join

    with parallel.beside(lambda: os._exit(1)):
        assert ends_in_a_fork(shared)


def test_a_fork_computes_what_another_thread_was_computing() -> None:
    slow = Planned(slow=True)
    other = threading.Thread(target=lambda: slow.value)
    other.start()
    try:
        assert ENTERED.wait(5)
        assert ends_in_a_fork(lambda: Planned(slow=False).value)
    finally:
        LEAVE.set()
        other.join()
    assert slow.value == 7


@pytest.mark.parametrize(
    ("guard", "work"),
    [
        pytest.param(parallel._GROWING, lambda: parallel._helpers(1, os.getpid()), id="threads of its own"),
        pytest.param(no_warnings._LOCK, lambda: enter(no_warnings.no_warnings()), id="warnings"),
        pytest.param(csv_parse._SILENT, lambda: enter(csv_parse.silent()), id="csv"),
    ],
)
def test_a_fork_has_no_lock_of_another_thread(guard: ThreadLock, work: Callable[[], object]) -> None:
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with guard.lock:
            held.set()
            leave.wait(20)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert held.wait(5)
        assert ends_in_a_fork(work)
    finally:
        leave.set()
        other.join()


def test_no_module_has_the_lock_of_functools() -> None:
    folder = Path(dpsco.__file__).parent
    found = [
        path.name
        for path in folder.rglob("*.py")
        if path.name != "lazy.py" and re.search(r"functools.*cached_property", path.read_text(encoding="utf-8"))
    ]
    assert not found
