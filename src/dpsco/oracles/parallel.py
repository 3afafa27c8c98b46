"""Threads for work that leaves the interpreter lock alone, with results in the order of the tasks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, TypeVar

__all__ = ["available_threads", "in_order", "one_blas_thread"]

T = TypeVar("T")


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(tasks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Results of ``tasks`` in their order; at most four tasks a thread are taken from the iterable ahead."""
    if threads == 1:
        for task in tasks:
            yield task()
        return
    pool = _pool(threads, os.getpid())
    waiting: deque[Future[T]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
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


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Kept between rounds; a forked process has its own, since threads do not survive a fork."""
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
