"""The low-rank survey: a row a gives a b', b a short public sketch of a, in place of a a'.

    b = Omega'a, shortened to norm tau rho;     Omega of shape (p, l), entries +1 / sqrt l and -1 / sqrt l

The signs of row i are public: bits of a hash of i. For a row that was chosen without looking at them E ||Omega'a||^2 =
||a||^2, with relative deviation at most sqrt(2 / l), so few rows are shortened. The sum over rows is about S Omega, S
the second moment: l columns instead of p, from which the leading directions of S are read
(planning/low_rank_geometry.py).

Statement
    zero-out, add-remove   ||v(d)||         <= rho^2 sqrt(tau^2 + kappa^2 + 4 theta^2)
    replace-one            ||v(d) - v(d')|| <= twice that
Proof
    ||a b'||_F = ||a|| ||b|| <= tau rho^2, since b is shortened. The energy theta ||a||^2 is at most theta rho^2. The
    gradient and the three health entries are those of clipping/survey.py. The squares add up. Two rows: the triangle
    inequality; the inner product of two such products may be negative, so there is no better bound as for a a'.
    The bound holds for every row, also for one chosen to be long under this Omega: it is shortened.
Cost
    p l + 1 numbers beside gradient and health; 2 p l multiply-adds per row.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np

from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.query import Array

__all__ = ["TAU", "rank_of", "sketch_matrix", "sketched"]

TAU = 1.25
"""Bound on the norm of the sketch over that of the row: an ordinary row's exceeds it with probability about 3 %."""

_RANK = 32


def rank_of(columns: int) -> int:
    """Return l, the columns of the sketch of rows of so many columns."""
    return min(_RANK, columns)


@lru_cache(maxsize=4)
def sketch_matrix(columns: int) -> Array:
    """Return Omega, of shape (p, l): bit j of BLAKE2b(i) is the sign of entry (i, j).

    >>> sketch_matrix(100).shape, round(float(np.linalg.norm(sketch_matrix(100)[7])), 12)
    ((100, 32), 1.0)
    """
    digests = [
        hashlib.blake2b(i.to_bytes(8, "little"), key=b"dpsco sketch", digest_size=_RANK // 8).digest()
        for i in range(columns)
    ]
    bits = np.unpackbits(np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(columns, -1), axis=1)
    rank = rank_of(columns)
    matrix = (1.0 - 2.0 * bits[:, :rank]) / math.sqrt(rank)
    matrix.setflags(write=False)
    return np.asarray(matrix)


def sketched(rows: Array, longest: float, *, rowwise: bool) -> Array:
    """Return b of each row, of norm at most TAU ``longest`` in exact arithmetic: SENSITIVE.

    If rowwise, by operations on single numbers, so that no row's place matters.
    """
    omega = sketch_matrix(rows.shape[1])
    if rowwise:
        b = np.zeros((len(rows), omega.shape[1]))
        for column, weights in zip(rows.T, omega, strict=True):
            b += column[:, None] * weights
    else:
        b = rows @ omega
    lengths = row_norms(b)
    lengths[~(lengths <= LARGEST_NORM)] = 0.0
    scale, _ = clip_scale(lengths, TAU * longest, b.shape[1])
    return np.asarray(b * scale[:, None])
