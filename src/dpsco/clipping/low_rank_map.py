"""A map of rows in factors: P = rest I + V diag(gains - rest) V', V of shape (p, k) with orthonormal columns.

A row takes 2 p k multiply-adds instead of p^2, and the map 8 p (k + 1) bytes: for many columns, and for devices.
Guarantee: as for ``RowMap``; a row may become any vector before it is clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.clipping.leading_directions import Leading
from dpsco.clipping.row_map import RowMap, one_by_one, products
from dpsco.clipping.survey import dense, padded, unit_rows
from dpsco.errors import InvalidArgument, positive
from dpsco.json_files import decode_array, encode_array
from dpsco.lazy import cached_property
from dpsco.problem.domains import Domain
from dpsco.problem.mapped_ball import MappedBall
from dpsco.query import Array

__all__ = ["LowRankMap", "map_from_dict"]

_TOGETHER = 64


@dataclass(frozen=True, eq=False)
class LowRankMap(RowMap):
    """P in factors; ``matrix`` is not kept and has shape (p, 0)."""

    directions: Array
    gains: Array
    rest: float

    kind: ClassVar[str] = "low-rank"

    @cached_property
    def norm(self) -> float:
        """Spectral norm of P."""
        return max(self.rest, float(np.max(self.gains, initial=0.0)))

    @property
    def diagonal(self) -> bool:
        """Whether P scales all columns alike."""
        return not len(self.gains)

    @property
    def sides(self) -> Array:
        """The scales of a diagonal map, in the problem's own parameters."""
        return self.rest * self.own_scale

    def to_dict(self) -> dict[str, Any]:
        """Return the map as JSON holds it."""
        return {
            "directions": encode_array(self.directions),
            "gains": encode_array(self.gains),
            "rest": self.rest,
            "feature_norm": self.feature_norm,
            "constant": self.constant,
        }

    def dtype(self, given: np.dtype[Any]) -> np.dtype[Any]:
        """Return float64."""
        return np.dtype(np.float64)

    def rows(self, features: Any) -> NDArray[Any]:
        """B of each row; a row that is not finite as NaN: SENSITIVE."""
        a, _, unusable = unit_rows(dense(features), self.feature_norm, self.constant)
        with np.errstate(all="ignore"):
            along = products(a, self.directions) * (self.gains - self.rest)
            b = self.rest * a + products(along, np.ascontiguousarray(self.directions.T))
        b[unusable] = np.nan
        return b

    def rows_one_by_one(self, features: Any) -> Array:
        """B of each row by operations on single numbers, in one order: no row's place changes its bits. SENSITIVE."""
        features = dense(features)
        a, _, unusable = unit_rows(padded(features, _TOGETHER), self.feature_norm, self.constant)
        with np.errstate(all="ignore"):
            along = one_by_one(a, self.directions) * (self.gains - self.rest)
            b = self.rest * a + one_by_one(along, self.directions.T)
        b[unusable] = np.nan
        return b[: len(features)]

    @cached_property
    def leading(self) -> Leading | None:
        """Return the directions of the map: all others have one gain; None if they are not orthonormal.

        With V'V = I + E the square of the norm differs from that of orthonormal directions by at most ||E|| of the
        squared norm of P per ||a||^2, for which half of the second term of ``doubt`` is there.
        """
        p, k = self.directions.shape
        finite = np.all(np.isfinite(self.directions)) and np.all(np.isfinite(self.gains)) and np.isfinite(self.rest)
        off = np.linalg.norm(self.directions.T @ self.directions - np.eye(k)) if finite else np.inf
        if not off <= p * 2.0**-46:
            return None
        gains = np.append(self.gains, self.rest)
        return Leading(self.directions, self.gains, self.rest, float(np.max(gains)), float(np.min(gains)))

    def turned(self, a: Array) -> Array:
        """P a, of one vector."""
        return self._apply(a[None], self.gains, self.rest)[0]

    def turned_back(self, u: Array) -> Array:
        """P'u, of one vector: P is symmetric."""
        return self.turned(u)

    def parameters(self, u: Array) -> Array:
        """Return the problem's own parameters that ``u`` stands for, class after class."""
        return np.asarray((self._apply(u.reshape(-1, self.columns), self.gains, self.rest) * self.own_scale).ravel())

    def start(self, x: Array) -> Array:
        """Return the u that stands for x."""
        inside = x.reshape(-1, self.columns) / self.own_scale
        return np.asarray(self._apply(inside, 1 / self.gains, 1 / self.rest).ravel())

    def ball(self, radius: float) -> Domain:
        """Return the set {||M'u|| <= radius}.

        M M' = d^2 P^2 + (c^2 - d^2) (P e)(P e)', d = 1 / F, e the constant's axis: outside the span of V and e it
        is d^2 rest^2, and inside a small matrix is decomposed.
        """
        p, d = self.columns, 1 / self.feature_norm
        span = self.directions
        if self.constant > 0:
            axis = np.zeros((p, 1))
            axis[-1] = 1.0
            left = axis - span @ (span.T @ axis)
            left -= span @ (span.T @ left)
            length = float(np.linalg.norm(left))
            if length > 1e-12 and span.shape[1] < p:
                span = np.hstack([span, left / length])
        mapped = self._apply(span.T, self.gains, self.rest) * self.own_scale
        values, vectors = np.linalg.eigh(mapped @ mapped.T)
        return MappedBall(span @ vectors, np.sqrt(np.maximum(values, 0.0)), radius, d * self.rest)

    def _apply(self, rows: Array, gains: Array, rest: float) -> Array:
        return np.asarray(rest * rows + ((rows @ self.directions) * (gains - rest)) @ self.directions.T)


def map_from_dict(data: Mapping[str, Any]) -> RowMap:
    """Return the map that ``to_dict`` of any kind wrote; raise ``InvalidArgument`` for anything else."""
    if not isinstance(data, Mapping) or "matrix" in data:
        return RowMap.from_dict(data)
    if "scales" in data:
        return DiagonalMap.from_dict(data)
    if set(data) != {"directions", "gains", "rest", "feature_norm", "constant"}:
        raise InvalidArgument("Not a map of rows: fields are missing, extra or of another version.")
    directions, gains = decode_array(data["directions"]), decode_array(data["gains"])
    if directions.ndim != 2 or gains.shape != directions.shape[1:] or not np.all(gains > 0):
        raise InvalidArgument("Not a map of rows: its factors do not fit together.")
    return LowRankMap(
        np.zeros((len(directions), 0)),
        positive("feature_norm", data["feature_norm"], "Rows are divided by it."),
        0.0 if data["constant"] == 0 else positive("constant", data["constant"], "A column."),
        directions,
        gains,
        positive("rest", data["rest"], "It scales the other directions."),
    )
