"""Dense optimal factorisation of the prefix sums (Denisov, McMahan, Rush, Smith, Thakurta 2022).

Statement
    Over all pairs B C = A, C'C = X attains the least max error (or root mean square error), where X
    solves a convex problem over matrices of unit diagonal (optimal.py). C is its lower-triangular factor.
Sensitivity
    Every column of C has norm 1: sensitivity 1.
Error
    The row norms of B = A C^{-1}; all equal for the max objective, up to 1e-4. At T = 16, 64 and 512 the max
    error is 1.704, 2.111 and 2.747, against 1.944, 2.389 and 3.052 for square-root Toeplitz. The dual of
    optimal.py certifies that no factorisation is better by more than 1e-4 relative.
Pseudo-code
    X = optimum;  C = lower-triangular factor of X;  w_t = row t of C^{-1} Z
Cost
    a fit of less than 1 s at T <= 512; t p multiply-adds in round t and T p-vectors of memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpsco.errors import one_of
from dpsco.query import Array
from dpsco.release.mechanisms.optimal import decoder_of, optimal_for_gram, optimal_for_max_error, triangular_factor
from dpsco.release.mechanisms.protocol import Mechanism

__all__ = ["Dense"]

OBJECTIVES = ("max", "mean")


class Dense(Mechanism):
    """The factorisation of least max error, or of least mean square error (``objective="mean"``).

    Parameters
    ----------
    horizon : int
        Number of rounds T.
    objective : {"max", "mean"}

    Examples
    --------
    >>> round(Dense(16).max_error, 3)
    1.704
    """

    name = "dense"
    most_rounds = 1 << 10  # a fit in O(T^3) time

    def __init__(self, horizon: int, objective: str = "max") -> None:
        super().__init__(horizon)
        self.objective = one_of("objective", objective, OBJECTIVES)

    def strategy(self) -> Array:
        """Lower-triangular factor of X."""
        return _fitted(self.horizon, self.objective).copy()

    def decoder(self) -> Array:
        """B = A C^{-1}."""
        return decoder_of(_fitted(self.horizon, self.objective))


@lru_cache(maxsize=16)
def _fitted(horizon: int, objective: str) -> Array:
    if objective == "max":
        return triangular_factor(optimal_for_max_error(horizon))
    prefix = np.tri(horizon)
    return triangular_factor(optimal_for_gram(prefix.T @ prefix))
