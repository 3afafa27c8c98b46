"""Ids: which person a row belongs to, and which round a hash of the id gives it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.containers import column_texts

__all__ = ["NO_ROUND", "round_of", "rounds_of_ids"]

NO_ROUND = -1


def round_of(identity: str, salt: bytes, rounds: int) -> int:
    """Return the round of an id: a keyed hash of its text, uniform over the rounds, a function of nothing else."""
    digest = hashlib.blake2b(f"'{identity}'".encode("utf-8", "surrogatepass"), key=salt[:32], digest_size=16).digest()
    return int.from_bytes(digest, "little") % rounds


def rounds_of_ids(ids: Any, salt: bytes, rounds: int) -> NDArray[np.int64]:
    """Return the round of each row's id; ``NO_ROUND`` for a row without an id, which no round sees."""
    texts, codes = column_texts(ids, of="id")
    of_text = [round_of(text, salt, rounds) if text else NO_ROUND for text in texts]
    return np.array(of_text, dtype=np.int64)[codes] if texts else np.zeros(0, dtype=np.int64)
