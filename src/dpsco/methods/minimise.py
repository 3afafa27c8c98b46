"""A minimiser with a certificate, for strongly convex functions with Lipschitz gradients.

F is lam-strongly convex, so |x - argmin F| <= |grad F(x)| / lam. A computed gradient g(x) is within error(x) of the
exact one, so a point with

    |g(x)| + error(x) <= tolerance

is within tolerance / lam of the minimiser for certain, whatever found it. Newton steps find it: a step that goes too
far is halved until the gradient along it has not turned (F has then decreased, by convexity) or has become shorter. A
share of the largest curvature that rows can have is added to the Hessian (``damping``) until full steps succeed.
Where they do not get there, gradient steps with momentum do, and where rounding keeps those from the last digit, plain
gradient steps come close enough without a certificate. So the search ends for every such F, and that it ends says
nothing about the rows. How long it takes does, and is not told.

Statement
    Let every computed gradient on the way be within e <= tolerance / 4 of the exact one, and let S be the Lipschitz
    constant of the gradient. After k plain steps x - g(x) / S from a start at distance D of the minimiser, the distance
    is at most (1 - lam / S)^k D + e / lam, so within tolerance / lam for k >= (S / lam) log(2 lam D / tolerance).
Proof
    An exact step brings x closer by the factor 1 - lam / S, and the error moves it by at most e / S; the sum over all
    steps of what is left of that is e / lam. Rounding x itself, by 2^-53 |x| in each step, adds S / lam times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsco.query import Array

__all__ = ["certified_minimum", "steps_enough"]

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
    farthest: float,
) -> Array:
    """Return a point within tolerance / lam of the minimiser.

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
    farthest : float
        Bound on the distance of the minimiser from ``start``.
    """
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        x = _newton(derivatives, start, tolerance, error)
        root, (g, _) = math.sqrt(smoothness / convexity), derivatives(x, None)
        momentum, before = (root - 1.0) / (root + 1.0), x
        far = max(math.e, _norm(g) / tolerance * root)
        for _ in range(_MOST * math.ceil(root * math.log(far) + root)):
            if _norm(g) + error(x) <= tolerance:
                return x
            after = x - g / smoothness
            x, before = after + momentum * (after - before), after
            g, _ = derivatives(x, None)
        return _plain_steps(derivatives, start, smoothness, steps_enough(tolerance, convexity, smoothness, farthest))


def steps_enough(tolerance: float, convexity: float, smoothness: float, farthest: float) -> int:
    """Return how many plain steps come within tolerance / lam of the minimiser, from at most ``farthest`` away."""
    ratio = max(math.e, 2.0 * convexity * farthest / tolerance)
    return math.ceil(smoothness / convexity * math.log(ratio))


def _plain_steps(derivatives: Derivatives, x: Array, smoothness: float, steps: int) -> Array:
    for _ in range(steps):
        x = x - derivatives(x, None)[0] / smoothness
    return x


def _newton(derivatives: Derivatives, x: Array, tolerance: float, error: Callable[[Array], float]) -> Array:
    """Return the best point that Newton steps reach."""
    damping = _DAMPING
    g, hessian = derivatives(x, damping)
    for _ in range(_NEWTON):
        if hessian is None or _norm(g) + error(x) <= tolerance:
            break
        try:
            direction = np.linalg.solve(hessian, g)
        except np.linalg.LinAlgError:  # singular up to rounding: gradient steps need no Hessian
            return x
        if not np.all(np.isfinite(direction)):
            return x
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
