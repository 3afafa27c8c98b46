"""The map of a query: M, as a matrix or in factors. NumPy and nothing else, like the client.

A point u stands for the model M'u, and a gradient g in the problem's own parameters is M g in coordinates of u.

Guarantee: the bits of a row do not depend on the other rows of its client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .wire import Asked

__all__ = ["own_points", "turned"]


def own_points(asked: Asked, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return M'u of each point, block by block."""
    if asked.factors is not None:
        rest, scale, gains, v = asked.factors
        u = points.reshape(-1, len(scale))
        return np.asarray(((rest * u + ((u @ v.T) * gains) @ v) * scale).reshape(len(points), -1))
    m: Any = asked.matrix
    return np.asarray((points.reshape(-1, len(m)) @ m).reshape(len(points), -1))


def turned(asked: Asked, gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return M g of each gradient, block by block."""
    if asked.factors is not None:
        rest, scale, gains, v = asked.factors
        g = gradients.reshape(-1, len(scale)) * scale
        found = rest * g
        for along, line in zip(_along(g, v).T * gains[:, None], v, strict=True):
            found += along[:, None] * line
        return np.asarray(found)
    m: Any = asked.matrix
    return _along(gradients.reshape(-1, len(m)), m)


def _along(rows: NDArray[np.float64], lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return <row, line> of each row and line. A matrix product has bits that depend on the number of rows."""
    out = np.empty((len(rows), len(lines)))
    for place, line in enumerate(lines):
        out[:, place] = np.sum(rows * line, axis=1)
    return out
