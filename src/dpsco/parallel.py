"""Threads kept for work that leaves the interpreter lock alone: kernels, NumPy on long vectors, hashes, draws.

One team serves all of it, and the caller is one of the team: where as many threads work as there are processors, and
always the same ones, the system leaves each on a processor of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["available_threads", "for_each", "in_order", "one_blas_thread", "team"]

T = TypeVar("T")
Work = Callable[[int], None]
"""``work(k)`` in thread k: takes pieces of a job until none is left."""

_OPEN_JOBS = 4
_GROWING = threading.Lock()


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Job:
    """Work that a helper may enter while it is open; the caller works on it too, so no helper is waited for in vain."""

    __slots__ = ("_closed", "_errors", "_inside", "_left", "_lock", "_then", "_work")

    def __init__(self, work: Work, then: Callable[[], None]) -> None:
        self._work: Work | None = work
        self._then = then
        self._lock, self._left = threading.Lock(), threading.Lock()
        self._left.acquire()
        self._inside, self._closed = 0, False
        self._errors: list[BaseException] = []

    def enter(self, k: int) -> None:
        with self._lock:
            work = self._work
            if work is None:
                return
            self._inside += 1
        try:
            work(k)
        except BaseException as error:  # the caller's to raise
            self._errors.append(error)
        finally:
            del work  # holds rows
            with self._lock:
                self._inside -= 1
                if self._closed and not self._inside:
                    self._left.release()

    def close(self) -> None:
        """Nobody enters any more, and the rows are let go."""
        with self._lock:
            if not self._closed and not self._inside:
                self._left.release()
            self._closed, self._work = True, None

    def wait(self) -> None:
        """Until everybody has left a closed job; then raise what went wrong inside, or go on."""
        self._left.acquire()
        if self._errors:
            raise self._errors[0]
        self._then()

    def abandon(self) -> None:
        """Close, and wait until everybody has left."""
        self.close()
        while self._inside:  # no lock: whoever was interrupted may hold it
            time.sleep(1e-3)


@contextmanager
def team(threads: int) -> Iterator[Callable[[Work, Callable[[], None]], None]]:
    """``share(work, then)`` runs ``work(0)`` here and ``work(1)`` .. in helpers that are free.

    ``then()`` follows here when all have left the job, in the order of the jobs; all is done when the context exits.
    """
    if threads == 1:
        yield _alone
        return
    helpers, jobs = _helpers(threads - 1, os.getpid()), deque[_Job]()

    def share(work: Work, then: Callable[[], None]) -> None:
        while len(jobs) >= _OPEN_JOBS:
            jobs[0].wait()
            jobs.popleft()
        job = _Job(work, then)
        jobs.append(job)
        try:
            for helper in helpers:
                helper.put(job)
            work(0)
        finally:
            job.close()

    try:
        yield share
        while jobs:
            jobs[0].wait()  # it stays in the list until all have left: an interrupt leaves nobody behind
            jobs.popleft()
    finally:  # after an error nothing of the round goes on in the background
        for job in jobs:
            job.abandon()


def _alone(work: Work, then: Callable[[], None]) -> None:
    work(0)
    then()


def _helpers(count: int, process: int) -> list[SimpleQueue[_Job]]:
    """The inboxes of the first ``count`` helpers, who are kept: one team, however many of it a job asks for."""
    inboxes = _team(process)
    with _GROWING:
        while len(inboxes) < count:
            inboxes.append(SimpleQueue())
            name = f"dpsco-{len(inboxes)}"
            threading.Thread(target=_help, args=(inboxes[-1], len(inboxes)), name=name, daemon=True).start()
    return inboxes[:count]


@cache
def _team(process: int) -> list[SimpleQueue[_Job]]:
    """A forked process has a team of its own, since threads do not survive a fork."""
    return []


def _help(inbox: SimpleQueue[_Job], k: int) -> None:
    while True:
        inbox.get().enter(k)


def for_each(work: Callable[[T], Any], items: Iterable[T]) -> None:
    """``work(item)`` for each item, here and in helpers; an error is raised when nobody is at work any more."""
    todo = list(items)
    left = iter(todo)  # whoever is free takes the next one

    def take(_: int) -> None:
        for item in left:
            work(item)

    with team(min(available_threads(), len(todo) or 1)) as share:
        share(take, lambda: None)


def in_order(tasks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Results of ``tasks`` in their order; at most four tasks a thread are taken from the iterable ahead."""
    if threads == 1:
        for task in tasks:
            yield task()
        return
    helpers = _pool(threads, os.getpid())
    waiting: deque[Future[T]] = deque()
    try:
        for task in tasks:
            waiting.append(helpers.submit(task))
            if len(waiting) == 4 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # after an error nothing of the round goes on in the background
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Kept for the life of a process; a forked one has its own, since threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpsco")


def one_blas_thread() -> Any:
    """Context in which NumPy's matrix library uses one thread a call.

    Its own threads change the bits of sums with their number, and wait for each other: on busy cores the norm of 1e5
    numbers takes milliseconds instead of microseconds.
    """
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
