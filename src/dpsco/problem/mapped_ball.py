"""The ball {||M u|| <= radius} in coordinates u, applied to each class: the domain of a surveyed run.

With M = U diag(g) W' the projection of u has w = W'u shrunk to w_i / (1 + m g_i^2), for the m >= 0 that meets the
constraint: one secular equation, monotone in m, solved by bisection.
Cost: O(p^2) per class and call, O(p) where M is diagonal. A matrix M is decomposed when a point outside is met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.lazy import cached_property
from dpsco.problem.domains import Domain
from dpsco.query import Array

__all__ = ["MappedBall", "MatrixBall"]

_MILD = 1e-6
"""Least over largest squared gain from which M'M holds the gains well enough."""


@dataclass(frozen=True, eq=False)
class MappedBall(Domain):
    """The set {||M u|| <= radius}, of an M that is decomposed."""

    basis: Array
    """W: right singular vectors of M, one per column; all of them, or those whose gain is not ``rest``.

    Without columns, beside as many gains as coordinates: the axes."""
    gains: Array
    """g: singular values of M, in the order of the columns."""
    radius: float
    rest: float = 0.0
    """Singular value of M for every direction orthogonal to ``basis``."""
    kind: ClassVar[str] = "mapped ball"

    def project(self, x: Array) -> Array:
        """Return the nearest point, in the Euclidean norm of u."""
        rows = x.reshape(-1, len(self.basis))
        w = rows if self._axes else rows @ self.basis
        outside = rows - w @ self.basis.T if self._partial else None
        far = 0.0 if outside is None else float(np.linalg.norm(outside))
        if self._length(w, far, 0.0) <= self.radius:
            return x.copy()
        low, high = 0.0, 1.0 / max(float(np.max(self.gains, initial=0.0)), self.rest) ** 2
        while self._length(w, far, high) > self.radius and high < 1e300:
            low, high = high, 4.0 * high
        for _ in range(100):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            low, high = (middle, high) if self._length(w, far, middle) > self.radius else (low, middle)
        inside = w / (1.0 + high * self.gains**2)
        inside = inside if self._axes else inside @ self.basis.T
        if outside is not None:
            inside = inside + outside / (1.0 + high * self.rest**2)
        return np.asarray(inside.ravel())

    @property
    def _axes(self) -> bool:
        return self.basis.shape[1] == 0 and len(self.gains) == len(self.basis)

    @property
    def _partial(self) -> bool:
        """Whether directions are left outside the basis; a full one leaves nothing but rounding."""
        return len(self.gains) < len(self.basis)

    def _length(self, w: Array, far: float, m: float) -> float:
        scaled = w * self.gains if m == 0.0 else w * self.gains / (1.0 + m * self.gains**2)
        inside = math.sqrt(
            float(np.sum(np.square(scaled, out=scaled)))
        )  # threads of BLAS would cost more than they save
        return math.hypot(inside, far * self.rest / (1.0 + m * self.rest**2))

    def radius_in(self, dimension: int) -> float:
        """Radius over the least gain."""
        least = float(np.min(self.gains, initial=self.rest if self._partial else math.inf))
        return self.radius / least if least > 0 else math.inf

    def diameter_in(self, dimension: int) -> float:
        """Twice the radius."""
        return 2 * self.radius_in(dimension)


@dataclass(frozen=True, eq=False)
class MatrixBall(Domain):
    """The set {||M u|| <= radius}. Points inside, which most are, need no decomposition of M."""

    matrix: Array
    """M, of shape (p, p)."""
    radius: float
    kind: ClassVar[str] = "mapped ball"

    def project(self, x: Array) -> Array:
        """Return the nearest point, in the Euclidean norm of u."""
        scaled = x.reshape(-1, len(self.matrix)) @ self.matrix.T
        inside = math.sqrt(float(np.sum(np.square(scaled, out=scaled)))) <= self.radius
        return x.copy() if inside else self._decomposed.project(x)

    @cached_property
    def _decomposed(self) -> MappedBall:
        with np.errstate(all="ignore"):
            gram = self.matrix.T @ self.matrix
        if np.all(np.isfinite(gram)):
            squares, basis = np.linalg.eigh(gram)
            if squares[0] > _MILD * squares[-1]:  # gains are exact to 1e-10, for half the cost of decomposing M
                return MappedBall(basis, np.sqrt(squares), self.radius)
        _, gains, transposed = np.linalg.svd(self.matrix)
        return MappedBall(transposed.T, gains, self.radius)

    def radius_in(self, dimension: int) -> float:
        """Radius over the least gain."""
        return self._decomposed.radius_in(dimension)

    def diameter_in(self, dimension: int) -> float:
        """Twice the radius."""
        return self._decomposed.diameter_in(dimension)

    def is_point(self, dimension: int) -> bool:
        """Return whether the radius is 0: no decomposition is needed to tell."""
        return self.radius == 0
