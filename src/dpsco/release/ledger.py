"""The ledger: released values, and a fingerprint of the query and sum of each. In memory, or in a folder.

A folder holds
    run.json       public   the run: plan, method, start, library format
    released.bin   public   one record per round: p float64 values and a SHA-256 that binds them to run and round
    rows.json      public   how many rows a complete run read (run/row_counts.py)
    facts.json     public   what reports of the run state beyond the plan (run/kept_facts.py)
    secret.json    SECRET   noise key, fingerprints; mode 0600; with the name of the run, as run.json: accounts know it

Guarantee: the fingerprint of a round is written first, then its released value; each is synced to disk. After a crash
in between (also kill -9), only the same rows and query can complete the round, and then give the same value. A live run
belongs to one process: in a forked child its ledger refuses everything. All files are those of one folder, held by its
descriptor: a run whose folder is moved goes on in the moved folder, and one whose folder is deleted ends. Restoring the
folder from an older copy is outside the guarantee, and so is a move to another file system, which copies it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, NoReturn, Protocol

import numpy as np

from dpsco.errors import CheckpointError, LedgerError
from dpsco.fork_safety import forget_in_children
from dpsco.held_files import Entry, Held, Place, held_folder
from dpsco.json_files import canonical, read_sealed, remove_leftovers, write_at, write_atomic, write_sealed
from dpsco.query import Array
from dpsco.release.noise import derive, normals

__all__ = ["FileLedger", "Ledger", "MemoryLedger", "open_folder"]

FORMAT = 2
_RUN_FIELDS = {"format", "id", "digest", "run", "dimension", "rounds"}
_TOGETHER = "Restore them together from a copy."
_SECRET_FIELDS = {"format", "id", "digest", "key", "probe", "fingerprints"}


class Ledger(Protocol):
    """Append-only record of a run, with the run's noise key."""

    run_id: str

    @property
    def folder(self) -> Held | None:
        """The folder of a run with checkpoints."""
        ...

    @property
    def key(self) -> bytes:
        """The noise key. Raises LedgerError once it is erased."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the key is erased."""
        ...

    def fingerprint(self, step: int) -> bytes | None:
        """Return the fingerprint of round ``step``, if recorded."""
        ...

    def value(self, step: int) -> Array | None:
        """Return the released value of round ``step``, if stored."""
        ...

    def check_process(self) -> None:
        """Raise LedgerError in a fork of the process that began the run."""
        ...

    def record(self, step: int, fingerprint: bytes) -> None:
        """Record the fingerprint of the next round. Raise LedgerError if it is not the next."""
        ...

    def store(self, step: int, value: Array) -> None:
        """Store the released value of a recorded round."""
        ...

    def erase_key(self) -> None:
        """Erase the key after the last round."""
        ...


