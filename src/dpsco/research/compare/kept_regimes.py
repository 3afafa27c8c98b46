"""Finished regimes of a map on disk, so that an interrupted map continues.

The file has one JSON line per regime, keyed by a digest of the regime, the size of the map and the source code of the
planner and the methods. A line that was cut short is dropped when the file is read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dpsco.json_files import canonical, jsonable
from dpsco.research.compare.single_run import PLANNED, code_digest

__all__ = ["keep_regime", "kept_regimes", "regime_digest"]

Lines = list[dict[str, Any]]


def regime_digest(cell: Any, keys: int, scale: str, file: str) -> str:
    """Return a digest of all that the figures of a regime depend on; ``file`` is the digest of its file, if any."""
    fields = {**dataclasses.asdict(cell), "keys": keys, "scale": scale, "file": file, "code": code_digest(PLANNED)}
    return hashlib.sha256(canonical(jsonable(fields))).hexdigest()[:32]


def kept_regimes(path: Path) -> dict[str, Lines]:
    """Return the regimes of the file by digest."""
    found: dict[str, Lines] = {}
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        try:
            digest, lines = json.loads(line)
        except ValueError:
            continue  # cut short when a map was interrupted
        found[digest] = lines
    return found


def keep_regime(path: Path, digest: str, lines: Lines) -> None:
    """Append a finished regime."""
    with path.open("ab") as file:
        file.write(b"\n" + canonical([digest, lines]) + b"\n")
        file.flush()
        os.fsync(file.fileno())
