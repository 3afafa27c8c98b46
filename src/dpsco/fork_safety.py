"""Secrets do not survive a fork, nor do locks.

A forked child has a copy of its parent's memory. With the noise key, parent and child would add the same noise to
different sums, and the difference of two releases would contain no noise. A lock that another thread held would stay
locked in the child: that thread is not there to open it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

__all__ = ["ThreadLock", "forget_in_children"]


class _Holder(Protocol):
    def forget(self) -> None:
        """Drop the secrets. Called in a forked child, before any other code runs there."""


_HOLDERS: weakref.WeakSet[_Holder] = weakref.WeakSet()


def forget_in_children(holder: _Holder) -> None:
    """Call ``holder.forget()`` in every child that this process forks from now on."""
    _HOLDERS.add(holder)


class ThreadLock:
    """A lock among the threads of one process: ``with it.lock:``. A forked child has a new one.

    Re-entrant: the handler of a signal may come back to it.
    """

    def __init__(self) -> None:
        self.forget()
        forget_in_children(self)

    def forget(self) -> None:
        """Replace the lock. Whoever forks inside it releases the old one."""
        self.lock = threading.RLock()


def _forget_all() -> None:
    for holder in list(_HOLDERS):
        with contextlib.suppress(Exception):  # one that fails must not keep the others from forgetting
            holder.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
