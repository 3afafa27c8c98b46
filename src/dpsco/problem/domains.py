"""Closed convex sets with their l2 projections, their diameters and the norms of their farthest points.

The paper writes ||C|| <= R for both. A ball of radius R about 0 has diameter 2R, so this package distinguishes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsco.errors import InvalidArgument, positive, positive_integer
from dpsco.query import Array

__all__ = ["DOMAINS", "Box", "Domain", "Everything", "HalfSpace", "L2Ball", "Product", "Simplex"]


class Domain:
    """A closed convex set in R^p."""

    kind: ClassVar[str]

    def project(self, x: Array) -> Array:
        """Return the point of the set nearest to x, as a new array."""
        raise NotImplementedError

    def radius_in(self, dimension: int) -> float:
        """Largest ||x|| over the set; inf if it is unbounded."""
        raise NotImplementedError

    def diameter_in(self, dimension: int) -> float:
        """Largest distance between two points of the set; inf if it is unbounded."""
        raise NotImplementedError

    def is_point(self, dimension: int) -> bool:
        """Return whether the set has one point only."""
        return self.diameter_in(dimension) == 0

    def check(self, dimension: int) -> None:
        """Raise InvalidArgument if the set is not a subset of R^dimension."""


@dataclass(frozen=True)
class L2Ball(Domain):
    """The ball {||x - center|| <= radius}.

    Parameters
    ----------
    radius : float
    center : tuple of float, optional
        0 by default.
    """

    radius: float
    center: tuple[float, ...] | None = None
    kind: ClassVar[str] = "l2-ball"

    def __post_init__(self) -> None:
        radius = positive("radius", self.radius, "It bounds the model; too large costs little, too small costs much.")
        object.__setattr__(self, "radius", radius)
        if self.center is not None:
            object.__setattr__(self, "center", _vector("center", self.center))

    def project(self, x: Array) -> Array:
        """Scale x - center to length ``radius`` if it is longer."""
        if self.center is None:
            return _into_ball(x, self.radius)
        center = np.asarray(self.center)
        return center + _into_ball(x - center, self.radius)

    def radius_in(self, dimension: int) -> float:
        """Radius + ||center||."""
        return self.radius + (0.0 if self.center is None else float(np.linalg.norm(self.center)))

    def diameter_in(self, dimension: int) -> float:
        """2 * radius."""
        return 2 * self.radius

    def check(self, dimension: int) -> None:
        """Raise InvalidArgument if ``center`` has another length."""
        _fits("center", self.center, dimension)


@dataclass(frozen=True)
class Box(Domain):
    """The box {lower <= x <= upper}.

    Parameters
    ----------
    lower, upper : float or tuple of float
        A single number applies to every coordinate.
    """

    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            value = _vector(name, bound) if np.ndim(bound) else float(bound)
            object.__setattr__(self, name, value)
        lower, upper = self._bounds
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise InvalidArgument(f"Expected lower and upper of equal length, got {lower.size} and {upper.size}.")
        if not np.all(lower <= upper):
            raise InvalidArgument("Expected lower <= upper in every coordinate: the box is empty.")

    @property
    def _bounds(self) -> tuple[Array, Array]:
        return np.asarray(self.lower, dtype=np.float64), np.asarray(self.upper, dtype=np.float64)

    def project(self, x: Array) -> Array:
        """Clip each coordinate to its bounds."""
        return np.asarray(np.clip(x, *self._bounds))

    def radius_in(self, dimension: int) -> float:
        """Norm of the vector of larger absolute bounds."""
        lower, upper = self._bounds
        return float(np.linalg.norm(np.broadcast_to(np.maximum(np.abs(lower), np.abs(upper)), dimension)))

    def diameter_in(self, dimension: int) -> float:
        """||upper - lower||."""
        lower, upper = self._bounds
        return float(np.linalg.norm(np.broadcast_to(upper - lower, dimension)))

    def check(self, dimension: int) -> None:
        """Raise InvalidArgument if a bound has another length."""
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            _fits(name, bound if isinstance(bound, tuple) else None, dimension)


@dataclass(frozen=True)
class Simplex(Domain):
    """The simplex {x >= 0, sum x = total}.

    Parameters
    ----------
    total : float
        Sum of the coordinates.
    """

    total: float = 1.0
    kind: ClassVar[str] = "simplex"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", positive("total", self.total, "It is the sum of the coordinates."))

    def project(self, x: Array) -> Array:
        """Return max(x - s, 0) with the shift s that makes the sum ``total``; O(p log p)."""
        descending = np.sort(x)[::-1]
        excess = np.cumsum(descending) - self.total
        kept = np.flatnonzero(descending * np.arange(1, x.size + 1) > excess)
        last = kept[-1] if kept.size else 0
        return np.asarray(np.maximum(x - excess[last] / (last + 1), 0.0))

    def radius_in(self, dimension: int) -> float:
        """Norm of a vertex: total."""
        return self.total

    def diameter_in(self, dimension: int) -> float:
        """Distance between two vertices: sqrt(2) total."""
        return self.total * math.sqrt(2.0) if dimension > 1 else 0.0


@dataclass(frozen=True)
class HalfSpace(Domain):
    """The half-space {<normal, x> <= offset}.

    Parameters
    ----------
    normal : tuple of float
        Not 0.
    offset : float
    """

    normal: tuple[float, ...]
    offset: float = 0.0
    kind: ClassVar[str] = "half-space"

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", _vector("normal", self.normal))
        object.__setattr__(self, "offset", float(self.offset))
        if not np.any(self.normal) or not math.isfinite(self.offset):
            raise InvalidArgument("Expected a normal other than 0 and a finite offset.")

    def project(self, x: Array) -> Array:
        """Move x along the normal to the boundary if it lies outside."""
        normal = np.asarray(self.normal)
        excess = max(0.0, float(normal @ x) - self.offset)
        return x - (excess / float(normal @ normal)) * normal

    def radius_in(self, dimension: int) -> float:
        """Infinite."""
        return math.inf

    diameter_in = radius_in

    def check(self, dimension: int) -> None:
        """Raise InvalidArgument if ``normal`` has another length."""
        _fits("normal", self.normal, dimension)


@dataclass(frozen=True)
class Everything(Domain):
    """All of R^p: no constraint."""

    kind: ClassVar[str] = "everything"

    def project(self, x: Array) -> Array:
        """Copy x."""
        return x.copy()

    def radius_in(self, dimension: int) -> float:
        """Infinite."""
        return math.inf

    diameter_in = radius_in


@dataclass(frozen=True)
class Product(Domain):
    """Blocks of consecutive coordinates, each with its own set: ``Product((L2Ball(1.0), Box(0, 1)), (10, 3))``.

    Parameters
    ----------
    parts : tuple of Domain
    sizes : tuple of int
        Number of coordinates per part.
    """

    parts: tuple[Domain, ...]
    sizes: tuple[int, ...]
    kind: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        sizes = tuple(positive_integer("sizes", s, "It is the number of coordinates of one part.") for s in self.sizes)
        object.__setattr__(self, "sizes", sizes)
        if not self.parts or len(self.parts) != len(self.sizes):
            raise InvalidArgument(f"Expected one size per part, got {len(self.parts)} parts, {len(self.sizes)} sizes.")
        for part, size in zip(self.parts, self.sizes, strict=True):
            if not isinstance(part, Domain):
                raise InvalidArgument("Expected every part to be a domain such as L2Ball(radius=...).")
            part.check(size)

    def project(self, x: Array) -> Array:
        """Project each block."""
        pieces = np.split(x, np.cumsum(self.sizes)[:-1])
        return np.concatenate([part.project(piece) for part, piece in zip(self.parts, pieces, strict=True)])

    def radius_in(self, dimension: int) -> float:
        """Root of the sum of squares over the parts."""
        return math.hypot(*(part.radius_in(size) for part, size in zip(self.parts, self.sizes, strict=True)))

    def diameter_in(self, dimension: int) -> float:
        """Root of the sum of squares over the parts."""
        return math.hypot(*(part.diameter_in(size) for part, size in zip(self.parts, self.sizes, strict=True)))

    def check(self, dimension: int) -> None:
        """Raise InvalidArgument if the sizes do not add up to ``dimension``."""
        if sum(self.sizes) != dimension:
            raise InvalidArgument(f"Expected the sizes of the product to add up to {dimension}, got {sum(self.sizes)}.")


DOMAINS: dict[str, type[Domain]] = {kind.kind: kind for kind in (L2Ball, Box, Simplex, HalfSpace, Everything, Product)}


def _into_ball(x: Array, radius: float) -> Array:
    norm = math.sqrt(x.dot(x))
    return x * (radius / norm) if norm > radius else x.copy()


def _vector(name: str, values: ArrayLike) -> tuple[float, ...]:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0 or np.any(np.isnan(vector)):
        raise InvalidArgument(f"Expected {name} to be a list of numbers without NaN.")
    return tuple(vector.tolist())


def _fits(name: str, values: tuple[float, ...] | None, dimension: int) -> None:
    if values is not None and len(values) != dimension:
        raise InvalidArgument(f"Expected {name} to have {dimension} entries, one per parameter; it has {len(values)}.")
