"""Results of single runs on disk: a killed comparison goes on where it stopped.

One JSON line a run, under the digest of everything that the run depends on: the trial, and the text of the files that
define its method. A line is appended, flushed and synced before the run counts as done; a line cut short by a kill is
dropped when the file is read again.

Guarantee: an outcome that is read back is the outcome that was computed for the same trial by the same code of the
method; one writer at a time. Cost: one fsync a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dpsco.json_files import canonical, locked
from dpsco.research.compare.trial import Outcome, Trial

__all__ = ["Store", "opened"]


class Store:
    """Outcomes by trial."""

    def __init__(self, known: dict[str, Outcome], file: IO[bytes] | None) -> None:
        self._known, self._file = known, file

    def get(self, trial: Trial) -> Outcome | None:
        return self._known.get(trial.digest())

    def put(self, trial: Trial, outcome: Outcome) -> None:
        digest = trial.digest()
        self._known[digest] = outcome
        if self._file is not None:
            self._file.write(canonical([digest, outcome.to_dict()]) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def __len__(self) -> int:
        return len(self._known)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """The store in ``folder``, made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    with locked(folder / "runs.lock", "comparison in this folder"):
        known, whole = _read(path)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(whole)
            file.seek(whole)
            yield Store(known, file)


def _read(path: Path) -> tuple[dict[str, Outcome], int]:
    """What whole lines hold, and where the last of them ends."""
    known: dict[str, Outcome] = {}
    whole = 0
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            entry = _entry(line)
            if entry is None:
                break
            known[entry[0]] = Outcome(**entry[1])
            whole += len(line)
    return known, whole


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        digest, fields = json.loads(line)
    except ValueError:
        return None
    return (digest, fields) if line.endswith(b"\n") else None
