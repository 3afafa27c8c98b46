"""Finished runs on disk, so that an interrupted comparison can continue.

The file has one JSON line per run, keyed by the digest of everything the run depends on: the run itself and the source
code of its method. A line is appended, flushed and synced before the run counts as finished. A line that was cut short
is dropped when the file is read.

Guarantee
---------
An outcome that is read back was computed for the same run by the same code of the method. Only one process writes.

Cost
----
One fsync per run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dpsco.held_files import locked
from dpsco.json_files import canonical
from dpsco.research.compare.single_run import RunOutcome, SingleRun

__all__ = ["RunCache", "open_cache"]


class RunCache:
    """Outcomes by run."""

    def __init__(self, known: dict[str, RunOutcome], file: IO[bytes]) -> None:
        self._known, self._file = known, file

    def get(self, run: SingleRun) -> RunOutcome | None:
        """Return the outcome of ``run``, None if it is unknown."""
        return self._known.get(run.digest())

    def put(self, run: SingleRun, outcome: RunOutcome) -> None:
        """Keep the outcome of ``run``."""
        digest = run.digest()
        self._known[digest] = outcome
        self._file.write(canonical([digest, dataclasses.asdict(outcome)]) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __len__(self) -> int:
        return len(self._known)


@contextmanager
def open_cache(folder: Path) -> Iterator[RunCache]:
    """Open the cache in ``folder``; create it if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    with locked(folder, "comparison in this folder"):
        known, complete = _read(path)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(complete)
            file.seek(complete)
            yield RunCache(known, file)


def _read(path: Path) -> tuple[dict[str, RunOutcome], int]:
    """Return the outcomes of the complete lines, and the offset where the last of them ends."""
    known: dict[str, RunOutcome] = {}
    complete = 0
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            entry = _entry(line)
            if entry is None:
                break
            known[entry[0]] = RunOutcome(**entry[1])
            complete += len(line)
    return known, complete


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        digest, fields = json.loads(line)
    except ValueError:
        return None
    return (digest, fields) if line.endswith(b"\n") else None
