"""Answers of a round on disk, until the run is complete: a federation that stops goes on without asking twice.

    folder/run/            the ledger of ``dpsco.train``
    folder/federation.json public   unit and assignment, which a resumed run must share
    folder/cohorts/        SECRET   clipped sums by round, mode 0600; erased with the noise key at the end

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

FORMAT = 1
_FIELDS = {"format", "plan", "unit", "assignment"}


class CohortStore:
    """Sums of rounds that were answered."""

    def __init__(self, folder: Path, plan: Plan, unit: str, assignment: str) -> None:
        self.run, self._sums = folder / "run", folder / "cohorts"
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

    def load(self, asked: Asked) -> Array | None:
        """The sum of this query's round, if it was answered before a stop."""
        path = self._path(asked)
        if not path.exists():
            return None
        raw = path.read_bytes()
        body, check = raw[:-32], raw[-32:]
        whole = hashlib.sha256(body).digest() == check and len(body) == 32 + 8 * asked.points.shape[1]
        if not whole or body[:32] != asked.digest:
            raise CheckpointError(
                f"The answers of round {asked.step} in {self._sums.name!r} are damaged or belong to another query. "
                "Restore the folder from a copy of the same moment, or start a new run in another folder."
            )
        return np.frombuffer(body[32:], dtype="<f8").astype(np.float64)

    def save(self, asked: Asked, total: Array) -> None:
        body = asked.digest + total.astype("<f8").tobytes()
        write_atomic(self._path(asked), body + hashlib.sha256(body).digest(), mode=0o600)

    def erase(self) -> None:
        """After the last round nothing un-noised stays behind."""
        for path in self._sums.iterdir():
            path.unlink()
        self._sums.rmdir()

    def _path(self, asked: Asked) -> Path:
        return self._sums / f"round-{asked.step:05d}.bin"
