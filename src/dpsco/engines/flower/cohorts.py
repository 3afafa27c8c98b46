"""Answers of a round on disk, until the run is complete: a federation that stops goes on without asking twice.

    folder/run/            the ledger of ``dpsco.train``
    folder/federation.json public   unit and assignment, which a resumed run must share
    folder/cohorts/        SECRET   clipped sums and counts by round, mode 0600; erased with the noise key at the end
    folder/count/          the ledger of the private count (presence.py)

A sum tells no more than the ledger's secret.json already does: with the key, released values turn back into sums.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from dpsco.engines.flower.wire import Asked
from dpsco.errors import CheckpointError
from dpsco.json_files import read_sealed, write_atomic, write_sealed
from dpsco.planning.plan import Plan
from dpsco.query import Array

__all__ = ["CohortStore"]

FORMAT = 2
_FIELDS = {"format", "plan", "unit", "assignment"}
_HEAD = 40  # digest of the query, number of counted


class CohortStore:
    """Sums of rounds that were answered."""

    def __init__(self, folder: Path, plan: Plan, unit: str, assignment: str) -> None:
        self.folder, self.run, self._sums = folder, folder / "run", folder / "cohorts"
        self._sums.mkdir(parents=True, exist_ok=True, mode=0o700)
        header, about = folder / "federation.json", {"format": FORMAT, "plan": plan.digest(), "unit": unit}
        about["assignment"] = assignment
        if header.exists() and read_sealed(header, "checkpoint", _FIELDS) != about:
            raise CheckpointError(
                f"The folder {folder.name!r} belongs to another federation: its plan, unit or assignment differ, and "
                "clients would be called twice. Go on with the arguments that began it, or name another folder."
            )
        if not header.exists():
            write_sealed(header, about)

    def load(self, asked: Asked, step: int) -> Array | None:
        """Return the sum of this query's round, if it was answered before a stop."""
        path = self._path(step)
        if not path.exists():
            return None
        body = _whole(path)
        if body is None or len(body) != _HEAD + 8 * asked.length or body[:32] != asked.digest:
            raise CheckpointError(_damaged(path))
        return np.frombuffer(body[_HEAD:], dtype="<f8").astype(np.float64)

    def save(self, asked: Asked, step: int, total: Array, counted: int) -> None:
        """Keep the sum and the count of a round. SECRET: readable by the owner only, deleted after the last round."""
        body = asked.digest + counted.to_bytes(8, "little") + total.astype("<f8").tobytes()
        write_atomic(self._path(step), body + hashlib.sha256(body).digest(), mode=0o600)

    def counted(self) -> int | None:
        """How many were counted in all rounds so far; None if no answers are kept, or none any more. SECRET."""
        counts = []
        for path in sorted(self._sums.iterdir()):
            body = _whole(path)
            if body is None or len(body) < _HEAD:
                raise CheckpointError(_damaged(path))
            counts.append(int.from_bytes(body[32:_HEAD], "little"))
        return sum(counts) if counts else None

    def erase(self) -> None:
        """After the last round nothing un-noised stays behind."""
        for path in self._sums.iterdir():
            path.unlink()
        self._sums.rmdir()

    def _path(self, step: int) -> Path:
        return self._sums / f"round-{step:05d}.bin"


def _whole(path: Path) -> bytes | None:
    raw = path.read_bytes()
    body, check = raw[:-32], raw[-32:]
    return body if hashlib.sha256(body).digest() == check else None


def _damaged(path: Path) -> str:
    return (
        f"The answers of round {int(path.stem[-5:])} are damaged or belong to another query. Restore the folder from a "
        "copy of the same moment, or start a new run in another folder."
    )
