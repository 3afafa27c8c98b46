"""The stored values of compressed sparse rows, one per place, and the unit rows of clipping/survey.py made of them.

Values stored twice for one column are added first: otherwise a norm would be wrong. A row with an index outside the
matrix does not count. Sums are ``np.bincount``, which adds in the order of storage.

Guarantee: what becomes of a row depends on that row alone. Cost: O(stored values); nothing is made dense.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale
from dpsco.query import Array
from dpsco.rows.csr import CsrRows

__all__ = ["UnitValues", "lengths_of", "merged", "sums", "unit_values"]


_LONGER = (1e-9, 1e-6)
"""Relative length from which a row counts as shortened, of float64 and of float32: rows of norm 1 are rounded."""


class UnitValues(NamedTuple):
    """Unit rows without their constant, value by value: SENSITIVE. A row that is not usable has no values."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: Array
    shortened: NDArray[np.bool_]
    """(rows,): which were longer than the feature norm."""
    unusable: NDArray[np.bool_]
    """(rows,): which are not finite, too long, or no rows of the matrix."""


def unit_values(features: CsrRows, feature_norm: float) -> UnitValues:
    """Rows over ``feature_norm``, shortened to norm 1: ``unit_rows`` of clipping/survey.py for sparse rows.

    Guarantee: the exact norm of a returned row is at most 1. ``lengths_of`` adds at most ``width`` squares one by one,
    so norms have the error that ``clip_scale`` allows for.
    """
    rows, width = features.shape
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        row, column, value, unusable = merged(features, rows)
        value = value / feature_norm
        lengths = lengths_of(row, value, rows)
        unusable |= ~(lengths <= LARGEST_NORM)
        nothing = unusable | (lengths < SMALLEST_NORM)
        lengths[nothing] = 0.0
        scale, _ = clip_scale(lengths, 1.0, width)
        used = ~nothing[row]
        row, column = row[used], column[used]
        return UnitValues(
            row, column, value[used] * scale[row], lengths > 1.0 + _LONGER[features.dtype == np.float32], unusable
        )


def merged(features: CsrRows, rows: int) -> tuple[Any, Any, Array, NDArray[np.bool_]]:
    """Return row, column and value of every stored number, one per place, and which rows have an invalid column."""
    width = features.shape[1]
    own = slice(features.indptr[0], features.indptr[-1])
    row = np.repeat(np.arange(len(features)), np.diff(features.indptr))
    column, value = features.indices[own].astype(np.int64), features.data[own].astype(np.float64)
    outside = (column < 0) | (column >= width)
    bad = np.zeros(rows, dtype=bool)
    bad[row[outside]] = True
    row, column, value = row[~outside], column[~outside], value[~outside]
    place = row * width + column
    if np.all(place[1:] > place[:-1]):
        return row, column, value, bad
    place, where = np.unique(place, return_inverse=True)
    return place // width, place % width, sums(where, value, len(place)), bad


def sums(where: Any, values: Array, size: int) -> Array:
    """Sum the values of each place, in the order of storage."""
    return np.bincount(where, values, size).astype(np.float64, copy=False)


def lengths_of(row: Any, value: Array, rows: int) -> Array:
    """Compute the l2 norm of each row, scaled by a power of two if its squares would leave the normal range."""
    largest = np.zeros(rows)
    np.maximum.at(largest, row, np.abs(value))
    _, exponent = np.frexp(np.where((largest > 1e-140) & (largest < 1e140), 1.0, largest))
    scaled = np.ldexp(value, -exponent[row])
    return np.asarray(np.ldexp(np.sqrt(sums(row, scaled * scaled, rows)), exponent))
