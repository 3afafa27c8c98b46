r"""What server and clients send each other: two messages, byte for byte (docs/wire-format.md has test vectors).

    query    "dpscoQ2\n"  run[32]  first  last  places  unit  points k  coordinates p  length m  rows r  columns q
             clip  grid  k weights  k p coordinates  numbers of the map  8 numbers of a survey (k = 0)
    answer   "dpscoA1\n"  SHA-256 of the query[32]  contributions  m  each (id length, id, m numbers)

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CLIENT",
    "EXAMPLE",
    "Asked",
    "Factors",
    "Malformed",
    "can_carry",
    "decode_answer",
    "decode_query",
    "encode_answer",
    "encode_query",
]

CLIENT, EXAMPLE = 1, 2
"""Unit of privacy: the clipped vector is a client's mean over its rows, or each row's own."""

_QUERY, _ANSWER = b"dpscoQ2\n", b"dpscoA1\n"
_QUERY_HEAD = struct.Struct("<8s32sQQQHHIIIIdd")
_SURVEY = 8
_ANSWER_HEAD = struct.Struct("<8s32sII")
LONGEST_ID = 64


class Malformed(ValueError):
    """Bytes that are not the message they should be."""


class Factors(NamedTuple):
    """M = (rest I + V' diag(gains) V) diag(scale), V of shape (r, q) with r < q."""

    rest: float
    scale: NDArray[np.float64]
    gains: NDArray[np.float64]
    directions: NDArray[np.float64]

    def numbers(self) -> NDArray[np.float64]:
        """As a query holds them."""
        return np.concatenate([[self.rest], self.scale, self.gains, self.directions.ravel()])


@dataclass(frozen=True, eq=False)
class Asked:
    """A query as a client reads it: clients at places ``first`` to ``last`` are asked for one vector each.

    With points x_j: ``sum_j weights[j] grad f(x_j)``. With a map M besides, points are u_j, the gradients are those at
    M'u_j, and M is applied to their sum, for every block of q coordinates. Without points: a survey.
    """

    run: bytes
    first: int
    last: int
    places: int
    unit: int
    clip: float
    grid: float
    weights: tuple[float, ...]
    points: NDArray[np.float64]
    """Shape (k, p)."""
    length: int
    """m: numbers of a contribution."""
    matrix: NDArray[np.float64] | None
    """M, of shape (q, q); None where there is no map, or one in factors."""
    factors: Factors | None
    """M in factors; None where there is none."""
    survey: tuple[float, ...] | None
    """The survey's question (linear_gradients.py reads it); None where there are points."""
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
    first: int,
    last: int,
    places: int,
    unit: int,
    clip: float,
    grid: float,
    weights: Iterable[float] = (),
    points: Iterable[NDArray[np.float64]] = (),
    length: int = 0,
    matrix: NDArray[np.float64] | None = None,
    factors: Factors | None = None,
    survey: Iterable[float] | None = None,
) -> bytes:
    """Return the query as bytes; ``length`` is that of the points unless given."""
    listed, at = list(weights), [np.asarray(point, dtype="<f8") for point in points]
    p = at[0].size if at else 0
    r, q = (0, 0) if matrix is None else matrix.shape
    if factors is not None:
        r, q = factors.directions.shape
    sizes = (unit, len(listed), p, length or p, r, q)
    head = _QUERY_HEAD.pack(_QUERY, run, first, last, places, *sizes, clip, grid)
    parts = [np.array(listed, dtype="<f8"), *at]
    parts += [] if matrix is None else [matrix.astype("<f8")]
    parts += [] if factors is None else [factors.numbers().astype("<f8")]
    parts += [] if survey is None else [np.array(list(survey), dtype="<f8")]
    return head + b"".join(part.tobytes() for part in parts)


def decode_query(message: bytes) -> Asked:
    """Read the query that ``message`` holds; raise ``Malformed`` if it holds none."""
    if len(message) < _QUERY_HEAD.size or message[:8] != _QUERY:
        raise Malformed("Not a query of format 2.")
    _, run, first, last, places, unit, k, p, m, r, q, clip, grid = _QUERY_HEAD.unpack_from(message)
    shaped = p == m if k else p == r == 0
    mapped = (r == q == 0) or (r <= q and k > 0 and p % q == 0)
    if unit not in (CLIENT, EXAMPLE) or not m or not shaped or not mapped:
        raise Malformed("A query of another unit or shape than there is.")
    size = r * q if r == q else 1 + q + r + r * q
    if len(message) != _QUERY_HEAD.size + 8 * (k * (1 + p) + size + (0 if k else _SURVEY)):
        raise Malformed("A query of another length than its head says.")
    numbers = np.frombuffer(message, dtype="<f8", offset=_QUERY_HEAD.size).astype(np.float64)
    if not (np.all(np.isfinite(numbers)) and clip > 0 and 0 <= grid < np.inf and first < last <= places):
        raise Malformed("A query whose numbers are out of range.")
    weights, points, rest = np.split(numbers, [k, k * (1 + p)])
    return Asked(
        run=run,
        first=first,
        last=last,
        places=places,
        unit=unit,
        clip=clip,
        grid=grid,
        weights=tuple(weights.tolist()),
        points=points.reshape(k, p),
        length=m,
        matrix=rest.reshape(r, q) if r == q > 0 else None,
        factors=_factors(rest, r, q) if r < q else None,
        survey=None if k else tuple(rest.tolist()),
        digest=hashlib.sha256(message).digest(),
    )


def _factors(numbers: NDArray[np.float64], r: int, q: int) -> Factors:
    scale, gains, directions = np.split(numbers[1:], [q, q + r])
    return Factors(float(numbers[0]), scale, gains, directions.reshape(r, q))


def can_carry(name: Any) -> bool:
    """Whether an answer can name this client. One that it cannot name would make it unreadable for all in it."""
    return isinstance(name, str) and name.isascii() and name.isprintable() and len(name) <= LONGEST_ID


def encode_answer(asked: Asked, contributions: Iterable[tuple[str, NDArray[Any]]]) -> bytes:
    """One (id, numbers) for each client of this round; one without an id for a sum over examples."""
    parts = [(name.encode("ascii"), numbers.astype(asked.number).tobytes()) for name, numbers in contributions]
    head = _ANSWER_HEAD.pack(_ANSWER, asked.digest, len(parts), asked.length)
    return head + b"".join(struct.pack("<H", len(name)) + name + numbers for name, numbers in parts)


def decode_answer(asked: Asked, message: bytes) -> list[tuple[str, NDArray[Any]]]:
    """Read the contributions in ``message``; raise ``Malformed`` if it is no whole answer to this very query."""
    if len(message) < _ANSWER_HEAD.size or message[:8] != _ANSWER:
        raise Malformed("not an answer of format 1")
    _, digest, count, m = _ANSWER_HEAD.unpack_from(message)
    if digest != asked.digest:
        raise Malformed("an answer to another query")
    if m != asked.length:
        raise Malformed("an answer of another width")
    contributions, at, size = [], _ANSWER_HEAD.size, asked.number.itemsize * m
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
