"""One process: what is secret does not survive a fork.

A forked child has a copy of everything its parent holds. With a noise key in it, parent and child would add the same
noise to different sums, and the difference of two releases would be a sum without noise.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["forget_in_children"]


class _Holder(Protocol):
    def forget(self) -> None:
        """Drop what a forked child must not have. Called in the child, before any other code runs there."""


_HOLDERS: weakref.WeakSet[_Holder] = weakref.WeakSet()


def forget_in_children(holder: _Holder) -> None:
    """Have ``holder.forget()`` called in every child that this process forks from now on."""
    _HOLDERS.add(holder)


def _forget_all() -> None:
    for holder in list(_HOLDERS):
        holder.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
