"""Whether a file is still the one that was looked at when the run began.

Of files that are written again in another order while they are read, a row could be read twice: at its old place for
one round, and at its new place for a later one. So could a row of a file that a cluster reads again, because a worker
died.

Guarantee: rows of a local file are handed out only if its size and the time of its last change are, after they were
read, those of the beginning. Cost: one look at the file's entry for each block of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dpsco.rows.readers.remote import RemoteFile
from dpsco.rows.readers.source import arrow, damaged

__all__ = ["CHANGED", "Stamp", "Stamps", "stamp"]

CHANGED = "is not as it was when the run began. Files must stay as they are during a run."

Stamp = tuple[int, int]
"""Bytes of a file, and nanoseconds of its last change."""

T = TypeVar("T")


def stamp(path: Path | RemoteFile) -> Stamp | None:
    """Return what tells a file from one that takes its place; None if it is not there or out of reach."""
    if isinstance(path, RemoteFile):
        try:
            return path.stamp()
        except (arrow("pyarrow").ArrowException, OSError):
            return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class Stamps:
    """What local files were at the beginning. An object of a store is not asked for: that is a request per block."""

    def __init__(self, paths: Sequence[Any]) -> None:
        self._known = {path: stamp(path) for path in paths if isinstance(path, Path)}

    def check(self, path: Any) -> None:
        """Raise ``DataError`` if a file changed."""
        if path in self._known and stamp(path) != self._known[path]:
            damaged(path, CHANGED)

    def watched(self, path: Any, items: Iterable[T]) -> Iterator[T]:
        """Yield what was read from a file as long as it has not changed."""
        for item in items:
            self.check(path)
            yield item
