"""Per-example vectors of one parameter in the forms that rules return: their norms and their weighted sum.

    Outer      sum_k u_k v_k'            a matrix per row, never formed; k runs over points and positions
    Dense      d                         a vector per row
    Table      d at an index             the rows of a table that a row of data looks up

Guarantee: ``measure`` returns, for each row by itself, an upper bound on the squared norm of exactly that vector (the
numbers u, v, d are taken as given; only the arithmetic on them rounds, in float64), and a majorant: the norm of the
terms if none of them cancelled. The error of ``add_sum`` is at most gamma_m times the sum of the majorants, where m is
the number of added terms, in any order. Float32 sums cover few rows at a time and are accumulated in float64:
neighbours differ in one such group, and its error is counted (clipped_sum.py).
Cost: per row, Outer needs K^2 (in + out) for the norm and K in out for the sum; Dense and Table need their own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

__all__ = ["Dense", "Outer", "Table", "Term"]

Tensor = Any

UNIT_ROUNDOFF = 2.0**-53
SLICE_ROWS = 64
"""Rows converted to float64 at a time, so that they stay in the cache."""

SINGLE_ROWS, SEGMENT = 32, 64
"""Number of vectors added in float32, and of entries of a row whose squares are added in float32."""

SINGLE_GROUP = 2**11
"""r rows of L products each are added in float32 if r (r L) is at most this: gamma_(r L) r <= 1.01 * 2^-13."""

SINGLE_GROUPS = 4
"""Number of such sums added in float32, one after the other, before float64."""


class Term(Protocol):
    """Per-example vectors of one parameter."""

    @property
    def length(self) -> int:
        """Number of vectors added per row."""
        ...

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        """Return an upper bound on the squared norm, and the majorant, per row, in float64.

        ``single`` allows float32 arithmetic where its error is within the margins. It is a public choice.
        """
        ...

    def drop(self, bad: Tensor) -> None:
        """Set the rows where ``bad`` to zero."""
        ...

    def add_sum(self, scale: Tensor, total: Tensor, apart: Tensor | None) -> None:
        """Add the sum of scale times each row to ``total``, a float64 view of the parameter. Consumes the term.

        If ``apart`` is None, add everything in float64; otherwise at least the rows where it is True.
        """
        ...


@dataclass
class Outer:
    """Lists of u of shape (rows, positions, out) and v of shape (rows, positions, in), of any floating type.

    In float32 the factors scale u are rounded, and the sum of r rows of L products has an error of at most gamma_(r L)
    times the sum of their majorants, in any order, with or without fused operations.
    """

    u: list[Tensor]
    v: list[Tensor]
    longest: Tensor = field(default=None, init=False)
    """Norm of the largest v per row, set by ``measure``."""

    @property
    def length(self) -> int:
        """Number of points times positions."""
        return len(self.u) * int(self.u[0].shape[1])

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        """Compute ||sum_k u_k v_k'||^2 = sum_{k,l} <u_k, u_l> <v_k, v_l>, plus its rounding bound."""
        found = []
        for u, v, _ in self._slices(SLICE_ROWS, torch.float64):
            uu, vv = u @ u.mT, v @ v.mT
            majorant = torch.sqrt(_diagonal(uu) * _diagonal(vv)).sum(1)
            found.append(((uu * vv).sum((1, 2)), majorant, _diagonal(vv).amax(1).sqrt()))
        squares, majorants, self.longest = (torch.cat(parts) for parts in zip(*found, strict=True))
        width = self.u[0].shape[2] + self.v[0].shape[2] + self.length**2 + 32
        return squares + width * UNIT_ROUNDOFF * majorants**2, majorants

    def drop(self, bad: Tensor) -> None:
        """Set the rows where ``bad`` to zero, in new tensors."""
        for parts in (self.u, self.v):  # not in place: an activation may share memory with the model
            parts[:] = [torch.where(bad[:, None, None], 0.0, part) for part in parts]

    def add_sum(self, scale: Tensor, total: Tensor, apart: Tensor | None) -> None:
        """Add matrix products: in groups of rows in float32, or all in float64."""
        if apart is None:
            self._add_wide(scale, total)
            return
        factors, rows = torch.where(apart, 0.0, scale).float()[:, None, None], math.isqrt(SINGLE_GROUP // self.length)
        group, product = (torch.empty(total.shape, dtype=torch.float32) for _ in range(2))
        for k, (u, v, part) in enumerate(self._slices(rows, torch.float32)):
            left, right = u.mul_(factors[part]).flatten(0, 1), v.flatten(0, 1)
            if k % SINGLE_GROUPS == 0:
                torch.mm(left.mT, right, out=group)
            else:
                group += torch.mm(left.mT, right, out=product)
            if k % SINGLE_GROUPS == SINGLE_GROUPS - 1 or part.stop >= len(scale):
                total += group
        if apart.any():
            Outer([u[apart] for u in self.u], [v[apart] for v in self.v])._add_wide(scale[apart], total)

    def _add_wide(self, scale: Tensor, total: Tensor) -> None:
        for u, v, part in self._slices(SLICE_ROWS, torch.float64):
            total.addmm_(u.mul_(scale[part, None, None]).flatten(0, 1).mT, v.flatten(0, 1))

    def _slices(self, rows: int, dtype: Any) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Yield slices of rows with all products of a row consecutive, (rows, L, .); every slice reuses the memory."""
        count, positions = self.u[0].shape[:2]
        u, v = (parts[0].new_empty((rows, self.length, parts[0].shape[2]), dtype=dtype) for parts in (self.u, self.v))
        for first in range(0, count, rows):
            part = slice(first, first + rows)
            here = min(rows, count - first)
            for into, parts in ((u, self.u), (v, self.v)):
                for k, each in enumerate(parts):
                    into[:here, k * positions : (k + 1) * positions].copy_(each[part])
            yield u[:here], v[:here], part


@dataclass
class Dense:
    """d of shape (rows, size), of any floating type.

    With ``single``, float32 rows are measured in float32 in segments of 64 (the margin is gamma_66 of float32, 4e-6,
    plus underflow) and added in float32, 32 at a time. The error is 32 gamma_34 = 6.5e-5 of the clip, in the only
    group of 32 rows in which neighbours differ.
    """

    d: Tensor

    length = 1

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        """Compute ||d||^2 plus its rounding bound."""
        size = self.d.shape[1]
        whole = size // SEGMENT * SEGMENT if single and self.d.dtype == torch.float32 else 0
        squares = torch.cat([_squares(part[:, whole:].double()) for part in self.d.split(SLICE_ROWS)])
        bound = squares * (1.0 + (size + 32) * UNIT_ROUNDOFF)
        if whole:
            segments = torch.linalg.vector_norm(self.d[:, :whole].unflatten(1, (-1, SEGMENT)), dim=2)
            more = _squares(segments.double())
            squares = squares + more
            bound = bound + more * (1.0 + 2 * (SEGMENT + 2) * 2.0**-24) + whole * 2.0**-126
        return bound, squares.sqrt()

    def drop(self, bad: Tensor) -> None:
        """Set the rows where ``bad`` to zero, in a new tensor."""
        self.d = torch.where(bad[:, None], 0.0, self.d)

    def add_sum(self, scale: Tensor, total: Tensor, apart: Tensor | None) -> None:
        """Add scale' d, in float32 groups of 32 rows or in float64."""
        into = total.view(-1)
        if apart is not None and self.d.dtype == torch.float32:
            for part, factors in zip(self.d.split(SINGLE_ROWS), scale.float().split(SINGLE_ROWS), strict=True):
                into += factors @ part
            return
        for part, factors in zip(self.d.split(SLICE_ROWS), scale.split(SLICE_ROWS), strict=True):
            into.addmv_(part.double().mT, factors)


@dataclass
class Table:
    """Index of shape (rows, K), d of shape (rows, K, width): d at the places of a table, each place once per row.

    Where a row names a place again, d is 0. A row is measured as the vector of its K times width numbers.
    """

    index: Tensor
    d: Tensor

    length = 1

    @classmethod
    def of(cls, index: Tensor, d: Tensor) -> Table:
        """Add up what a row has at the same place, in ``d`` itself; the rounded sums are the row's vector.

        They are added in the order of the row's positions, whatever other rows there are.
        """
        count, places = index.shape
        here = torch.arange(places, device=index.device)
        keys = _sorted(index.long() * places + here)  # by place, then by position
        place, position = keys // places, keys % places
        again = torch.zeros_like(place, dtype=torch.bool)
        again[:, 1:] = place[:, 1:] == place[:, :-1]
        row, rank = again.nonzero(as_tuple=True)
        if len(row) == 0:
            return cls(index, d)
        start = torch.where(again, 0, here).cummax(1).values[row, rank]  # where the place begins in the order
        own, first = row * places + position[row, rank], row * places + position[row, start]
        flat = d.view(count * places, -1)
        for times in (rank - start).unique():  # the second vector of every place, the third, ...: no place twice
            chosen = rank - start == times
            flat[first[chosen]] += flat[own[chosen]]
        flat[own] = 0.0
        return cls(index, d)

    def measure(self, single: bool) -> tuple[Tensor, Tensor]:
        """Compute ||d||^2 plus its rounding bound."""
        return Dense(self.d.flatten(1)).measure(single)

    def drop(self, bad: Tensor) -> None:
        """Set the rows where ``bad`` to zero in place."""
        self.d[bad] = 0.0

    def add_sum(self, scale: Tensor, total: Tensor, apart: Tensor | None) -> None:
        """Add scale times d to the rows of the table, in float64."""
        wide = self.d.new_empty((SLICE_ROWS, *self.d.shape[1:]), dtype=torch.float64)
        for index, d, factors in zip(*(t.split(SLICE_ROWS) for t in (self.index, self.d, scale)), strict=True):
            scaled = wide[: len(d)].copy_(d).mul_(factors[:, None, None])
            total.index_add_(0, index.flatten(), scaled.flatten(0, 1))


def _sorted(keys: Tensor) -> Tensor:
    """Sort each row. On a CPU NumPy does it, ten times as fast."""
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy(), axis=1))
    return keys.sort(dim=1).values


def _diagonal(products: Tensor) -> Tensor:
    return products.diagonal(dim1=1, dim2=2)


def _squares(rows: Tensor) -> Tensor:
    return (rows * rows).sum(1)
