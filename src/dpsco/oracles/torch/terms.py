"""Per-example vectors of one parameter, in the forms that rules leave them: their norms, and their weighted sum.

    Outer      sum_k u_k v_k'            a matrix for each row, never formed; k runs over points and positions
    Dense      d                         a vector for each row
    Table      sum_k u_k e_(index k)     rows of a table that a row of data looks up

Guarantee: ``measure`` returns, for each row by itself, an upper bound of the squared norm of exactly that vector (the
numbers u, v, d are taken as they are; only the arithmetic on them rounds, in float64) and a majorant: the norm that the
terms would have if none of them cancelled. ``add_sum`` adds with an error of at most gamma_m times the sum of the
majorants, m the number of terms that are added up: no order of addition is worse.
Cost: Outer and Table K^2 (in + out) a row for the norm, K in out for the sum; Dense its own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["Dense", "Outer", "Table", "Term"]

Tensor = Any

UNIT_ROUNDOFF = 2.0**-53
SLICE_ROWS = 64
"""Rows turned to float64 at a time: they stay in the cache."""

SINGLE_ROWS, SEGMENT = 32, 64
"""Rows added up in float32, and numbers of a row squared and added up in float32."""


class Term(Protocol):
    """Per-example vectors of one parameter."""

    @property
    def length(self) -> int:
        """Vectors that are added up for each row."""
        ...

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        """Upper bound of the squared norm, and the majorant, of each row: float64.

        ``single`` allows float32 arithmetic where its error is within the margins: a public choice.
        """
        ...

    def drop(self, bad: Tensor) -> None:
        """Make the rows where ``bad`` zero."""
        ...

    def add_sum(self, scale: Tensor, total: Tensor, single: bool) -> None:
        """Add the sum of scale times each row to ``total``, a float64 view of the parameter; uses up the term."""
        ...


@dataclass
class Outer:
    """u of shape (rows, K, out), v of shape (rows, K, in), float64."""

    u: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        return int(self.u.shape[1])

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        u, v = self.u @ self.u.mT, self.v @ self.v.mT
        majorant = torch.sqrt(_diagonal(u) * _diagonal(v)).sum(1)
        width = self.u.shape[2] + self.v.shape[2] + self.length**2 + 32
        return (u * v).sum((1, 2)) + width * UNIT_ROUNDOFF * majorant**2, majorant

    def drop(self, bad: Tensor) -> None:
        self.u[bad] = 0.0
        self.v[bad] = 0.0

    def add_sum(self, scale: Tensor, total: Tensor, single: bool) -> None:
        u = self.u.mul_(scale[:, None, None]).flatten(0, 1)
        total.addmm_(u.mT, self.v.flatten(0, 1))


@dataclass
class Dense:
    """d of shape (rows, size), of any floating type.

    ``single``: float32 rows are measured in segments of 64 in float32 (the margin is gamma_66 of float32, 4e-6, and
    what underflows there) and added 32 at a time in float32: an error of 32 gamma_34 = 6.5e-5 of the clip in the only
    32 rows where neighbours differ.
    """

    d: Tensor

    length = 1

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        size = self.d.shape[1]
        whole = size // SEGMENT * SEGMENT if single and self.d.dtype == torch.float32 else 0
        squares = torch.cat([_squares(part[:, whole:].double()) for part in self.d.split(SLICE_ROWS)])
        bound = squares * (1.0 + (size + 32) * UNIT_ROUNDOFF)
        if whole:
            segments = torch.linalg.vector_norm(self.d[:, :whole].unflatten(1, (-1, SEGMENT)), dim=2)
            more = _squares(segments.double())
            squares = squares + more
            bound = bound + more * (1.0 + 2 * (SEGMENT + 2) * 2.0**-24) + whole * 2.0**-126
        if single and self.d.dtype == torch.float32:
            bound = bound * (1.0 + 2.0**-20)  # the factor and its products are rounded to float32
        return bound, squares.sqrt()

    def drop(self, bad: Tensor) -> None:
        self.d[bad] = 0.0

    def add_sum(self, scale: Tensor, total: Tensor, single: bool) -> None:
        into = total.view(-1)
        if single and self.d.dtype == torch.float32:
            for part, factors in zip(self.d.split(SINGLE_ROWS), scale.float().split(SINGLE_ROWS), strict=True):
                into += factors @ part
            return
        for part, factors in zip(self.d.split(SLICE_ROWS), scale.split(SLICE_ROWS), strict=True):
            into.addmv_(part.double().mT, factors)


@dataclass
class Table:
    """index of shape (rows, K), u of shape (rows, K, width), float64."""

    index: Tensor
    u: Tensor

    @property
    def length(self) -> int:
        return int(self.u.shape[1])

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        products = self.u @ self.u.mT
        majorant = torch.sqrt(_diagonal(products)).sum(1)
        same = self.index[:, :, None] == self.index[:, None, :]
        width = self.u.shape[2] + self.length**2 + 32
        return (products * same).sum((1, 2)) + width * UNIT_ROUNDOFF * majorant**2, majorant

    def drop(self, bad: Tensor) -> None:
        self.u[bad] = 0.0

    def add_sum(self, scale: Tensor, total: Tensor, single: bool) -> None:
        total.index_add_(0, self.index.flatten(), self.u.mul_(scale[:, None, None]).flatten(0, 1))


def _diagonal(products: Tensor) -> Tensor:
    return products.diagonal(dim1=1, dim2=2)


def _squares(rows: Tensor) -> Tensor:
    return (rows * rows).sum(1)
