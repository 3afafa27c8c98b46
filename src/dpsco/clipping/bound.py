"""Clipping that is a bound in exact arithmetic, not only up to rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array

__all__ = ["LARGEST_NORM", "SMALLEST_NORM", "clip_scale", "row_norms"]

LARGEST_NORM = 1e150
"""Longer vectors count as zero: the factor that clips them would underflow and lose digits."""

SMALLEST_NORM = 1e-280
"""Shorter rows count as zero: a subnormal norm has too few digits to be multiplied by a large slope."""

_UNIT_ROUNDOFF = 2.0**-53


def row_norms(rows: Array) -> Array:
    """Compute the l2 norm of each row, safe against overflow and underflow of the squares.

    Guarantee: relative error below (width/2 + 4) 2^-53 for any finite row of norm at least ``SMALLEST_NORM``; inf if
    the norm itself overflows; not finite if the row is not.
    """
    if rows.shape[1] == 1:  # the root of a square, to the bit
        return np.asarray(np.abs(rows[:, 0]))
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        # A norm between these has its largest entry within 1e-140 and 1e140 (at any width below 1e10), so that its
        # square is far from the ends of the normal range. Few rows are looked at again.
        doubted = np.flatnonzero(~((norms >= 1e-135) & (norms <= 1e135)))
        if not doubted.size:
            return np.asarray(norms)
        largest = np.max(np.abs(rows[doubted]), axis=1, initial=0.0)
        # Rows whose squares leave the normal range are scaled by a power of two, which is exact. They are processed
        # one at a time, so the norm of a row never depends on another row.
        extreme = ((largest < 1e-140) & (largest > 0.0)) | ((largest > 1e140) & (largest < np.inf))
        for i, most in zip(doubted[extreme], largest[extreme], strict=True):
            exponent = np.frexp(most)[1]
            scaled = np.ldexp(rows[i], -exponent)
            norms[i] = np.ldexp(np.sqrt(np.sum(scaled * scaled)), exponent)
    return norms


def clip_scale(norms: Array, clip: float, width: int) -> tuple[Array, NDArray[np.bool_]]:
    """Compute a factor in [0, 1] per vector, from the computed norms, and which vectors it shortens.

    Guarantee: factor times exact norm is at most ``clip`` if ``norms`` comes from ``row_norms`` (times a scalar) on
    vectors of ``width`` entries. The target is lowered by a margin that covers every rounding.
    """
    if np.isinf(clip):
        return np.ones_like(norms), np.zeros(norms.shape, dtype=bool)
    target = clip * (1.0 - (width + 32) * _UNIT_ROUNDOFF)
    over = norms > target
    scale = np.divide(target, norms, out=np.ones_like(norms), where=over)
    scale[~(norms <= LARGEST_NORM)] = 0.0
    return scale, over
