"""Inputs of the compiled kernels: the query as numbers, the type of the rows, and flat arrays."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array, Query

__all__ = ["aligned_zeros", "ask_of", "flat", "row_type"]

_FLOAT32_RANGE = 2.0**60
_WEIGHTS = slice(3, 5)
"""Places of the weights in ``Ask``."""
_LINE = 64
"""Bytes of a cache line."""
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def ask_of(
    query: Query,
    width: int,
    single: bool,
    *,
    kind: int,
    parameter: float,
    intercept: bool,
    shares: tuple[float, ...] = (),
) -> Array:
    """Encode the query for kernels (``Ask`` in kernels/slopes.py), with margins for float32 (``single``) or float64."""
    facts = kind, float(parameter), intercept, *(shares or (1.0, 1.0))
    ask = _without_weights(facts, float(query.clip), query.grid, width, single).copy()
    ask[_WEIGHTS] = (*query.weights, 0.0)[:2]
    return ask


@lru_cache(maxsize=64)
def _without_weights(facts: tuple[Any, ...], clip: float, grid: float, width: int, single: bool) -> Array:
    """Return what the rounds of a run have in common."""
    from dpsco.clipping.kernels.slopes import LEAST_FACTOR, Ask

    kind, parameter, intercept, *shares = facts
    margin = 2.0**-19 if single else (width + 32) * 2.0**-53
    low, high = (2.0**-70, 2.0**100) if single else (1e-250, 1e250)
    limits = clip, clip * (1.0 - margin), grid, low, high, 2.0**-100 if single else LEAST_FACTOR
    return np.array(Ask(kind, parameter, intercept, 0.0, 0.0, *limits, single, *shares), _FLOAT64)


def aligned_zeros(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros from the start of a cache line: else every vector that a kernel loads lies on two lines."""
    room = np.zeros(size * dtype.itemsize + _LINE, np.uint8)
    start = -room.__array_interface__["data"][0] % _LINE
    return room[start : start + size * dtype.itemsize].view(dtype)


def row_type(given: np.dtype[Any], query: Query) -> np.dtype[Any]:
    """Return float32 for float32 rows if the clip and the lengths of the points are far from its limits, else float64.

    All other types give float64: a missing cell turns integers into float64, and must not change the path.
    """
    if given != _FLOAT32:
        return _FLOAT64
    fits = 1 / _FLOAT32_RANGE <= query.clip <= _FLOAT32_RANGE or math.isinf(query.clip)
    for point in query.points:
        fits &= bool(point.dot(point) < _FLOAT32_RANGE**2)
    return _FLOAT32 if fits else _FLOAT64


def flat(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Flatten to one dimension, in C order and native byte order, without a copy if possible.

    Kernels only read. For memory-mapped files, an alias without the read-only flag avoids a second compilation.
    """
    flat = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    return flat if flat.flags.writeable or not flat.size else np.asarray(_Alias(flat))


class _Alias:
    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # a reference, so that the memory is not freed
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
