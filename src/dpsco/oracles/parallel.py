"""Threads for work that leaves the interpreter lock alone: jobs that all share, or tasks with results in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

from dpsco.threads import available_threads, pool

__all__ = ["available_threads", "in_order", "one_blas_thread", "team"]

T = TypeVar("T")
Work = Callable[[int], None]
"""``work(k)`` in thread k: takes pieces of a job until none is left."""

_OPEN_JOBS = 4


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
        self._left.acquire()


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
            jobs.popleft().wait()
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
            jobs.popleft().wait()
    finally:  # after an error nothing of the round goes on in the background
        for job in jobs:
            job.abandon()


def _alone(work: Work, then: Callable[[], None]) -> None:
    work(0)
    then()


@cache
def _helpers(count: int, process: int) -> list[SimpleQueue[_Job]]:
    """One inbox a helper. Kept between rounds; a forked process has its own, since threads do not survive a fork."""
    inboxes: list[SimpleQueue[_Job]] = [SimpleQueue() for _ in range(count)]
    for k, inbox in enumerate(inboxes):
        threading.Thread(target=_help, args=(inbox, k + 1), name=f"dpsco-{k + 1}", daemon=True).start()
    return inboxes


def _help(inbox: SimpleQueue[_Job], k: int) -> None:
    while True:
        inbox.get().enter(k)


def in_order(tasks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Results of ``tasks`` in their order; at most four tasks a thread are taken from the iterable ahead."""
    if threads == 1:
        for task in tasks:
            yield task()
        return
    helpers = pool(threads, os.getpid())
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
