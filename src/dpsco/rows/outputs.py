"""Files that are written at the end of a run lie apart from those it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpsco.errors import InvalidArgument

__all__ = ["check_apart"]


def check_apart(
    written: Mapping[str, Path | None], read: Mapping[str, str | Path | None], *, checkpoint: Path | None = None
) -> None:
    """Raise ``InvalidArgument`` if a file would be written over another one that is read or written.

    Parameters
    ----------
    written, read
        Files by what the user calls them, such as ``--out``; None is no file. A text names data: a file, all files of
        a folder, or those of a glob.
    checkpoint : Path, optional
        The folder of the run's own files.
    """
    from dpsco.rows.file_stream import local_files  # commands without data need no readers

    seen: dict[object, str] = {}
    for name, place in read.items():
        for path in local_files(place) if isinstance(place, str) else [place]:
            seen |= dict.fromkeys(() if path is None else _identities(path), name)
    for name, path in written.items():
        if path is None:
            continue
        if checkpoint is not None and path.resolve().is_relative_to(checkpoint.resolve()):
            raise InvalidArgument(
                f"{name} {path} is in the folder of the checkpoint, whose files could be lost. Choose another folder."
            )
        if other := next((seen[identity] for identity in _identities(path) if identity in seen), None):
            raise InvalidArgument(
                f"{name} {path} is the file of {other} too, which would be lost. Choose another name."
            )
        seen |= dict.fromkeys(_identities(path), name)


def _identities(path: Path) -> list[object]:
    """Return what tells a file from others: where it is, and which file it is, if there is one."""
    try:
        status = path.stat()
    except OSError:
        return [path.resolve()]
    return [path.resolve(), (status.st_dev, status.st_ino)]
