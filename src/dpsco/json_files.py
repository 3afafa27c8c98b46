"""Files that are whole or absent: replaced atomically; JSON as canonical text with a checksum."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import CheckpointError, InvalidArgument
from dpsco.held_files import Held, Place

__all__ = [
    "canonical",
    "check_writable",
    "decode_array",
    "encode_array",
    "jsonable",
    "read_bytes",
    "read_sealed",
    "remove_leftovers",
    "replacing",
    "write_at",
    "write_atomic",
    "write_sealed",
]

_LEFTOVER = re.compile(r"\.dpsco-[0-9a-f]{16}\.new")
"""Names of files that are being written. The 64 random bits of a name are never those of somebody else's file."""


def jsonable(value: Any) -> Any:
    """Convert tuples to lists, and infinities to strings that ``float`` reads back."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:  # most values, without the slow tests below
        return value
    if kind is not float and isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def encode_array(values: NDArray[np.float64]) -> dict[str, Any]:
    """Encode an array of float64 exactly and without loss: its shape and its bytes."""
    data = np.ascontiguousarray(values, dtype="<f8").tobytes()
    return {"shape": list(values.shape), "float64": base64.b64encode(data).decode()}


def decode_array(data: Any) -> NDArray[np.float64]:
    """Decode what ``encode_array`` wrote; raise InvalidArgument for anything else, or numbers that are not finite."""
    try:
        shape = tuple(int(size) for size in data["shape"])
        array = np.frombuffer(base64.b64decode(data["float64"], validate=True), dtype="<f8").reshape(shape)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise InvalidArgument("Not an array: expected its shape and its bytes in base64.") from None
    if set(data) != {"shape", "float64"} or min(shape, default=0) < 0 or not np.all(np.isfinite(array)):
        raise InvalidArgument("Not an array of finite numbers.")
    return array.astype(np.float64)


def canonical(payload: Any) -> bytes:
    """Encode ``payload`` as canonical JSON: sorted keys, no spaces, no NaN."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_atomic(place: Place, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of ``place`` by ``data``.

    Guarantee: after a crash at any moment the file has the old or the new content, complete.
    """
    with replacing(place, mode=mode) as file:
        write_at(file, data)


@contextlib.contextmanager
def replacing(place: Place, *, mode: int | None = 0o644, held: Held | None = None) -> Iterator[BinaryIO]:
    """Yield a file whose content is that of ``place`` once the block has ended; an error leaves ``place`` as it was.

    ``mode=None`` leaves it to the process's umask who may read the file. ``held``: the file at ``place``, locked. If
    it has moved, or has another name too, that name would keep the old content: it is left as it is then, and
    CheckpointError is raised.

    Guarantee: after a crash at any moment the file has the old or the new content, complete. No other file is opened,
    written or removed: the new content has a new file under a random name until it takes its place. Both names are in
    one folder, opened once, whatever its path comes to mean. A fork of this process inside the block replaces nothing:
    it would write later than its parent, and put an erased key back.
    """
    process = os.getpid()
    with _folder_of(place) as folder:
        before = os.getpid()
        temporary, descriptor = _new_file(folder, 0o666 if mode is None else mode)
        after = os.getpid()
        try:
            with os.fdopen(descriptor, "wb") as file:
                _refuse_forks(process, place)
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
                # A fork between this check and the replacement shares the new file, which is renamed once.
                _refuse_forks(process, place)
                if held is None:
                    _replace(temporary, place.name, folder, file.fileno())
                else:
                    _replace_held(held, temporary, place.name, folder, file.fileno())
        except BaseException:
            # A fork leaves its parent's file alone, also one of which it cannot know who made it; that one is empty.
            if before == after == os.getpid():
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def _new_file(folder: int, mode: int) -> tuple[str, int]:
    """Open a file for writing under a new name; under another one if a fork in between was first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f".dpsco-{secrets.token_hex(8)}.new"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, flags, mode, dir_fd=folder)


def _refuse_forks(process: int, place: Place) -> None:
    if os.getpid() != process:
        raise CheckpointError(f"{place.name!r} is written by the process that this one is a fork of.")


def write_at(file: BinaryIO, data: bytes, at: int = 0) -> None:
    """Write all of ``data`` at byte ``at``: the system may take less at a time.

    A file has one position, which the handler of a signal that writes too, or a fork, would move. It is not used, and
    no buffer is, which a fork would write a second time.
    """
    left = memoryview(data)
    while left:
        written = os.pwrite(file.fileno(), left, at)
        left, at = left[written:], at + written


