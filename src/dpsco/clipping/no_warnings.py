"""No warnings while code of the caller computes with rows: a warning that depends on a row is an output."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsco.fork_safety import ThreadLock

__all__ = ["no_warnings"]

_LOCK = ThreadLock()
_silent: list[Any] = []
"""The settings of warnings before the first pass that is running, once per pass: they are those of the process."""


@contextmanager
def no_warnings() -> Iterator[None]:
    """Switch warnings off until the last thread that asked for it has left."""
    with _LOCK.lock:
        if not _silent:
            before = warnings.catch_warnings()
            before.__enter__()
        else:
            before = _silent[0]
        _silent.append(before)
        warnings.simplefilter("ignore")
    try:
        yield
    finally:
        with _LOCK.lock:
            if len(_silent) == 1:
                _silent[0].__exit__(None, None, None)
            _silent.pop()
