"""Rows that are made where they are taken, so that the threads of an oracle make them in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowsOnDemand", "Source"]


class Source(NamedTuple):
    """Where rows on demand come from: row i is ``array[places[i]] / max(feature_norm, its norm)``.

    ``array`` is an array or another typed sequence behind the gate (rows/gate.py). Whoever divides the rows does so for
    either kind: one odd cell decides which it is, and must not decide on the arithmetic of other rows.
    """

    array: Any
    places: NDArray[np.int64]
    feature_norm: float


class RowsOnDemand:
    """Dense rows of a chunk; ``rows[first:last]`` makes some of them, as a new array.

    Parameters
    ----------
    make : callable
        ``make(first, last)`` returns rows. Several threads call it at the same time.
    shape : tuple of int
        Rows and columns.
    dtype : numpy.dtype
        Type of the rows.
    source : Source, optional
        The same rows for whoever can read them in place.

    Cost: nothing is kept; rows that are taken twice are made twice.
    """

    def __init__(
        self,
        make: Callable[[int, int], NDArray[Any]],
        shape: tuple[int, int],
        dtype: Any,
        source: Source | None = None,
    ) -> None:
        self._make, self.shape, self.dtype, self.source = make, shape, np.dtype(dtype), source

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last, _ = rows.indices(len(self))
        return self._make(first, max(first, last))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)
