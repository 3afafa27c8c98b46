"""Secrets do not survive a fork.

A forked child has a copy of its parent's memory. With the noise key, parent and child would add the same noise to
different sums, and the difference of two releases would contain no noise.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["forget_in_children"]


class _Holder(Protocol):
    def forget(self) -> None:
        """Drop the secrets. Called in a forked child, before any other code runs there."""


_HOLDERS: weakref.WeakSet[_Holder] = weakref.WeakSet()


def forget_in_children(holder: _Holder) -> None:
    """Call ``holder.forget()`` in every child that this process forks from now on."""
    _HOLDERS.add(holder)


def _forget_all() -> None:
    for holder in list(_HOLDERS):
        with contextlib.suppress(Exception):  # one that fails must not keep the others from forgetting
            holder.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