def _replace(temporary: str, name: str, folder: int, new: int) -> None:
    """Let the file ``temporary``, open as ``new``, take the name ``name``; a fork may have done it just now."""
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        if not _is_named(new, name, folder):
            raise


def _replace_held(held: Held, temporary: str, name: str, folder: int, new: int) -> None:
    """Let the file ``temporary`` take the place of ``held``, under a lock from the first moment."""
    import fcntl

    fcntl.flock(new, fcntl.LOCK_EX)  # nobody else has it yet; whoever finds it under its name waits for the verdict
    if not _is_named(held.descriptor, name, folder):
        raise CheckpointError(_moved(name))
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    if held.replaced() or _hidden(held, folder):
        return
    # Somebody moved or linked the old file in between. What it holds counts; the new file must not be a second one. It
    # is put aside and not deleted: nothing is lost on a file system that counts names in another way.
    aside = f"{name}.refused-{secrets.token_hex(4)}"
    if _is_named(new, name, folder):
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    raise CheckpointError(f"{_moved(name)} What was to be written is beside it: {aside!r}.")


def _hidden(held: Held, folder: int) -> bool:
    """Whether the file has a name that a network file system gives to replaced files while they are open."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith((".nfs", ".fuse_hidden"))]
    return any(_is_named(held.descriptor, name, folder) for name in names)


def _is_named(descriptor: int, name: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _moved(name: str) -> str:
    return (
        f"The file {name!r} was moved, or got another name, while it was being written. It is as it was: use it under "
        "the name that it has now."
    )


def remove_leftovers(folder: Held) -> None:
    """Remove files that a killed process was writing into ``folder``. The lock on it says that nobody writes them."""
    for name in filter(_LEFTOVER.fullmatch, folder.names()):
        (folder / name).remove()


def check_writable(path: Path, what: str, *, room: int = 1 << 16) -> None:
    """Check that ``path`` can be written later, with ``room`` bytes to spare; change nothing.

    Raises
    ------
    InvalidArgument
        If ``path`` is a folder, lies in a folder that cannot be written, or on a disk without room.
    """
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        tempfile.TemporaryFile(dir=folder).close()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InvalidArgument(
            f"Cannot write {what}: {error.strerror}. Nothing was read or spent: choose another place."
        ) from None
    if free < room:
        raise InvalidArgument(
            f"Cannot write {what}: {free:,} bytes are free and {room:,} are needed. Nothing was read or spent: free "
            "some space or choose another place."
        )


def write_sealed(place: Place, payload: Mapping[str, Any], *, mode: int = 0o644, held: Held | None = None) -> None:
    """Write ``payload`` as canonical JSON with its own checksum; ``held`` as in ``replacing``."""
    with replacing(place, mode=mode, held=held) as file:
        write_at(file, canonical({**payload, "check": _check(payload)}))


def read_sealed(place: Place | Held, kind: str, fields: set[str], optional: Set[str] = frozenset()) -> dict[str, Any]:
    """Read a file written by ``write_sealed``.

    Parameters
    ----------
    place : Path, Entry or Held
        The file.
    kind : str
        What the file is, for the message.
    fields : set of str
        The exact keys of the payload.
    optional : set of str
        Keys that it may have besides.

    Raises
    ------
    CheckpointError
        If the file cannot be read, a byte was changed, or a field is missing or unknown.
    """
    try:
        raw = read_bytes(place)
    except OSError as error:
        raise CheckpointError(f"Cannot read the {kind} {place.name!r}: {error.strerror}. Check the path.") from None
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or set(payload) - optional != fields | {"check"}:
        raise CheckpointError(_damaged(place.name, kind))
    check = payload.pop("check")
    try:
        intact = check == _check(payload) and raw == canonical({**payload, "check": check})
    except (TypeError, ValueError, RecursionError):
        intact = False
    if not intact:
        raise CheckpointError(_damaged(place.name, kind))
    return payload


def _check(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(payload)).hexdigest()


def _damaged(name: str, kind: str) -> str:
    return (
        f"The {kind} {name!r} is damaged, incomplete or of another version. Restore it from a copy of the same "
        "moment, or start a new run."
    )


def read_bytes(place: Place | Held) -> bytes:
    """Return the content of a file."""
    if isinstance(place, Held):
        return place.content()
    if isinstance(place, Path):
        return place.read_bytes()
    with os.fdopen(os.open(place.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=place.folder.descriptor), "rb") as file:
        return file.read()


@contextlib.contextmanager
def _folder_of(place: Place) -> Iterator[int]:
    """Yield a descriptor of the folder that ``place`` is in."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if isinstance(place, Path):
        descriptor = os.open(place.parent, flags)
    else:
        descriptor = os.open(".", flags, dir_fd=place.folder.descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
