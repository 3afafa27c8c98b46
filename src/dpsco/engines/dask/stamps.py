"""Whether a file is still the one that the driver looked at.

A worker that died costs time only if its shards are read again to the same rows. Of a file that was written anew in
another order, a row could be read for one round before and for another round behind the change.
"""

from __future__ import annotations

from dpsco.rows.readers.arrow import AnyFile
from dpsco.rows.readers.remote import RemoteFile
from dpsco.rows.readers.source import arrow

__all__ = ["Stamp", "stamp"]

Stamp = tuple[int, int]
"""Bytes of a file, and nanoseconds of its last change."""


def stamp(path: AnyFile) -> Stamp | None:
    """Return what tells a file from one that takes its place; None if it is not there or out of reach."""
    try:
        if isinstance(path, RemoteFile):
            return path.stamp()
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    except (arrow("pyarrow").ArrowException, OSError):
        return None
