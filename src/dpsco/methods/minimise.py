"""A minimiser with a certificate, for strongly convex functions with Lipschitz gradients.

F is lam-strongly convex, so |x - argmin F| <= |grad F(x)| / lam. A computed gradient g(x) is within error(x) of the
exact one, so a point with

    |g(x)| + error(x) <= tolerance

is within tolerance / lam of the minimiser for certain, whatever found it. Newton steps find it: a step that goes too
far is halved until the gradient along it has not turned (F has then decreased, by convexity) or has become shorter. A
share of the largest curvature that rows can have is added to the Hessian (``damping``) until full steps succeed.
Where they do not get there, which only corners of the gradient could cause, gradient steps with momentum do: their rate
holds for every such F, so that the search ends says nothing about the rows. How long it takes does, and is not told.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsco.errors import DataError
from dpsco.query import Array

__all__ = ["certified_minimum"]

_NEWTON = 60
_SHORTEST = 2.0**-12
_MOST = 10
"""Times as many gradient steps as their rate needs: room for rounding."""

_DAMPING, _LEAST = 0.2, 1e-4

Derivatives = Callable[[Array, float | None], tuple[Array, Array | None]]
"""``derivatives(x, damping)``: gradient at x, and the damped Hessian unless ``damping`` is None."""


def certified_minimum(
    derivatives: Derivatives,
    start: Array,
    *,
    tolerance: float,
    error: Callable[[Array], float],
    convexity: float,
    smoothness: float,
) -> Array:
    """Return a point with |computed gradient| + error <= tolerance.

    Parameters
    ----------
    derivatives : callable
        Computed gradient and Hessian.
    start : array
        Where to begin.
    tolerance : float
        Public bound on the exact gradient at the result.
    error : callable
        Bound on the distance of a computed gradient from the exact one.
    convexity, smoothness : float
        lam, and the Lipschitz constant of the gradient: the gradient steps' rate depends on them.

    Raises
    ------
    DataError
        If no point is certified, which needs numbers that float64 does not resolve.
    """
    x = _newton(derivatives, start, tolerance, error)
    g, _ = derivatives(x, None)
    root = math.sqrt(smoothness / convexity)
    momentum, before = (root - 1.0) / (root + 1.0), x
    far = max(math.e, _norm(g) / tolerance * root)
    for _ in range(_MOST * math.ceil(root * math.log(far) + root)):
        if _norm(g) + error(x) <= tolerance:
            return x
        after = x - g / smoothness
        x, before = after + momentum * (after - before), after
        g, _ = derivatives(x, None)
    raise DataError(
        "The minimiser could not be certified, so nothing was released. Use a larger ridge, or a smaller radius."
    )


def _newton(derivatives: Derivatives, x: Array, tolerance: float, error: Callable[[Array], float]) -> Array:
    """Return the best point that Newton steps reach."""
    damping = _DAMPING
    g, hessian = derivatives(x, damping)
    for _ in range(_NEWTON):
        if hessian is None or _norm(g) + error(x) <= tolerance:
            break
        direction = np.linalg.solve(hessian, g)
        length = 1.0
        while True:
            trial = x - length * direction
            ahead, hessian = derivatives(trial, damping)
            if ahead @ direction >= 0.0 or _norm(ahead) <= (1.0 - length / 4) * _norm(g):
                x, g = trial, ahead
                damping = damping / 10 if damping > _LEAST else 0.0
                break
            length /= 2
            damping = min(1.0, max(0.1, 3 * damping))
            if length < _SHORTEST:
                return x
    return x


def _norm(vector: Array) -> float:
    return math.sqrt(float(vector @ vector))
