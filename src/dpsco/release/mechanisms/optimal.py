"""The optimal strategy for a workload: the convex problem that dense.py and workload.py solve.

Statement
    X = C'C determines both sensitivity (diag X) and error (B B' = A X^{-1} A'). Over X with unit diagonal,

        min_X tr(G X^{-1})  =  max_v (tr (D^.5 G D^.5)^.5)^2,        D = diag(v), v on the simplex,

    for a workload of Gram matrix G (Li et al. 2015; Denisov et al. 2022). For the largest entry of
    diag(A X^{-1} A'), the minimum is the maximum over v of the squared nuclear norm of (J D J)^.5 A D^.5, J the
    reversal. (The second weighting is the first reversed because J A J = A'.) Both maxima are fixed points of

        v <- diag R(v) / tr R(v),      R = (D^.5 G D^.5)^.5,      or  R = |D^.5 J A D^.5|  (J A is symmetric),

    and the optimum is X = D^-.5 R D^-.5.
Guarantee
    X is scaled to unit diagonal at any v, so an iteration that stops too early increases the error, not the privacy
    loss.
Cost
    one T x T eigendecomposition per step, 6 to 25 steps: 0.04 s at T = 128, about 1 s at T = 512.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsco.parallel import one_blas_thread
from dpsco.query import Array

__all__ = ["decoder_of", "optimal_for_gram", "optimal_for_max_error", "triangular_factor"]

STEPS = 60
"""Largest number of fixed-point steps. The tolerance stops the iteration earlier at nearly every horizon."""
_DEPTH = 8
"""Steps that the acceleration looks back at."""


def optimal_for_gram(gram: Array) -> Array:
    """Return the X of unit diagonal that minimises ``tr(gram X^{-1})``."""
    # The trace changes with v to second order: less than 1e-4 of it is lost.
    return _fixed_point(gram, np.sqrt, tolerance=1e-2)


def optimal_for_max_error(horizon: int) -> Array:
    """Return the X of unit diagonal that minimises the largest error of the prefix sums."""
    # The largest of T errors changes with v to first order, a trace only to second, so the tolerance is finer.
    return _fixed_point(np.tri(horizon)[::-1].copy(), np.abs, tolerance=1e-5)


def triangular_factor(x: Array) -> Array:
    """Return the lower-triangular C with C'C = x, its columns scaled to norm 1 exactly."""
    reversed_factor = np.linalg.cholesky(x[::-1, ::-1])
    c = np.ascontiguousarray(reversed_factor.T[::-1, ::-1])
    return np.asarray(c / np.linalg.norm(c, axis=0))


def decoder_of(strategy: Array) -> Array:
    """Solve ``B = A C^{-1}`` for a lower-triangular C (B C = A up to rounding)."""
    # The general solver eliminates nothing in a triangular matrix. scipy's own BLAS would be a second team of threads.
    with one_blas_thread():
        return np.tril(np.linalg.solve(strategy.T, np.tri(len(strategy)).T).T)


def _fixed_point(matrix: Array, root: Callable[[Array], Array], *, tolerance: float) -> Array:
    size = len(matrix)

    def spread(log_v: Array) -> tuple[Array, Array, Array]:
        """Return eigenvalues and eigenvectors of R(v), and the square roots of v."""
        half = np.exp(0.5 * (log_v - log_v.max()))
        values, vectors = np.linalg.eigh(half[:, None] * matrix * half)
        if root is np.sqrt:  # a Gram matrix: negative eigenvalues are rounding, zero ones would make X singular
            values = np.maximum(values, 1e-15 * values[-1])
        return root(values), vectors, half

    def step(log_v: Array) -> Array:
        values, vectors, _ = spread(log_v)
        diagonal = (vectors * vectors) @ values
        return np.asarray(np.log(diagonal / diagonal.sum()))

    # At this size a second BLAS thread gains nothing and costs a factor of 10 on a busy machine, where the threads
    # synchronise thousands of times. One thread also makes the bits reproducible.
    with one_blas_thread():
        values, vectors, half = spread(_accelerated(step, np.full(size, -np.log(size)), tolerance))
        r = (vectors * values) @ vectors.T
    x = r / np.outer(half, half)
    scale = np.sqrt(np.diag(x))
    return np.asarray(x / np.outer(scale, scale))


def _accelerated(step: Callable[[Array], Array], start: Array, tolerance: float) -> Array:
    """Apply Anderson acceleration: go to the fixed point of the affine map that fits the last steps.

    Residuals are doubled, because of a diagonal matrix a step leaves half of the distance in log v.
    """
    point, depth = start, min(_DEPTH, len(start))  # more steps than numbers fit too much
    points: list[Array] = []  # differences of successive points, and of their residuals
    residuals: list[Array] = []
    before: tuple[Array, Array] | None = None
    for _ in range(STEPS):
        residual = step(point) - point
        if np.abs(residual).max() < tolerance:
            break
        move = 2.0 * residual
        if before is not None:
            points = [*points[-depth + 2 :], point - before[0]]
            residuals = [*residuals[-depth + 2 :], residual - before[1]]
            r = np.array(residuals)
            gram = r @ r.T  # normal equations: for so few unknowns the general solver takes twice as long
            gram.flat[:: len(gram) + 1] += 1e-15 * gram.trace()
            move -= np.linalg.solve(gram, r @ residual) @ (np.array(points) + 2.0 * r)
        before = point, residual
        point = point + move
    return point + residual
