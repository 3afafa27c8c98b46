"""Rows in the coordinates of a surveyed run: b = P a, a the unit row of clipping/survey.py.

Rounds after a survey are plain rounds on the rows b: scores are <b, u>, contributions c b are clipped by ||c b|| =
||P (c a)||, sums and noise are in the coordinates of u, and the model is x = P'u.

Guarantee: b depends on its row, its place in its unit of rows and public numbers alone. Rows are mapped unit by unit
and on one BLAS thread, so parts of a round that begin at whole units give the bits of the whole round. The clip, the
block sums and the grid apply to the vector b, in the type of the rows, whatever rounding made it. So neither the
condition of P nor the error of the product enters the proof: a row may become any vector before it is clipped.
Under add-remove rows are mapped number by number, so that no row's place matters.
Cost: p^2 multiply-adds per row, by matrix products in the threads of the oracle; memory of one piece per thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.leading_directions import Leading, leading_directions
from dpsco.clipping.survey import dense, padded, unit_rows
from dpsco.errors import InvalidArgument, positive
from dpsco.json_files import canonical, decode_array, encode_array
from dpsco.lazy import cached_property
from dpsco.problem.domains import Domain
from dpsco.problem.mapped_ball import MatrixBall
from dpsco.query import Array

__all__ = ["NORMS", "RowMap", "one_by_one", "products"]

_TOGETHER = 64
"""Rows of one product. Pieces of rows begin at multiples of it, so a row's bits do not depend on the threads."""

_LARGEST_SQUARE: dict[np.dtype[Any], float] = {np.dtype(np.float32): 2.0**80, np.dtype(np.float64): 1e250}
"""Squared norms up to which rows are mapped by products in this type; longer rows are mapped one by one."""

NORMS: dict[np.dtype[Any], tuple[float, float]] = {
    np.dtype(np.float32): (2.0**-20, 2.0**20),
    np.dtype(np.float64): (1e-100, 1e100),
}
"""Feature norms whose squares are far from the limits of the type."""


