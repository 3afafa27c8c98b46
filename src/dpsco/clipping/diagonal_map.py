"""A map of rows that scales each column by itself: P = diag(d). For very many columns, of sparse tables above all.

    b = (d_j a_j)_j         a the unit row of clipping/survey.py, its constant included

A map has p numbers, and a row takes as many products as it has stored values: sparse rows stay sparse, and nothing has
p^2 numbers. Scales are rounded to 24 binary digits: float32 kernels hold them exactly (kernels/scaled_rows.py).

Guarantee: as for ``RowMap``; a row may become any vector before it is clipped. Numbers are mapped one by one, so no
row's place matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.clipping.leading_directions import Leading
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.stored_values import unit_values
from dpsco.clipping.survey import padded, unit_rows
from dpsco.errors import InvalidArgument, positive
from dpsco.json_files import decode_array, encode_array
from dpsco.lazy import cached_property
from dpsco.problem.domains import Domain
from dpsco.problem.mapped_ball import MappedBall
from dpsco.query import Array
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = ["DiagonalMap", "diagonal_map"]

_FIELDS = {"scales", "feature_norm", "constant"}
_TOGETHER = 64


@dataclass(frozen=True, eq=False)
class DiagonalMap(RowMap):
    """P = diag(scales); ``matrix`` is not kept and has shape (p, 0). Made by ``diagonal_map``."""

    scales: Array

    kind: ClassVar[str] = "diagonal"

    def __post_init__(self) -> None:
        with np.errstate(all="ignore"):
            rounded = np.asarray(self.scales, dtype=np.float32).astype(np.float64)
        if rounded.ndim != 1 or rounded.shape != self.matrix.shape[:1]:
            raise InvalidArgument("Not a map of rows: its scales do not fit its columns.")
        object.__setattr__(self, "scales", rounded)

    @cached_property
    def kept(self) -> dict[tuple[int, float], tuple[Array, Array]]:
        """What clipping/scaled.py computes once for all rounds of one size and clip. Public."""
        return {}

    @cached_property
    def norm(self) -> float:
        """Largest scale; infinite if one is not finite or not positive."""
        proper = np.all(np.isfinite(self.scales)) and np.all(self.scales > 0)
        return float(np.max(self.scales, initial=0.0)) if proper else float("inf")

    @property
    def diagonal(self) -> bool:
        """Whether each column is scaled by a positive number."""
        return bool(np.all(self.scales > 0))

    @property
    def sides(self) -> Array:
        """The scales in the problem's own parameters."""
        return self.scales * self.own_scale

    @property
    def leading(self) -> Leading | None:
        """None: the axes are not read as directions; kernels/scaled_rows.py knows the norm of a mapped row."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the map as JSON holds it."""
        return {"scales": encode_array(self.scales), "feature_norm": self.feature_norm, "constant": self.constant}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DiagonalMap:
        """Return the map that ``to_dict`` wrote; raise ``InvalidArgument`` for anything else."""
        if not isinstance(data, Mapping) or set(data) != _FIELDS:
            raise InvalidArgument("Not a map of rows: fields are missing, extra or of another version.")
        scales = decode_array(data["scales"])
        if scales.ndim != 1 or not np.all(np.isfinite(scales)) or not np.all(np.float32(scales) > 0):
            raise InvalidArgument("Not a map of rows: its scales are not positive numbers.")
        norm = positive("feature_norm", data["feature_norm"], "Rows are divided by it.")
        constant = 0.0 if data["constant"] == 0 else positive("constant", data["constant"], "A column.")
        return diagonal_map(scales, norm, constant)

    def dtype(self, given: np.dtype[Any]) -> np.dtype[Any]:
        """Return float64."""
        return np.dtype(np.float64)

    def rows(self, features: Any) -> Any:
        """B of each row, dense for dense rows and CSR for sparse ones; a row that is not finite as NaN: SENSITIVE."""
        if is_sparse(features):
            return self._sparse_rows(CsrRows.of(features))
        a, _, unusable = unit_rows(np.asarray(features), self.feature_norm, self.constant)
        with np.errstate(all="ignore"):
            a *= self.scales
        a[unusable] = np.nan
        return a

    def rows_one_by_one(self, features: Any) -> Any:
        """``rows``, by operations that do not depend on a row's place: SENSITIVE."""
        if is_sparse(features):
            return self.rows(features)
        features = np.asarray(features)
        return self.rows(padded(features, _TOGETHER))[: len(features)]

    def _sparse_rows(self, features: CsrRows) -> CsrRows:
        """Map sparse rows; the constant is one more stored value, an unusable row holds NaN there and nothing else."""
        row, column, value, _, unusable = unit_values(features, self.feature_norm)
        rows, p = len(features), self.columns
        more = np.ones(rows, dtype=np.int64) if self.constant > 0 else unusable.astype(np.int64)
        ends = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=rows) + more, out=ends[1:])
        data, indices = np.empty(ends[-1]), np.empty(ends[-1], dtype=np.int64)
        place = np.arange(len(row)) + (np.cumsum(more) - more)[row]
        with np.errstate(all="ignore"):
            data[place], indices[place] = value * self.scales[column], column
        last = ends[1:][more > 0] - 1
        data[last], indices[last] = self.constant * self.scales[-1], p - 1
        data[ends[1:][unusable] - 1] = np.nan
        return CsrRows(data, indices, ends, p)

    def start(self, x: Array) -> Array:
        """Return the u that stands for x."""
        return np.asarray((x.reshape(-1, self.columns) / self.sides).ravel())

    def ball(self, radius: float) -> Domain:
        """Return the set {||M'u|| <= radius}, M the diagonal of ``sides``."""
        return MappedBall(np.zeros((self.columns, 0)), self.sides, radius)

    @property
    def own(self) -> Array:
        """Refused: M has p^2 numbers, of which ``sides`` are the diagonal."""
        raise InvalidArgument("A map of very many columns has no matrix: use its sides.")

    def turned(self, a: Array) -> Array:
        """P a, of one vector."""
        return np.asarray(self.scales * a)

    def turned_back(self, u: Array) -> Array:
        """P'u, of one vector."""
        return self.turned(u)

    def parameters(self, u: Array) -> Array:
        """Return the problem's own parameters that ``u`` stands for, class after class."""
        return np.asarray((u.reshape(-1, self.columns) * self.sides).ravel())


def diagonal_map(scales: Array, feature_norm: float, constant: float) -> DiagonalMap:
    """Return the map that multiplies each column, that of the constant included, by its scale.

    >>> diagonal_map(np.array([2.0, 0.5]), 1.0, 0.0).rows(np.array([[0.6, 0.8]]))
    array([[1.2, 0.4]])
    """
    return DiagonalMap(np.zeros((len(scales), 0)), feature_norm, constant, scales)
