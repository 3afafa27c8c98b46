"""Threads for work that releases the interpreter lock: kernels, NumPy on long vectors, hashes, random numbers.

All work shares one team of threads, and the caller is one of them. With as many threads as processors, and always the
same threads, the system keeps each thread on its own processor.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

from dpsco.fork_safety import ThreadLock

__all__ = ["available_threads", "beside", "for_each", "in_order", "one_blas_thread", "team"]

T = TypeVar("T")
Work = Callable[[int], None]
"""``work(k)`` runs in thread k and processes pieces of a job until none is left."""

_OPEN_JOBS = 4
_GROWING = ThreadLock()


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Job:
    """Work that helper threads may join while it is open. The caller also works, so it never idles waiting for one."""

    __slots__ = ("_aside", "_closed", "_errors", "_inside", "_left", "_lock", "_then", "_work")

    def __init__(self, work: Work, then: Callable[[], None], aside: Callable[[], Any] | None) -> None:
        self._work: Work | None = work
        self._then, self._aside = then, aside
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
            aside, self._aside = self._aside, None
        try:
            if aside is not None:
                aside()
            work(k)
        except BaseException as error:  # raised by ``wait`` in the caller
            self._errors.append(error)
        finally:
            del work, aside  # they reference rows and noise
            with self._lock:
                self._inside -= 1
                if self._closed and not self._inside:
                    self._left.release()

    def close(self) -> None:
        """Admit no further helper and drop the reference to the rows."""
        with self._lock:
            # An interrupt behind the release may have ended an earlier call.
            if not self._closed and not self._inside and self._left.locked():
                self._left.release()
            self._closed, self._work, self._aside = True, None, None

    def wait(self) -> None:
        """Wait until all helpers have left a closed job, then raise their first error or call ``then``."""
        self._left.acquire()
        if self._errors:
            raise self._errors[0]
        self._then()

    def abandon(self) -> None:
        """Close the job and wait until all helpers have left."""
        self.close()
        while self._inside:  # no lock: an interrupted thread may hold it
            time.sleep(1e-3)


class team:  # noqa: N801 - called like a function; a generator in its place costs rounds a few microseconds
    """Yield ``share(work, then)``, which runs ``work(0)`` in the caller and ``work(1)`` .. in idle helper threads.

    The caller runs ``then()`` once all threads have left the job, in the order of the jobs. All jobs are complete when
    the context exits. An error of any thread is raised in the caller.
    """

    __slots__ = ("_helpers", "_jobs")

    def __init__(self, threads: int) -> None:
        self._helpers = _helpers(threads - 1, os.getpid()) if threads > 1 else []
        self._jobs = deque[_Job]()

    def __enter__(self) -> Callable[[Work, Callable[[], None]], None]:
        return self._share if self._helpers else _alone

    def _share(self, work: Work, then: Callable[[], None]) -> None:
        jobs = self._jobs
        while len(jobs) >= _OPEN_JOBS:
            jobs[0].wait()
            jobs.popleft()
        job = _Job(work, then, _aside())
        jobs.append(job)
        try:
            for helper in self._helpers:
                helper.put(job)
            work(0)
        finally:
            job.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        jobs = self._jobs
        try:
            while jobs and kind is None:
                jobs[0].wait()  # the job stays in the list until all have left, so an interrupt abandons none
                jobs.popleft()
        finally:  # after an error, no work of the round continues in the background
            for job in jobs:
                job.abandon()


def _alone(work: Work, then: Callable[[], None]) -> None:
    work(0)
    then()


class beside:  # noqa: N801 - as ``team``
    """Let the first helper that joins the first job of this context run ``task`` before it works.

    The caller begins with the job meanwhile: a helper takes as long to wake up as many rows take. Without helpers the
    task does not run, nor if the job ends before one joins: it prepares what whoever needs it makes otherwise.
    """

    __slots__ = ("__weakref__", "_before", "_process", "_task")

    def __init__(self, task: Callable[[], Any]) -> None:
        self._task: Callable[[], Any] | None = task
        self._before, self._process = None, os.getpid()

    def __enter__(self) -> None:
        self._before = getattr(_HERE, "aside", None)
        # The context lives until it exits, and no longer, also if an interrupt ends it before its ``__exit__`` runs.
        _HERE.aside = weakref.ref(self)

    def __exit__(self, *_: object) -> None:
        _HERE.aside = self._before

    def take(self) -> Callable[[], Any] | None:
        """Return the task, once; None in a fork, which has other work."""
        task, self._task = self._task, None
        return task if self._process == os.getpid() else None


def _aside() -> Callable[[], Any] | None:
    """Take the task of the context that this thread is in."""
    inside = getattr(_HERE, "aside", None)
    context: beside | None = None if inside is None else inside()
    return None if context is None else context.take()


def _helpers(count: int, process: int) -> list[SimpleQueue[_Job]]:
    """Return the inboxes of the first ``count`` helper threads; threads are created once and reused."""
    inboxes = _team(process)
    if len(inboxes) >= count:
        return inboxes[:count]
    with _GROWING.lock:
        while len(inboxes) < count:
            inboxes.append(SimpleQueue())
            name = f"dpsco-{len(inboxes)}"
            threading.Thread(target=_help, args=(inboxes[-1], len(inboxes)), name=name, daemon=True).start()
    return inboxes[:count]


@cache
def _team(process: int) -> list[SimpleQueue[_Job]]:
    """Return the inboxes of a process; threads do not survive a fork, so a forked process starts empty."""
    return []


def _help(inbox: SimpleQueue[_Job], k: int) -> None:
    while True:
        inbox.get().enter(k)


def for_each(work: Callable[[T], Any], items: Iterable[T]) -> None:
    """Run ``work(item)`` for each item, in the caller and in helpers; raise an error once all threads have stopped."""
    todo = list(items)
    left = iter(todo)  # each idle thread takes the next item

    def take(_: int) -> None:
        for item in left:
            work(item)

    with team(min(available_threads(), len(todo) or 1)) as share:
        share(take, lambda: None)


def in_order(tasks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Yield the results of ``tasks`` in order. At most four tasks per thread are taken from the iterable ahead.

    A task that comes back to this function runs its own tasks by itself: workers that wait for workers would wait for
    ever. So would the handler of a signal that waits for a lock of the call it interrupted; putting tasks takes none.
    """
    if threads == 1 or getattr(_HERE, "works", False):
        for task in tasks:
            yield task()
        return
    todo = _workers(threads, os.getpid())
    waiting: deque[Future[T]] = deque()
    try:
        for task in tasks:
            waiting.append(Future())
            todo.put((waiting[-1], task))
            if len(waiting) == 4 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # after an error, no work of the round continues in the background
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()