@dataclass(frozen=True, eq=False)
class RowMap:
    """The map from rows to the coordinates of u, and back for models. Public: made from released values.

    This one keeps P as a matrix. ``LowRankMap`` and ``DiagonalMap`` keep less, and give the same answers: ``columns``,
    ``norm``, ``rows`` and ``rows_one_by_one`` for oracles, ``turned`` and ``turned_back`` for sums and points,
    ``start``, ``parameters``, ``ball`` and ``sides`` for methods, ``to_dict`` for files.
    """

    matrix: Array
    """P, of shape (p, p) with the constant's column last; (p, 0) where a subclass keeps factors."""
    feature_norm: float
    constant: float
    """The column that stands for the intercept; 0 without one."""
    made_of: tuple[Array, Array] | None = field(default=None, kw_only=True, repr=False)
    """Gains (p,) and directions (p, p) of which P was made, P = V diag(g) V', where they are known."""

    kind: ClassVar[str] = "full"
    """Kind of survey that such a map can follow, and whose limits it has."""

    @property
    def columns(self) -> int:
        """P: columns of the rows, the constant's included."""
        return len(self.matrix)

    @cached_property
    def norm(self) -> float:
        """Spectral norm of P; infinite if it is not finite."""
        return math.sqrt(float(self._spectrum[0][-1])) if np.all(np.isfinite(self.matrix)) else math.inf

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues, ascending and not negative, and eigenvectors of P'P; P is finite.

        V and g do for P = V diag(g) V', which two products show. With V'V = I + E and P V = V diag(g) + R, the square
        of ||P a|| differs from the sum of (g_j <a, v_j>)^2 by less than (4 ||E|| G^2 + 3 ||R|| G) ||a||^2, G the
        largest gain: half of the last term of ``doubt`` in leading_directions.py.
        """
        if self.made_of is not None:
            gains, vectors = self.made_of
            p, largest = len(gains), float(np.max(gains))
            apart = np.linalg.norm(vectors.T @ vectors - np.eye(p))
            off = np.linalg.norm(self.matrix @ vectors - vectors * gains)
            if apart <= p * 2.0**-49 and off <= p * 2.0**-49 * largest and np.min(gains) >= 0:
                order = np.argsort(gains, kind="stable")
                return gains[order] ** 2, np.ascontiguousarray(vectors[:, order])
        power = 2.0 ** min(math.frexp(float(np.max(np.abs(self.matrix), initial=0.0)))[1], 1000)
        scaled = self.matrix / power  # exact; products of it are finite
        squares, vectors = np.linalg.eigh(scaled.T @ scaled)
        with np.errstate(over="ignore"):
            return np.maximum(squares, 0.0) * power * power, vectors

    @property
    def own_scale(self) -> Array:
        """What the columns of P are multiplied by to give the problem's own parameters."""
        scale = np.full(self.columns, 1.0 / self.feature_norm)
        if self.constant > 0:
            scale[-1] = self.constant
        return scale

    @property
    def sides(self) -> Array:
        """The scales of a diagonal map, in the problem's own parameters."""
        return np.diag(self.matrix) * self.own_scale

    def start(self, x: Array) -> Array:
        """Return the u that stands for x."""
        found = np.linalg.lstsq(self.own.T, x.reshape(-1, self.columns).T, rcond=None)[0]
        return np.ascontiguousarray(found.T).ravel()

    def ball(self, radius: float) -> Domain:
        """Return the set {||M'u|| <= radius}."""
        return MatrixBall(self.own.T, radius)

    def to_dict(self) -> dict[str, Any]:
        """Return the map as JSON holds it."""
        return {"matrix": encode_array(self.matrix), "feature_norm": self.feature_norm, "constant": self.constant}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RowMap:
        """Return the map that ``to_dict`` wrote; raise ``InvalidArgument`` for anything else."""
        if not isinstance(data, Mapping) or set(data) != {"matrix", "feature_norm", "constant"}:
            raise InvalidArgument("Not a map of rows: fields are missing, extra or of another version.")
        matrix = decode_array(data["matrix"])
        if matrix.ndim != 2 or len(set(matrix.shape)) != 1:
            raise InvalidArgument("Not a map of rows: its matrix is not square.")
        norm = positive("feature_norm", data["feature_norm"], "Rows are divided by it.")
        return cls(matrix, norm, 0.0 if data["constant"] == 0 else positive("constant", data["constant"], "A column."))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowMap) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(canonical(self.to_dict()))

    def rows(self, features: Any) -> NDArray[Any]:
        """B of each row, in the type of ``features``; a row that is not finite as NaN: SENSITIVE."""
        features = dense(features)
        dtype = self.dtype(features.dtype)
        features = np.ascontiguousarray(features, dtype)
        matrix, width, norm = self._turned[dtype], features.shape[1], dtype.type(self.feature_norm)
        low, high = NORMS[dtype]
        largest = _LARGEST_SQUARE[dtype] if low <= self.feature_norm <= high else -1.0
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            squares = np.einsum("ij,ij->i", features, features)
            b = products(features, matrix[:width])
            b /= np.maximum(np.sqrt(squares), norm)[:, None]
            if self.constant > 0:
                b += dtype.type(self.constant) * matrix[width]
            for place in np.flatnonzero(~(squares <= largest)):  # one by one: no row changes another
                b[place] = self._careful(features[place : place + 1])
        return b

    def dtype(self, given: np.dtype[Any]) -> np.dtype[Any]:
        """Return the type of the mapped rows: float32 for float32 rows, else float64."""
        low, high = NORMS[np.dtype(np.float32)]
        single = given == np.float32 and low <= self.feature_norm <= high
        return np.dtype(np.float32 if single else np.float64)

    @cached_property
    def _turned(self) -> dict[np.dtype[Any], NDArray[Any]]:
        return {dtype: np.ascontiguousarray(self.matrix.T, dtype) for dtype in NORMS}

    def _careful(self, row: NDArray[Any]) -> Array:
        """Map one row of any length."""
        a, _, unusable = unit_rows(row, self.feature_norm, self.constant)
        return np.asarray(np.full(self.columns, np.nan) if unusable[0] else self.matrix @ a[0])

    def rows_one_by_one(self, features: Any) -> Array:
        """B of each row by operations on single numbers, in one order: no row's place changes its bits. SENSITIVE."""
        features = dense(features)
        a, _, unusable = unit_rows(padded(features, _TOGETHER), self.feature_norm, self.constant)
        with np.errstate(all="ignore"):
            b = one_by_one(a, self.matrix.T)
        b[unusable] = np.nan
        return b[: len(features)]

    @property
    def diagonal(self) -> bool:
        """Whether each column is scaled by itself, by a positive number."""
        sides = np.diag(self.matrix)
        return bool(np.all(sides > 0)) and np.array_equal(self.matrix, np.diag(sides))

    @property
    def own(self) -> Array:
        """M: u stands for the problem's own parameters M'u; a gradient g in these is M g in coordinates of u."""
        return self.matrix * self.own_scale

    @cached_property
    def leading(self) -> Leading | None:
        """Return directions that bound the norm of a mapped row; None if P is not finite."""
        return leading_directions(*self._spectrum) if np.all(np.isfinite(self.matrix)) else None

    def turned(self, a: Array) -> Array:
        """P a, of one vector."""
        return np.asarray(self.matrix @ a)

    def turned_back(self, u: Array) -> Array:
        """P'u, of one vector."""
        return np.asarray(self.matrix.T @ u)

    def parameters(self, u: Array) -> Array:
        """Return the problem's own parameters that ``u`` stands for, class after class."""
        return np.asarray((u.reshape(-1, self.columns) @ self.own).ravel())


def products(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """Return rows @ matrix by products of ``_TOGETHER`` rows, so that bits do not depend on where pieces begin."""
    out = np.empty((len(rows), matrix.shape[1]), rows.dtype)
    whole = len(rows) // _TOGETHER * _TOGETHER
    shape = whole // _TOGETHER, _TOGETHER
    np.matmul(rows[:whole].reshape(*shape, len(matrix)), matrix, out=out[:whole].reshape(*shape, out.shape[1]))
    np.matmul(rows[whole:], matrix, out=out[whole:])
    return out


def one_by_one(rows: Array, matrix: Array) -> Array:
    """Return rows @ matrix by operations on single numbers, in one order for every row."""
    out = np.zeros((len(rows), matrix.shape[1]))
    for column, weights in zip(rows.T, matrix, strict=True):
        out += column[:, None] * weights
    return out
