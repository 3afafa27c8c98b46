"""Square-root Toeplitz (Fichtenberger, Henzinger, Upadhyay 2023; Henzinger et al. 2023, 2024).

Statement
    B = C = A^(1/2), lower-triangular Toeplitz with the coefficients of (1 - q)^(-1/2):
    c_0 = 1, c_k = c_{k-1} (2k - 1)/(2k).
Sensitivity
    Column 0 is the longest: sqrt(sum_{k<T} c_k^2).
Error
    sensitivity * sqrt(sum_{k<=t} c_k^2); at T = 64 the largest is 2.389, against 6.481 for the tree.
Pseudo-code
    w_t = sum_{s<=t} (c_{t-s} - c_{t-s-1}) z_s
Normalised (Kalinin, McKenna, Upadhyay, Lampert 2025)
    Column t of C divided by its norm d_t = sqrt(sum_{k<T-t} c_k^2): all rounds are protected alike, with sensitivity 1.
    B = A D A^(-1/2), so w_t = d_t sum_{s<=t} r_{t-s} z_s with the coefficients of (1 - q)^(1/2): r_0 = 1,
    r_k = r_{k-1} (2k - 3)/(2k). The largest error is at most 0.846 + (ln T)/pi + o(1), 2.212 at T = 64.
Cost
    t p multiply-adds in round t and T p-vectors of memory (every draw is used again).
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.protocol import ROUNDINGS, Increments, Mechanism

__all__ = ["NormalisedSquareRoot", "SquareRoot", "lower_toeplitz"]


def lower_toeplitz(coefficients: Array) -> Array:
    """Return the lower-triangular Toeplitz matrix whose first column is ``coefficients``."""
    size = len(coefficients)
    lag = np.subtract.outer(np.arange(size), np.arange(size))
    return np.asarray(np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0))


class SquareRoot(Mechanism):
    """``B = C = A^(1/2)``: a closed form within a small constant of the optimum for prefix sums."""

    name = "sqrt"

    @cached_property
    def coefficients(self) -> Array:
        """c_0 .. c_{T-1}."""
        k = np.arange(1.0, self.horizon)
        return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])

    def strategy(self) -> Array:
        """C = A^(1/2)."""
        return lower_toeplitz(self.coefficients)

    def decoder(self) -> Array:
        """B = A^(1/2)."""
        return lower_toeplitz(self.coefficients)

    @cached_property
    def sensitivity(self) -> float:
        """Norm of column 0."""
        return float(np.sqrt(np.sum(self.coefficients**2)))

    @cached_property
    def errors(self) -> Array:
        """Sensitivity times the row norms of B."""
        return np.asarray(self.sensitivity * np.sqrt(np.cumsum(self.coefficients**2)))

    @property
    def increments(self) -> Increments:
        """Norms of the differences c_k - c_{k-1}."""
        deviation = math.sqrt(float(np.sum(self._changes**2)))
        return Increments(float(np.sum(np.abs(self._changes))), (self.horizon + ROUNDINGS) * deviation)

    def _increment_weights(self, step: int) -> Array:
        return self._changes[step::-1]

    @cached_property
    def _changes(self) -> Array:
        """c_k - c_{k-1}."""
        return np.diff(self.coefficients, prepend=0.0)


class NormalisedSquareRoot(SquareRoot):
    """``C = A^(1/2)`` with columns of norm 1: a closed form that is nearer to the optimum for prefix sums."""

    name = "normalised-sqrt"
    most_rounds = 1 << 14  # errors in O(T^2) time

    def strategy(self) -> Array:
        """C, its columns divided by their norms."""
        return lower_toeplitz(self.coefficients) / self._norms

    def decoder(self) -> Array:
        """B = A D A^(-1/2)."""
        return np.cumsum(self._norms[:, None] * lower_toeplitz(self._inverse), axis=0)

    @cached_property
    def sensitivity(self) -> float:
        """1: every column has this norm."""
        return 1.0

    @cached_property
    def errors(self) -> Array:
        """Row norms of B."""
        row, squares = np.zeros(self.horizon), np.empty(self.horizon)
        for step in range(self.horizon):
            row[: step + 1] += self._increment_weights(step)
            squares[step] = row @ row
        return np.sqrt(squares)

    @property
    def increments(self) -> Increments:
        """Norms of the largest increment, that of round 0 and of the longest column."""
        inverse, norm = self._inverse, float(self._norms[0])
        deviation = norm * math.sqrt(float(np.sum(inverse**2)))
        return Increments(norm * float(np.sum(np.abs(inverse))), (self.horizon + ROUNDINGS) * deviation)

    def _increment_weights(self, step: int) -> Array:
        return np.asarray(self._norms[step] * self._inverse[step::-1])

    @cached_property
    def _norms(self) -> Array:
        """d_t."""
        return np.sqrt(np.cumsum(self.coefficients**2))[::-1]

    @cached_property
    def _inverse(self) -> Array:
        """r_0 .. r_{T-1}."""
        k = np.arange(1.0, self.horizon)
        return np.concatenate([[1.0], np.cumprod((2 * k - 3) / (2 * k))])
