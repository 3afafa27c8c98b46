"""Attributes that are computed once, without a lock."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801  (the name of the original)
        """As that of Python 3.12: two threads may compute a value twice, and no thread waits for another.

        That of Python 3.11 has one lock for all objects of a class. A process that is forked while another thread
        computes a value has a copy of the lock that nobody opens, and waits for it without end.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the value of ``instance``, computed unless it is there."""
            if instance is None:
                return self
            kept = instance.__dict__
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]