class _Record:
    """The common part of both ledgers: the key, and the fingerprints in order."""

    def __init__(self, run_id: str, key: bytes | None, fingerprints: list[bytes], process: int | None) -> None:
        self.run_id = run_id
        self._key = key
        self._fingerprints = fingerprints
        self._copied = False
        self._process = os.getpid() if process is None else process  # for forks that Python is not told of, or early
        forget_in_children(self)

    def forget(self) -> None:
        """Drop the key in a forked child: a live run belongs to the process that began it."""
        self._copied, self._key = self._copied or self._key is not None, None

    def check_process(self) -> None:
        """Raise LedgerError in a process that holds a copy of a live run."""
        if self._copied or (self._process != os.getpid() and self._key is not None):
            raise LedgerError(
                "This run belongs to the process that began it, and this process is a fork of that one: both would add "
                "the same noise to different sums. Continue in the process that began the run, or start a new run here "
                "(a new key and a new budget)."
            )

    @property
    def key(self) -> bytes:
        """The noise key. Raises LedgerError once it is erased."""
        self.check_process()
        if self._key is None:
            raise LedgerError(
                "This run is complete and its noise key is erased: nothing more can be released. Start a new run."
            )
        return self._key

    @property
    def complete(self) -> bool:
        """Whether the key is erased."""
        self.check_process()
        return self._key is None

    def fingerprint(self, step: int) -> bytes | None:
        """Return the fingerprint of round ``step``, if recorded."""
        self.check_process()
        return self._fingerprints[step] if step < len(self._fingerprints) else None

    def record(self, step: int, fingerprint: bytes) -> None:
        """Record the fingerprint of the next round, on disk first. Raise LedgerError if it is not the next."""
        self.check_process()
        known, stored = self._fingerprints, self._released()
        if step != len(known) or step != stored:
            raise LedgerError(
                f"Round {step} was requested before round {stored} was released. Release rounds in order."
            )
        self._keep([*known, fingerprint])
        if self._fingerprints is not known:  # by the handler of a signal, whose sum has the noise of this round now
            self._keep(self._fingerprints)
            raise LedgerError(f"Round {step} was released by another call, inside this one. Release each round once.")
        # The last statement, with no call behind the check: what is known here is on disk, also after an interrupt.
        self._fingerprints = [*known, fingerprint]

    def _released(self) -> int:
        """Return the number of released values that are stored."""
        raise NotImplementedError

    def _keep(self, fingerprints: list[bytes]) -> None:
        """Write the fingerprints to disk, if the ledger is there."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A ledger holds the noise key and cannot be pickled or copied.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"


class MemoryLedger(_Record):
    """The ledger of a run without checkpoints. ``process``: whoever made the key, asked before it was made."""

    folder = None

    def __init__(self, key: bytes, *, process: int | None = None) -> None:
        super().__init__(secrets.token_hex(16), key, [], process)
        self._values: list[Array] = []

    def value(self, step: int) -> Array | None:
        """Return the released value of round ``step``, if stored."""
        return self._values[step] if step < len(self._values) else None

    def store(self, step: int, value: Array) -> None:
        """Keep the released value; the same one again changes nothing."""
        self.check_process()
        self._values[step : step + 1] = [value]

    def erase_key(self) -> None:
        """Erase the key."""
        self.check_process()
        self._key = None

    def _released(self) -> int:
        return len(self._values)


class FileLedger(_Record):
    """The ledger of a run with checkpoints. Open it with ``open_folder``."""

    def __init__(
        self,
        folder: Held,
        header: Mapping[str, Any],
        secret: Mapping[str, Any],
        file: BinaryIO,
        process: int | None = None,
    ) -> None:
        key = None if secret["key"] is None else bytes.fromhex(secret["key"])
        super().__init__(header["id"], key, [bytes.fromhex(f) for f in secret["fingerprints"]], process)
        self.folder, self._file = folder, file
        self._digest: str = header["digest"]
        self._dimension: int = header["dimension"]
        self._rounds: int = header["rounds"]
        self._probe: str = secret["probe"]
        self._stored = self._verify()
        if key is not None and _probe(key) != self._probe:
            raise CheckpointError(
                "This installation draws other noise from the key than the installation that began the run. Resume "
                "with the versions of numpy and randomgen that began it, or start a new run."
            )

    def check_process(self) -> None:
        """Raise LedgerError in a fork, and once the folder is closed: another run may hold it, or have ended it."""
        super().check_process()
        if self._file.closed:
            raise LedgerError(
                "This run gave its checkpoint back when its `with` block ended. Resume it from the folder: resume=True."
            )

    def value(self, step: int) -> Array | None:
        """Read the released value of round ``step``, if stored. Raise CheckpointError if it is damaged."""
        self.check_process()
        if step >= self._stored:
            return None
        return self._read(step)

    def store(self, step: int, value: Array) -> None:
        """Write the released value to disk; the same one again changes nothing."""
        self.check_process()
        data = np.ascontiguousarray(value, dtype="<f8").tobytes()
        write_at(self._file, data + self._checksum(step, data), step * self._record_bytes)
        os.fsync(self._file.fileno())
        if self._stored <= step:  # the handler of a signal may have gone on with the run
            self._stored = step + 1

    def erase_key(self) -> None:
        """Erase the key, also on disk."""
        self.check_process()
        self._key = None
        self._keep(self._fingerprints)

    def _released(self) -> int:
        return self._stored

    @property
    def _record_bytes(self) -> int:
        return 8 * self._dimension + 32

    def _checksum(self, step: int, data: bytes) -> bytes:
        return hashlib.sha256(canonical([self.run_id, self._digest, step]) + data).digest()

    def _read(self, step: int) -> Array:
        record = os.pread(self._file.fileno(), self._record_bytes, step * self._record_bytes)
        data, check = record[:-32], record[-32:]
        if len(record) != self._record_bytes or check != self._checksum(step, data):
            raise CheckpointError(
                f"The released value of round {step} is damaged or of another run. Restore released.bin from a copy."
            )
        return np.frombuffer(data, dtype="<f8").astype(np.float64)

    def _verify(self) -> int:
        """Check every record, drop an incomplete one at the end, and return the number of complete records."""
        size = os.fstat(self._file.fileno()).st_size
        stored, torn = divmod(size, self._record_bytes)
        fingerprinted = len(self._fingerprints)
        whole = stored == fingerprinted and not torn
        interrupted = stored == fingerprinted - 1
        finished = self._key is not None or fingerprinted == self._rounds == stored
        if not (whole or interrupted) or fingerprinted > self._rounds or not finished:
            raise CheckpointError(
                f"The checkpoint holds {stored} released rounds but {fingerprinted} fingerprints. Its files are not "
                f"of the same moment. {_TOGETHER}"
            )
        for step in range(stored):
            self._read(step)
        self._file.truncate(stored * self._record_bytes)
        return stored

    def _keep(self, fingerprints: list[bytes]) -> None:
        secret = {
            "format": FORMAT,
            "id": self.run_id,
            "digest": self._digest,
            "key": None if self._key is None else self._key.hex(),
            "probe": self._probe,
            "fingerprints": [f.hex() for f in fingerprints],
        }
        write_sealed(self.folder / "secret.json", secret, mode=0o600)


@contextmanager
def open_folder(
    place: Place,
    run: Mapping[str, Any],
    digest: str,
    dimension: int,
    rounds: int,
    key: bytes,
    *,
    resume: bool,
    process: int | None = None,
) -> Iterator[FileLedger]:
    """Open the ledger of run ``digest`` in the folder ``place``: a new one, or the existing one if ``resume``.

    Parameters
    ----------
    place : Path or Entry
        A folder; created if it does not exist.
    run : mapping
        Public description of the run.
    digest : str
        Identifies plan, method, start and data layout.
    dimension, rounds : int
        Length of a released value, and their number.
    key : bytes
        Noise key of a new run; not used if one is resumed.
    resume : bool
        Whether to continue a run in the folder.
    process : int, optional
        The process that made the key; this one unless given.

    Raises
    ------
    CheckpointError
        If the folder is in use, damaged, holds another run, or holds one and ``resume`` is False.
    """
    with held_folder(place, f"checkpoint {place.name!r}") as folder:
        remove_leftovers(folder)
        header_path, secret_path, released_path = (folder / n for n in ("run.json", "secret.json", "released.bin"))
        released = released_path.exists() and released_path.size() > 0
        begun = secret_path.exists() or released
        if begun and not released:
            kept = read_sealed(secret_path, "checkpoint", _SECRET_FIELDS)
            if not kept["fingerprints"]:  # it ended before its first round; nothing was released
                begun = resume and not _of_two_runs(kept, header_path)
        if begun and not resume:
            told = "already holds a run. Pass resume=True to continue it, or name another folder."
            raise CheckpointError(f"The folder {folder.name!r} {told}")
        if not begun and header_path.exists():  # of an attempt that ended before its first round, or of somebody else
            read_sealed(header_path, "checkpoint's file", _RUN_FIELDS)
        public = {"format": FORMAT, "digest": digest, "run": dict(run), "dimension": dimension, "rounds": rounds}
        if not begun:
            name = {"format": FORMAT, "id": secrets.token_hex(16), "digest": digest}
            write_sealed(header_path, {**public, **name})
            write_atomic(released_path, b"")
            write_sealed(secret_path, {**name, "key": key.hex(), "probe": _probe(key), "fingerprints": []}, mode=0o600)
        header = read_sealed(header_path, "checkpoint", _RUN_FIELDS)
        secret = read_sealed(secret_path, "checkpoint", _SECRET_FIELDS)
        same = canonical({**header, "id": ""}) == canonical({**public, "id": ""}) and isinstance(header["id"], str)
        if not same or canonical([secret["format"], secret["digest"]]) != canonical([FORMAT, digest]):
            raise CheckpointError(
                f"The folder {folder.name!r} belongs to another run: plan, method, start or data layout differ. "
                "Resume with the arguments that began it, or name another folder."
            )
        if header["id"] != secret["id"]:
            raise CheckpointError(f"run.json and secret.json of {folder.name!r} are of two runs. {_TOGETHER}")
        with _own_file(folder, "released.bin") as file:
            try:
                ledger = FileLedger(folder, header, secret, file, process)
            except (TypeError, ValueError):
                raise CheckpointError(
                    f"The folder {folder.name!r} holds fields of the wrong type. Restore it from a copy."
                ) from None
            yield ledger


def _of_two_runs(secret: Mapping[str, Any], header: Entry) -> bool:
    """Whether a beginning was cut short between its two files."""
    return header.exists() and read_sealed(header, "checkpoint", _RUN_FIELDS)["id"] != secret["id"]


def _own_file(folder: Held, name: str) -> BinaryIO:
    """Open a file for writing in place, unbuffered: a fork then finds nothing to write twice.

    Raises
    ------
    CheckpointError
        If there is none, or one that may be somebody else's: a link, or a file with other names.
    """
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder.descriptor)
    except OSError as error:
        raise CheckpointError(
            f"Cannot open {name} of the folder {folder.name!r}: {error.strerror}. Restore it from a copy, as a file."
        ) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise CheckpointError(
            f"{name} of the folder {folder.name!r} is no ordinary file with one name: a run would write into a file "
            "that it did not create. Restore it from a copy."
        )
    return os.fdopen(descriptor, "r+b", buffering=0)


def _probe(key: bytes) -> str:
    """Compute a digest of some normals, which shows that (key, row) still gives the same without revealing them."""
    return derive(key, "probe", normals(key, 0, 64).tobytes()).hex()
