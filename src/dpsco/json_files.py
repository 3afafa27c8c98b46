"""JSON files that are whole or absent: canonical text with a checksum, replaced atomically, one writer at a time."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import CheckpointError, InvalidArgument
from dpsco.fork_safety import forget_in_children

__all__ = [
    "canonical",
    "check_writable",
    "decode_array",
    "encode_array",
    "jsonable",
    "locked",
    "read_sealed",
    "write_atomic",
    "write_sealed",
]


_PAUSE = 0.02  # seconds between two attempts to take a lock


def jsonable(value: Any) -> Any:
    """Convert tuples to lists, and infinities to strings that ``float`` reads back."""
    if isinstance(value, Mapping):
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


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of ``path`` by ``data``.

    Guarantee: after a crash at any moment the file has the old or the new content, complete.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)  # never an existing file
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


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


def write_sealed(path: Path, payload: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """Write ``payload`` as canonical JSON with its own checksum."""
    write_atomic(path, canonical({**payload, "check": _check(payload)}), mode=mode)


def read_sealed(path: Path, kind: str, fields: set[str]) -> dict[str, Any]:
    """Read a file written by ``write_sealed``.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        What the file is, for the message.
    fields : set of str
        The exact keys of the payload.

    Raises
    ------
    CheckpointError
        If the file cannot be read, a byte was changed, or a field is missing or unknown.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"Cannot read the {kind} {path.name!r}: {error.strerror}. Check the path.") from None
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or set(payload) != fields | {"check"}:
        raise CheckpointError(_damaged(path, kind))
    check = payload.pop("check")
    try:
        intact = check == _check(payload) and raw == canonical({**payload, "check": check})
    except (TypeError, ValueError):
        intact = False
    if not intact:
        raise CheckpointError(_damaged(path, kind))
    return payload


@contextlib.contextmanager
def locked(path: Path, what: str, *, wait: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, a file or a folder that exists; wait up to ``wait`` seconds for it.

    The lock is on what ``path`` names at that time: if ``write_atomic`` has replaced the file meanwhile, the new file
    is locked instead. So the last thing to do under the lock of a file is to replace it. There is no file beside it
    whose deletion would let a second process in. The system releases the lock if the process dies. A forked child does
    not share it.

    Raises
    ------
    CheckpointError
        If another process still holds the lock after ``wait`` seconds.
    FileNotFoundError
        If there is nothing at ``path``.
    """
    lock = _Lock(path)
    forget_in_children(lock)
    try:
        end = time.monotonic() + wait
        while not lock.taken():
            left = end - time.monotonic()
            if left <= 0:
                waited = f" after {wait:.0f} s" if wait else ""
                raise CheckpointError(
                    f"The {what} is in use by another process{waited}. Wait for it to end, or stop it."
                )
            time.sleep(min(_PAUSE, left))
        yield
    finally:
        lock.close()


class _Lock:
    """A file descriptor that holds a lock; it is closed once."""

    def __init__(self, path: Path) -> None:
        self._path, self._process = path, os.getpid()
        self._descriptor: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def taken(self) -> bool:
        import fcntl

        try:
            fcntl.flock(self._descriptor or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if os.path.samestat(os.fstat(self._descriptor or 0), self._path.stat()):
            return True
        self.forget()  # the file was replaced while this process waited
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return False

    def close(self) -> None:
        """Release the lock, also for copies of the descriptor in children that have not run yet."""
        import fcntl

        # A fork that Python was not told of has the descriptor too, and would unlock what its parent holds.
        if self._descriptor is not None and self._process == os.getpid():
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close the descriptor. The lock remains while another copy of it is open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _check(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(payload)).hexdigest()


def _damaged(path: Path, kind: str) -> str:
    return (
        f"The {kind} {path.name!r} is damaged, incomplete or of another version. Restore it from a copy of the same "
        "moment, or start a new run."
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
