"""Answers of a round on disk, until the run is complete: a federation that stops goes on without asking twice.

    folder/run/            the ledger of ``dpsco.train``
    folder/federation.json public   unit and assignment, which a resumed run must share
    folder/cohorts/        SECRET   clipped sums and counts by round, mode 0600; erased with the noise key at the end
    folder/count/          the ledger of the private count (presence.py)
    folder/silence.json    public   where no private count decides: whether nobody answered

The folder is held by its descriptor from the first round to the verdict (held_files.py): an answer, a count or a
verdict that went elsewhere would be asked for, or released, a second time.

A sum tells no more than the ledger's secret.json already does: with the key, released values turn back into sums.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpsco.engines.flower.wire import Asked
from dpsco.errors import CheckpointError
from dpsco.held_files import Entry, Held, check_folder, held_folder
from dpsco.json_files import read_bytes, read_sealed, remove_leftovers, write_atomic, write_sealed
from dpsco.planning.plan import Plan
from dpsco.query import Array

__all__ = ["CohortStore", "open_cohorts"]

FORMAT = 4
_FIELDS = {"format", "plan", "unit", "assignment"}
_HEAD = 40  # digest of the run and the query, number of counted
_VERDICTS = ("count", "silence.json")
_ROUND = re.compile(r"round-\d{5,}\.bin")


class CohortStore:
    """Sums of rounds that were answered, and whether anybody did. ``open_cohorts`` opens one."""

    run_id = ""
    """Set once the run is open: its answers are no other run's, which may have asked the same."""

    def __init__(self, folder: Held, sums: Held) -> None:
        self.folder, self.run, self._sums = folder, folder / "run", sums

    def load(self, asked: Asked, step: int) -> Array | None:
        """Return the sum of this query's round, if it was answered before a stop."""
        place = self._place(step)
        if not place.exists():
            return None
        body = _whole(place)
        if body is None or len(body) != _HEAD + 8 * asked.length or body[:32] != self._digest(asked):
            raise CheckpointError(_damaged(place))
        return np.frombuffer(body[_HEAD:], dtype="<f8").astype(np.float64)

    def save(self, asked: Asked, step: int, total: Array, counted: int) -> None:
        """Keep the sum and the count of a round. SECRET: readable by the owner only, deleted after the last round."""
        body = self._digest(asked) + counted.to_bytes(8, "little") + total.astype("<f8").tobytes()
        write_atomic(self._place(step), body + hashlib.sha256(body).digest(), mode=0o600)

    def counted(self) -> int:
        """How many were counted in the rounds whose answers are kept. SECRET."""
        counted = 0
        for place in self._rounds():
            body = _whole(place)
            if body is None or len(body) < _HEAD:
                raise CheckpointError(_damaged(place))
            counted += int.from_bytes(body[32:_HEAD], "little")
        return counted

    def silent(self, *, found: bool) -> bool:
        """Return whether nobody answered: what was noted before, else ``found``, which is noted.

        The answers are erased behind it, so a resumed federation could not find it again.
        """
        place = self.folder / "silence.json"
        if not place.exists():
            write_sealed(place, {"format": FORMAT, "run": self.run_id, "nobody answered": found})
        noted = read_sealed(place, "checkpoint", {"format", "run", "nobody answered"})
        if not isinstance(noted["nobody answered"], bool) or noted["run"] != self.run_id:
            raise CheckpointError("silence.json is of another version or run. Restore that of this run from a copy.")
        return noted["nobody answered"]

    def erase(self) -> None:
        """After the last round nothing un-noised stays behind."""
        for place in self._rounds():
            place.remove()
        with contextlib.suppress(OSError):  # files that are not of this run stay, and their folder with them
            os.rmdir("cohorts", dir_fd=self.folder.descriptor)

    def _digest(self, asked: Asked) -> bytes:
        return hashlib.sha256(self.run_id.encode() + asked.digest).digest()

    def _place(self, step: int) -> Entry:
        return self._sums / f"round-{step:05d}.bin"

    def _rounds(self) -> list[Entry]:
        return [self._sums / name for name in self._sums.names() if _ROUND.fullmatch(name)]


@contextlib.contextmanager
def open_cohorts(path: Path, plan: Plan, unit: str, assignment: str) -> Iterator[CohortStore]:
    """Hold the folder of a federation; create it if it does not exist.

    Raises
    ------
    CheckpointError
        If the folder is in use, or belongs to another federation.
    """
    what = f"checkpoint {path.name!r}"
    with held_folder(path, what) as folder, held_folder(folder / "cohorts", what, mode=0o700) as sums:
        remove_leftovers(folder)
        remove_leftovers(sums)
        header = folder / "federation.json"
        about = {"format": FORMAT, "plan": plan.digest(), "unit": unit, "assignment": assignment}
        if not header.exists():
            write_sealed(header, about)
        if read_sealed(header, "checkpoint", _FIELDS) != about:
            raise CheckpointError(
                f"The folder {path.name!r} belongs to another federation: its plan, unit or assignment differ, and "
                "clients would be called twice. Go on with the arguments that began it, or name another folder."
            )
        if (folder / "count").exists():
            check_folder(folder / "count")
        if not (folder / "run/run.json").exists() and any((folder / name).exists() for name in _VERDICTS):
            raise CheckpointError(
                f"The folder {path.name!r} has the verdict of an earlier federation, whose run is gone. Restore its "
                "run, or name another folder."
            )
        yield CohortStore(folder, sums)


def _whole(place: Entry) -> bytes | None:
    raw = read_bytes(place)
    body, check = raw[:-32], raw[-32:]
    return body if hashlib.sha256(body).digest() == check else None


def _damaged(place: Entry) -> str:
    return (
        f"The answers of round {int(place.name[6:-4])} are damaged, or belong to another run or query. Restore the "
        "folder from a copy of the same moment, or start a new run in another folder."
    )
