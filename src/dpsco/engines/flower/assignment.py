"""Which place a client has, and so which round: fixed before the first query, the same for everybody who asks.

    hashed    place = BLAKE2b-128(key = run, "'" id "'") mod the number of places, read as a little-endian number
    roster    a list made up front: id -> place

There is one place per round; n of them where a survey decides on the rounds. A round asks a stretch of places.

A hash depends on that client alone, so adding or removing one moves nobody else: the form that add-remove needs. It is
the hash that ``dpsco.stream(X, y, ids=...)`` uses, so a run in process puts the same people into the same rounds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Assignment", "Hashed", "Roster"]

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)


class Assignment(Protocol):
    """A public rule."""

    def place_of(self, client: str, run: bytes, places: int) -> int | None:
        """Return the one place of ``client`` in run ``run``; None if it has none."""

    def digest(self) -> str:
        """Names the rule: a run that is resumed under another one would call clients twice."""


@dataclass(frozen=True)
class Hashed:
    """Every client has a place: a keyed hash of its id."""

    def place_of(self, client: str, run: bytes, places: int) -> int | None:
        """Return the keyed hash of the id, modulo ``places``; None if the id is not valid."""
        if not _ID.fullmatch(client):
            return None
        digest = hashlib.blake2b(f"'{client}'".encode("ascii"), key=run, digest_size=16).digest()
        return int.from_bytes(digest, "little") % places

    def digest(self) -> str:
        """Name the rule in the run's identity."""
        return "hashed"


@dataclass(frozen=True)
class Roster:
    """Clients on a list, each with its round; nobody else takes part."""

    rounds: Mapping[str, int]

    def __post_init__(self) -> None:
        # A copy: a list that changes during a run would give a client a second round.
        object.__setattr__(self, "rounds", dict(self.rounds))

    def place_of(self, client: str, run: bytes, places: int) -> int | None:
        """Return the place that the list gives ``client``; None if it is not on the list."""
        return self.rounds.get(client)

    def digest(self) -> str:
        """Name the rule in the run's identity: a hash of the list."""
        lines = "\n".join(f"{client} {step}" for client, step in sorted(self.rounds.items()))
        return "roster " + hashlib.sha256(lines.encode()).hexdigest()
