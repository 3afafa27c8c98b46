"""The only values that pass between method, oracle and release.

method.ask(state)     -> Query       public
oracle.answer(query)  -> Clipped     SENSITIVE: repr hides it, pickle and copy refuse it
release(clipped)      -> Released    private, safe to publish
method.tell(state, released)
"""

from __future__ import annotations

import hashlib
import math
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
    "Curvature",
    "Moment",
    "Portion",
    "Query",
    "Released",
    "chunk_multiple",
    "to_grid",
]

Array = NDArray[np.float64]

Chunk = tuple[Any, NDArray[Any]]
"""Some rows of a batch: features of shape (rows, p), as an array, CSR or ``RowsOnDemand``, and labels (rows,)."""

CHUNK_ROWS = 4096
"""Every chunk of a batch but the last has a multiple of this many rows, or of fewer if rows are wide."""

_UNIT_NUMBERS = 1 << 19


def chunk_multiple(width: int) -> int:
    """Return the number that divides the rows of dense chunks: a power of two from 256 to ``CHUNK_ROWS``, about 4 MB.

    An oracle's blocks are no longer than this, so no block spans two chunks.
    """
    return min(CHUNK_ROWS, max(256, 1 << (_UNIT_NUMBERS // width).bit_length()))


SUMMATION_SLACK = 2.0**-10
"""Share of the clip that floating-point summation of one block may add to the distance of neighbouring sums."""


def to_grid(values: Array, grid: float) -> Array:
    """Round ``values`` to the nearest multiples of ``grid``, a power of two; no rounding if grid = 0.

    Guarantee: sums of results are exact in float64, in any order, while they stay below 2^53 grid.
    """
    if grid == 0.0:
        return values
    steps = np.asarray(values / grid)  # the only new array: allocating a long vector takes longer than the arithmetic
    np.rint(steps, out=steps)
    steps *= grid
    return steps


@dataclass(frozen=True)
class Moment:
    """What a survey asks of each row, beside its gradient at zero (clipping/survey.py). Public."""

    kind: str
    """"full": the second moment a a'. "diagonal": its diagonal and the column of the constant."""
    feature_norm: float
    """F: features are divided by it, and shortened to norm 1."""
    constant: float
    """The constant column that stands for the intercept, in units of F; 0 without one."""
    outputs: int
    """Scores per row."""
    classes: int
    """Labels that are counted; 0 for a regression."""
    slope: float
    """G: bound on the norm of the derivative of the loss in the scores, at scores of 0."""
    gradient: float
    """kappa: weight of the gradient relative to the moment."""
    health: float
    """theta: weight of each health indicator relative to the moment."""

    @property
    def omega(self) -> float:
        """The weight kappa rho / G of the gradient at zero."""
        return self.gradient * math.hypot(1.0, self.constant) / self.slope


@dataclass(frozen=True)
class Curvature(Moment):
    """What a Newton step asks: the same at the query's point, each a a' weighed by the row's curvature there.

    The weight is least + (1 - least) times the second derivative of the loss in the score over its largest value.
    """

    least: float = 0.0
    """In [0, 1]: least weight of a row."""


@dataclass(frozen=True, eq=False)
class Query:
    """The contribution of each row d in round ``step``: ``clip(sum_j weights[j] grad f(points[j], d), clip)``.

    A survey asks for the joint contribution of ``moment`` instead. Everything in it is public: it is computed from the
    plan and from released values.
    """

    step: int
    points: tuple[Array, ...]
    """(x_t, x_{t-1}); only (x_0,) in round 0, because eta_{-1} = 0."""
    weights: tuple[float, ...]
    """(eta_t, -eta_{t-1})."""
    clip: float
    """C, the bound on the norm of a row's contribution; inf without noise."""
    size: int
    """B, the public batch size: the denominator, independent of the actual number of rows."""
    grid: float = 0.0
    """Power of two to which block sums are rounded; 0 without noise."""
    rowwise: bool = False
    """Whether to round each contribution by itself: then no row's position affects the sum (add-remove, samples)."""
    moment: Moment | None = None
    """The survey's question; None for a weighted gradient difference."""
    squares: float = 0.0
    """theta: weight of the squares of a contribution's entries, which follow it (clipping/squares.py); 0: none."""
    radius: float = 0.0
    """R: squares are those of the contribution shortened to this length."""

    @property
    def gradient_clip(self) -> float:
        """Bound on the weighted gradient difference, so that it and its squares together obey ``clip``."""
        return self.clip / math.hypot(1.0, self.squares)

    def __post_init__(self) -> None:
        # Points belong to the method's state: an oracle that works in place would write rows into it.
        points = []
        for point in self.points:
            view = np.ascontiguousarray(point, dtype=np.float64).view()
            view.setflags(write=False)
            points.append(view)
        object.__setattr__(self, "points", tuple(points))

    def digest(self, points: Sequence[bytes] | None = None) -> bytes:
        """Compute the SHA-256 of all fields; it identifies the query.

        ``points`` are the SHA-256 of the points, if already known.
        """
        if points is None:
            points = [hashlib.sha256(point.data).digest() for point in self.points]
        numbers = (self.step, self.size, self.rowwise, len(self.points), self.clip, self.grid, *self.weights)
        survey = b"" if self.moment is None else repr(self.moment).encode()
        if self.squares:
            survey += struct.pack("<2d", self.squares, self.radius)
        return hashlib.sha256(
            struct.pack(f"<4q{2 + len(self.weights)}d", *numbers) + b"".join(points) + survey
        ).digest()


@dataclass(frozen=True, slots=True)
class Portion:
    """The rows of a round: those at positions ``first`` to ``last``, or a Poisson sample of them. Public."""

    first: int
    last: int
    rate: float = 1.0
    """Probability of each row, sampled independently in every round with the run's key."""

    @property
    def rows(self) -> int:
        """Number of positions."""
        return self.last - self.first


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of one round, in chunks that each fit into memory; read once, in order.

    Every chunk but the last has a multiple of ``chunk_multiple(width)`` rows (``CHUNK_ROWS`` if sparse), so the
    blocks of a batch do not depend on its chunks.
    """

    step: int
    chunks: Iterable[Chunk]


class Clipped:
    """SENSITIVE: a sum of clipped contributions, before noise.

    It is meant for ``release`` only: it cannot be printed, copied or pickled.
    """

    __slots__ = ("clipped_rows", "rows", "total", "zeroed_rows")

    def __init__(self, total: Array, rows: int, *, clipped_rows: int = 0, zeroed_rows: int = 0) -> None:
        self.total = total
        self.rows = rows
        self.clipped_rows = clipped_rows
        self.zeroed_rows = zeroed_rows

    def add(self, other: Clipped) -> None:
        """Add a sum of other rows in place, for code that shares this object."""
        self.total += other.total
        self.rows += other.rows
        self.clipped_rows += other.clipped_rows
        self.zeroed_rows += other.zeroed_rows

    def __add__(self, other: Clipped) -> Clipped:
        """Combine two disjoint sets of rows; exact on the grid, so shards combine in any order."""
        return Clipped(
            self.total + other.total,
            self.rows + other.rows,
            clipped_rows=self.clipped_rows + other.clipped_rows,
            zeroed_rows=self.zeroed_rows + other.zeroed_rows,
        )

    def __repr__(self) -> str:
        return "Clipped(<sensitive: pass it to release>)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A Clipped sum is sensitive and cannot be pickled or copied. Release it first.")


_BY_RELEASE = object()
"""Token of ``dpsco.release.releaser``: no other module creates a ``Released``."""


class Released:
    """A sum after noise: differentially private, safe to log, store and publish."""

    __slots__ = ("step", "value")

    def __init__(self, step: int, value: Array, *, by: object) -> None:
        if by is not _BY_RELEASE:
            raise TypeError("Only dpsco.release.releaser creates a Released: the noise is added there.")
        value.setflags(write=False)
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "value", value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("A Released is immutable.")

    step: int
    value: Array

    def __repr__(self) -> str:
        return f"Released(step={self.step}, dimension={self.value.size})"
