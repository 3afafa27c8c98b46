"""Files of an object store (S3 and what speaks like it), by address: ``s3://bucket/folder``.

Keys, region and endpoint come from the environment, as AWS tools read them (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_DEFAULT_REGION``, ``AWS_ENDPOINT_URL``): an address holds no secret and may be printed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from dpsco.errors import DataError, InvalidArgument
from dpsco.rows.readers.source import arrow

__all__ = ["RemoteFile", "is_remote", "remote_files"]

SCHEME = "s3://"


def is_remote(name: str) -> bool:
    """Whether ``name`` is an address rather than a path of this machine."""
    return "://" in name


@dataclass(frozen=True)
class RemoteFile:
    """One object; picklable, and opened by whoever reads it."""

    key: str
    """``bucket/folder/part.parquet``."""

    @property
    def name(self) -> str:
        """The name without its folder."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.key).suffix

    def open(self) -> Any:
        """Open the object as a file of Arrow."""
        return _store().open_input_file(self.key)

    def stamp(self) -> tuple[int, int]:
        """Return the bytes of the object, and the nanoseconds of its last change."""
        found = _store().get_file_info(self.key)
        return int(found.size or 0), int(found.mtime_ns or 0)


def remote_files(address: str) -> list[RemoteFile]:
    """Return the object at ``address``, or the objects below it, in the order of their names; hidden ones left out."""
    if not address.startswith(SCHEME) or "@" in address:
        raise InvalidArgument(
            f"Expected an address of the form {SCHEME}bucket/folder, without keys in it: they are read from the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."
        )
    key = address.removeprefix(SCHEME).rstrip("/")
    fs, pa = arrow("pyarrow.fs"), arrow("pyarrow")
    try:
        found = _store().get_file_info(key)
        if found.type == fs.FileType.Directory:
            below = _store().get_file_info(fs.FileSelector(key, recursive=True))
            keys = sorted(info.path for info in below if info.type == fs.FileType.File)
        else:
            keys = [key] if found.type == fs.FileType.File else []
    except (pa.ArrowException, OSError):
        raise DataError(
            f"The store at {address!r} cannot be reached. Check the address, AWS_ENDPOINT_URL and the keys."
        ) from None
    return [RemoteFile(key) for key in keys if not PurePosixPath(key).name.startswith((".", "_"))]


@cache
def _store() -> Any:
    scheme, _, host = os.environ.get("AWS_ENDPOINT_URL", "").rpartition("://")
    return arrow("pyarrow.fs").S3FileSystem(endpoint_override=host or None, scheme=scheme or "https")
