"""Files and folders that are held: locked, and known by their descriptor instead of by their path.

A path may come to mean something else while a run is under way: another thread changes the working directory, or
somebody moves the folder. A descriptor always means the same folder. So everything a run writes, it writes relative to
the descriptor on which it holds the lock, and a run never leaves its key in one folder and its releases in another.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpsco.errors import CheckpointError
from dpsco.fork_safety import forget_in_children

__all__ = ["Entry", "Held", "Place", "check_folder", "held_folder", "locked"]

_PAUSE = 0.02  # seconds between two attempts to take a lock


class Held:
    """A file or a folder with an exclusive lock, by its descriptor. ``locked`` makes one."""

    def __init__(self, place: Place) -> None:
        self.name, self._place, self._process = place.name, place, os.getpid()
        self._descriptor: int | None = None
        self._descriptor = _opened(place)

    def __truediv__(self, name: str) -> Entry:
        return Entry(self, name)

    @property
    def descriptor(self) -> int:
        """The open descriptor. Raises CheckpointError once it is given back, and in a fork, which shares no lock."""
        if self._process != os.getpid():  # also of a fork between the opening and ``forget_in_children``
            raise CheckpointError(f"{self.name!r} is held by the process that this one is a fork of.")
        if self._descriptor is None:  # its number may be another file's by now
            raise CheckpointError(f"{self.name!r} was given back by this run. Resume it from the folder: resume=True.")
        return self._descriptor

    def names(self) -> list[str]:
        """Return what is in the folder, in order."""
        with os.scandir(self.descriptor) as entries:
            return sorted(entry.name for entry in entries)

    def content(self) -> bytes:
        """Return the bytes of the file, whatever its path names by now."""
        with os.fdopen(os.dup(self.descriptor), "rb") as file:
            file.seek(0)
            return file.read()

    def replaced(self) -> bool:
        """Whether another file has taken the last name of this one."""
        return os.fstat(self.descriptor).st_nlink == 0

    def taken(self) -> bool:
        """Try to take the lock on what the path names at this time; return whether it is held now."""
        import fcntl

        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if os.path.samestat(os.fstat(self.descriptor), _stat(self._place)):
            return True
        self.forget()  # the file was replaced while this process waited
        self._descriptor = _opened(self._place)
        return False

    def close(self) -> None:
        """Release the lock, also for copies of the descriptor in children that have not run yet."""
        import fcntl

        # A fork that Python was not told of has the descriptor too, and would unlock what its parent holds.
        if self._descriptor is not None and self._process == os.getpid():
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def __del__(self) -> None:  # an interrupt at the beginning of ``close`` would keep the lock while the process lives
        with contextlib.suppress(Exception):
            self.close()

    def forget(self) -> None:
        """Close the descriptor. The lock remains while another copy of it is open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@dataclass(frozen=True)
class Entry:
    """A name in a held folder: ``folder / name``."""

    folder: Held
    name: str

    def exists(self) -> bool:
        """Whether there is anything of this name, a link that leads nowhere too."""
        try:
            self.size()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def remove(self) -> None:
        """Remove the file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder.descriptor)

    def size(self) -> int:
        """Bytes of the file itself; of a link, not of what it names."""
        return os.stat(self.name, dir_fd=self.folder.descriptor, follow_symlinks=False).st_size


Place = Path | Entry
"""Where a file or a folder is: by its path, or by its name in a held folder."""


@contextlib.contextmanager
def locked(place: Place, what: str, *, wait: float = 0.0) -> Iterator[Held]:
    """Hold an exclusive lock on ``place``, a file or a folder that exists; wait up to ``wait`` seconds for it.

    The lock is on what ``place`` names at that time: if ``write_atomic`` has replaced the file meanwhile, the new file
    is locked instead. So the last thing to do under the lock of a file is to replace it. There is no file beside it
    whose deletion would let a second process in. The system releases the lock if the process dies. A forked child does
    not share it.

    Raises
    ------
    CheckpointError
        If another process still holds the lock after ``wait`` seconds.
    FileNotFoundError
        If there is nothing at ``place``.
    """
    held = Held(place)
    forget_in_children(held)
    try:
        end = time.monotonic() + wait
        while not held.taken():
            left = end - time.monotonic()
            if left <= 0:
                waited = f" after {wait:.0f} s" if wait else ""
                raise CheckpointError(
                    f"The {what} is in use by another process{waited}. Wait for it to end, or stop it."
                )
            time.sleep(min(_PAUSE, left))
        yield held
    finally:
        try:
            held.close()
        except BaseException:  # an interrupt inside it: the lock would last as long as somebody keeps the error
            held.close()
            raise


@contextlib.contextmanager
def held_folder(place: Place, what: str, *, mode: int = 0o777) -> Iterator[Held]:
    """Hold the folder ``place``; create it if it does not exist. Raise as ``locked`` does.

    A path may lead over links: whoever names it decides. A folder in a held folder is one, and no link to one: keys and
    sums would be written outside the folder that was named.
    """
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True, mode=mode)
    else:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.name, mode, dir_fd=place.folder.descriptor)
        check_folder(place)
    with locked(place, what) as held:
        yield held


def check_folder(place: Entry) -> None:
    """Raise ``CheckpointError`` if a link or a file has the name of a folder."""
    if not stat.S_ISDIR(_stat(place).st_mode):
        raise CheckpointError(
            f"{place.name!r} in the folder {place.folder.name!r} is a link or a file: a run would write into a "
            "folder that it did not create. Put the folder itself there, or name another checkpoint."
        )


def _opened(place: Place) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC
    if isinstance(place, Path):
        return os.open(place, flags)
    return os.open(place.name, flags | os.O_NOFOLLOW, dir_fd=place.folder.descriptor)


def _stat(place: Place) -> os.stat_result:
    if isinstance(place, Path):
        return place.stat()
    return os.stat(place.name, dir_fd=place.folder.descriptor, follow_symlinks=False)