_Todo = SimpleQueue[tuple["Future[Any]", Callable[[], Any]]]
_HERE = threading.local()
"""``works`` is True in workers; ``aside`` is a weak reference to the innermost ``beside``."""


def _workers(threads: int, process: int) -> _Todo:
    """Return the inbox of ``threads`` workers; they are created once and reused."""
    todo, begun = _pool(threads, process)
    with _GROWING.lock:
        while len(begun) < threads:
            worker = threading.Thread(target=_work, args=(todo,), name=f"dpsco-worker-{len(begun)}", daemon=True)
            worker.start()  # an interrupt behind it costs one thread too many, not one too few
            begun.append(worker)
    return todo


@cache
def _pool(threads: int, process: int) -> tuple[_Todo, list[threading.Thread]]:
    """Return the inbox of a process; threads do not survive a fork, so a forked process starts empty."""
    return SimpleQueue(), []


def _work(todo: _Todo) -> None:
    _HERE.works = True
    while True:
        _answer(*todo.get())


def _answer(future: Future[T], task: Callable[[], T]) -> None:
    """Run one task. It references rows, and so may its result: nothing here keeps them until the next one."""
    if future.set_running_or_notify_cancel():
        try:
            result = task()
        except BaseException as error:  # raised by ``result`` in the caller
            future.set_exception(error)
        else:
            future.set_result(result)


def one_blas_thread() -> Any:
    """Limit BLAS to one thread per call, in a context; our oracles parallelise themselves.

    The number of BLAS threads changes the bits of sums. BLAS threads also wait for each other: on busy cores the norm
    of 1e5 numbers takes milliseconds instead of microseconds.
    """
    return _OneThread(_libraries("scipy.linalg" in sys.modules))


class _OneThread:
    """Limits libraries from now on, and until the end of a ``with`` block if it is used as one.

    The number of threads belongs to the process, so limits are counted: of runs in several threads, the last to end
    gives the libraries their threads back. Otherwise the end of one run would change the bits of another.
    """

    def __init__(self, libraries: list[Any]) -> None:
        with _LIMITED.lock:
            _LIMITED.holders.add(self)
            for library in libraries:
                threads = library.num_threads
                if threads is not None and threads != 1:
                    _LIMITED.before.setdefault(library.filepath, (library, threads))
                    _set_threads(library, 1)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        with _LIMITED.lock:
            _LIMITED.holders.discard(self)
            while _LIMITED.before and not _LIMITED.holders:
                _set_threads(*_LIMITED.before.popitem()[1])


def _set_threads(library: Any, threads: int) -> None:
    """Set the number of threads of a library, from whichever thread of this process.

    In threadpoolctl 3.8 the first thread that sets it for OpenBLAS is the only one that can, for as long as it lives,
    and calls of others do nothing. The count decides here, under a lock, so no thread keeps that right.
    """
    let_go = getattr(library, "clear_controlling_thread", None)
    if let_go is not None:
        let_go(force=True)
    library.set_num_threads(threads)
    if let_go is not None:
        let_go(force=True)


class _Limited(ThreadLock):
    """Who limits BLAS in this process, and how many threads the libraries had before."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: set[_OneThread] = set()
        self.before: dict[str, tuple[Any, int]] = {}


_LIMITED = _Limited()


@cache
def _libraries(scipy: bool) -> list[Any]:
    """Return the BLAS libraries loaded so far; scipy brings one of its own when it is first used."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
