"""What server and clients send each other: two messages, byte for byte (docs/wire-format.md has test vectors).

    query    "dpscoQ1\\n"  run[32]  step  rounds  unit  points k  parameters p  clip  grid  k weights  k p coordinates
    answer   "dpscoA1\\n"  SHA-256 of the query[32]  contributions m  p  m times (id length, id, p numbers)

Numbers are little-endian. Private runs have a grid, a power of two, and a contribution is a whole number of its steps:
int32 for one client's, int64 for a sum over many rows. So sums are exact in any order, an upload is four bytes a
coordinate, and NaN cannot be said. Without a grid (no noise) numbers are float64.

This file, client.py and assignment.py need NumPy and nothing else: copy the three to a device, or port them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLIENT", "EXAMPLE", "Asked", "Malformed", "decode_answer", "decode_query", "encode_answer", "encode_query"]

CLIENT, EXAMPLE = 1, 2
"""Unit of privacy: the clipped vector is a client's mean over its rows, or each row's own."""

_QUERY, _ANSWER = b"dpscoQ1\n", b"dpscoA1\n"
_QUERY_HEAD = struct.Struct("<8s32sIIHHIdd")
_ANSWER_HEAD = struct.Struct("<8s32sII")
LONGEST_ID = 64


class Malformed(ValueError):
    """Bytes that are not the message they should be."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A query as a client reads it: round ``step`` of run ``run`` asks for ``sum_j weights[j] grad f(points[j])``."""

    run: bytes
    step: int
    rounds: int
    unit: int
    clip: float
    grid: float
    weights: tuple[float, ...]
    points: NDArray[np.float64]
    """Shape (k, p)."""
    digest: bytes
    """SHA-256 of the message: an answer names the query it belongs to."""

    @property
    def number(self) -> np.dtype[Any]:
        """How an answer's numbers are written."""
        if self.grid == 0.0:
            return np.dtype("<f8")
        return np.dtype("<i4") if self.unit == CLIENT else np.dtype("<i8")


def encode_query(
    *,
    run: bytes,
    step: int,
    rounds: int,
    unit: int,
    clip: float,
    grid: float,
    weights: Iterable[float],
    points: Iterable[NDArray[np.float64]],
) -> bytes:
    """The query as bytes."""
    factors, places = list(weights), np.stack(list(points)).astype("<f8")
    head = _QUERY_HEAD.pack(_QUERY, run, step, rounds, unit, len(factors), places.shape[1], clip, grid)
    return head + struct.pack(f"<{len(factors)}d", *factors) + places.tobytes()


def decode_query(message: bytes) -> Asked:
    """The query that ``message`` holds; ``Malformed`` if it holds none."""
    if len(message) < _QUERY_HEAD.size or message[:8] != _QUERY:
        raise Malformed("Not a query of format 1.")
    _, run, step, rounds, unit, k, p, clip, grid = _QUERY_HEAD.unpack_from(message)
    if len(message) != _QUERY_HEAD.size + 8 * k * (1 + p) or not k or not p or unit not in (CLIENT, EXAMPLE):
        raise Malformed("A query of another length or unit than its head says.")
    numbers = np.frombuffer(message, dtype="<f8", offset=_QUERY_HEAD.size)
    if not (np.all(np.isfinite(numbers)) and clip > 0 and 0 <= grid < np.inf and step < rounds):
        raise Malformed("A query whose numbers are out of range.")
    weights, points = tuple(numbers[:k].tolist()), numbers[k:].reshape(k, p).astype(np.float64)
    return Asked(run, step, rounds, unit, clip, grid, weights, points, hashlib.sha256(message).digest())


def encode_answer(asked: Asked, contributions: Iterable[tuple[str, NDArray[Any]]]) -> bytes:
    """One (id, numbers) for each client of this round; one without an id for a sum over examples."""
    parts = [(name.encode("ascii"), numbers.astype(asked.number).tobytes()) for name, numbers in contributions]
    head = _ANSWER_HEAD.pack(_ANSWER, asked.digest, len(parts), asked.points.shape[1])
    return head + b"".join(struct.pack("<H", len(name)) + name + numbers for name, numbers in parts)


def decode_answer(asked: Asked, message: bytes) -> list[tuple[str, NDArray[Any]]]:
    """The contributions in ``message``; ``Malformed`` if it is no whole answer to this very query."""
    if len(message) < _ANSWER_HEAD.size or message[:8] != _ANSWER:
        raise Malformed("not an answer of format 1")
    _, digest, count, p = _ANSWER_HEAD.unpack_from(message)
    if digest != asked.digest:
        raise Malformed("an answer to another query")
    if p != asked.points.shape[1]:
        raise Malformed("an answer of another width")
    contributions, at, size = [], _ANSWER_HEAD.size, asked.number.itemsize * p
    for _ in range(count):
        length = int.from_bytes(message[at : at + 2], "little")
        numbers = message[at + 2 + length : at + 2 + length + size]
        name = message[at + 2 : at + 2 + length]
        if length > LONGEST_ID or len(numbers) != size or not name.isascii():
            raise Malformed("an answer of another length than its head says")
        contributions.append((name.decode("ascii"), np.frombuffer(numbers, dtype=asked.number)))
        at += 2 + length + size
    if at != len(message):
        raise Malformed("an answer of another length than its head says")
    return contributions
