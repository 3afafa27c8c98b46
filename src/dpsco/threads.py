"""Threads kept for work that leaves the interpreter lock alone: NumPy on long vectors, hashes, draws."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

__all__ = ["available_threads", "for_each", "pool"]

T = TypeVar("T")


def available_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def for_each(work: Callable[[T], Any], items: Iterable[T]) -> None:
    """``work(item)`` for each item, in threads; the first error is raised when all have ended."""
    threads = available_threads()
    if threads == 1:
        for item in items:
            work(item)
        return
    futures = [pool(threads, os.getpid()).submit(work, item) for item in items]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise errors[0]


@cache
def pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Kept for the life of a process; a forked one has its own, since threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpsco")
