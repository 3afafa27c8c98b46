"""Reading ahead in a thread of its own, so that reading overlaps computing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["prefetched"]

T = TypeVar("T")


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


def prefetched(items: Iterable[T], ahead: int = 4) -> Iterator[T]:
    """Yield the same items in the same order, up to ``ahead`` of them read in advance.

    Guarantee: an error of the source is raised here, after the items before it; closing the iterator ends the thread.
    """
    waiting: queue.Queue[object] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()
    worker = threading.Thread(target=_fill, args=(items, waiting, stopped), name="dpsco-prefetch", daemon=True)

    def drain() -> Iterator[T]:
        worker.start()
        try:
            while (item := waiting.get()) is not _END:
                if isinstance(item, _Failed):
                    raise item.error
                yield item  # type: ignore[misc]
        finally:
            stopped.set()
            if threading.current_thread() is not worker:
                worker.join(timeout=5.0)  # a reader still at work when the interpreter ends would crash it

    return drain()


def _fill(items: Iterable[object], waiting: queue.Queue[object], stopped: threading.Event) -> None:
    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.02)
                return True
            except queue.Full:
                continue
        return False

    try:
        for item in items:
            if not put(item):
                return
        put(_END)
    except BaseException as error:  # it belongs to whoever reads
        put(_Failed(error))
