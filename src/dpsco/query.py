"""The narrow waist: the only values that pass between algorithm, oracle and release.

algorithm.ask(state)  -> Query       public
oracle.answer(query)  -> Clipped     SENSITIVE: repr hides it, pickle and copy refuse it
release(clipped)      -> Released    private, safe to publish
algorithm.tell(state, released)
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHUNK_ROWS",
    "SUMMATION_SLACK",
    "Array",
    "Batch",
    "Chunk",
    "Clipped",
    "Portion",
    "Query",
    "Released",
    "chunk_multiple",
    "to_grid",
]

Array = NDArray[np.float64]

Chunk = tuple[NDArray[Any], NDArray[Any]]
"""Some rows of a batch: features of shape (rows, p), labels of shape (rows,)."""

CHUNK_ROWS = 4096
"""Chunks of a batch, all but the last, hold a multiple of this many rows; of fewer if rows are wide."""

_UNIT_NUMBERS = 1 << 18


def chunk_multiple(width: int) -> int:
    """Rows that chunks of dense rows hold a multiple of: a power of two from 256 to ``CHUNK_ROWS``, about 2 MB.

    Blocks that an oracle sums by themselves are no longer than this, so they never straddle two chunks.
    """
    return min(CHUNK_ROWS, max(256, 1 << (_UNIT_NUMBERS // width).bit_length()))


SUMMATION_SLACK = 2.0**-10
"""Share of the clip that summing one block in floating point may add to the distance of two neighbours' sums."""


def to_grid(values: Array, grid: float) -> Array:
    """``values`` rounded to the nearest multiples of ``grid``, a power of two; as they are if grid = 0.

    Guarantee: sums of results are exact in float64, in any order, while they stay below 2^53 grid.
    """
    if grid == 0.0:
        return values
    steps = np.asarray(values / grid)  # the one new array: memory of long vectors costs more than what is done in it
    np.rint(steps, out=steps)
    steps *= grid
    return steps


@dataclass(frozen=True, eq=False)
class Query:
    """What round ``step`` asks of each fresh example d: ``clip(sum_j weights[j] grad f(points[j], d), clip)``.

    Everything in it is public: it is computed from the plan and from released values.
    """

    step: int
    points: tuple[Array, ...]
    """(x_t, x_{t-1}); only (x_0,) in round 0, where eta_{-1} = 0."""
    weights: tuple[float, ...]
    """(eta_t, -eta_{t-1})."""
    clip: float
    """C, the bound on one example's weighted difference; inf without noise."""
    size: int
    """B, the public batch size: the denominator, whatever number of rows comes."""
    grid: float = 0.0
    """Power of two that block sums are rounded to; 0 without noise."""
    rowwise: bool = False
    """Round each row's contribution by itself, so that the sum depends on no row's position (add-remove, samples)."""

    def __post_init__(self) -> None:
        # Points are the algorithm's own state: a gradient function that worked in place would write rows into it.
        points = tuple(np.ascontiguousarray(point, dtype=np.float64).view() for point in self.points)
        for point in points:
            point.setflags(write=False)
        object.__setattr__(self, "points", points)

    def digest(self, points: Sequence[bytes] | None = None) -> bytes:
        """SHA-256 of all fields: two queries ask the same if and only if it is equal.

        ``points`` are the SHA-256 of the points, where they are known already.
        """
        if points is None:
            points = [hashlib.sha256(point.data).digest() for point in self.points]
        numbers = (self.step, self.size, self.rowwise, len(self.points), self.clip, self.grid, *self.weights)
        return hashlib.sha256(struct.pack(f"<4q{2 + len(self.weights)}d", *numbers) + b"".join(points)).digest()


@dataclass(frozen=True, slots=True)
class Portion:
    """Which rows a round sees: those at positions ``first`` to ``last``, or a Poisson sample of them. Public."""

    first: int
    last: int
    rate: float = 1.0
    """Probability with which each of the rows enters, drawn from the run's key by itself in every round."""

    @property
    def rows(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one round, in chunks that can each be held in memory; read once, in order.

    Every chunk but the last has a multiple of ``chunk_multiple(width)`` rows (``CHUNK_ROWS`` if sparse), so the
    blocks of a batch do not depend on how it was cut into chunks.
    """

    step: int
    chunks: Iterable[Chunk]


class Clipped:
    """SENSITIVE: a sum of clipped contributions, not yet noised.

    It can be handed to ``release`` and to nothing else: it does not print, copy or pickle.
    """

    __slots__ = ("clipped_rows", "rows", "total", "zeroed_rows")

    def __init__(self, total: Array, rows: int, *, clipped_rows: int = 0, zeroed_rows: int = 0) -> None:
        self.total = total
        self.rows = rows
        self.clipped_rows = clipped_rows
        self.zeroed_rows = zeroed_rows

    def add(self, other: Clipped) -> None:
        """Take in another sum of other rows, in place: for work that is handed this very object."""
        self.total += other.total
        self.rows += other.rows
        self.clipped_rows += other.clipped_rows
        self.zeroed_rows += other.zeroed_rows

    def __add__(self, other: Clipped) -> Clipped:
        """Union of two disjoint sets of rows; exact on the grid, so shards combine in any order."""
        return Clipped(
            self.total + other.total,
            self.rows + other.rows,
            clipped_rows=self.clipped_rows + other.clipped_rows,
            zeroed_rows=self.zeroed_rows + other.zeroed_rows,
        )

    def __repr__(self) -> str:
        return "Clipped(<sensitive: hand it to release>)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A Clipped sum is sensitive and is never pickled or copied. Release it first.")


_BY_RELEASE = object()
"""Held by ``dpsco.release.releaser`` alone: nothing else makes a ``Released``."""


class Released:
    """A sum after noise: differentially private, safe to log, store and publish."""

    __slots__ = ("step", "value")

    def __init__(self, step: int, value: Array, *, by: object) -> None:
        if by is not _BY_RELEASE:
            raise TypeError("Only dpsco.release.releaser makes a Released: that is where the noise is added.")
        value.setflags(write=False)
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "value", value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("A Released is immutable.")

    step: int
    value: Array

    def __repr__(self) -> str:
        return f"Released(step={self.step}, dimension={self.value.size})"
