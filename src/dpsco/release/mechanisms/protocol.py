"""The protocol of a continual-counting mechanism: two matrices and a memory cost, without randomness.

A run of T rounds releases the prefix sums of increments ``D_0 .. D_{T-1}``. With ``A`` the lower
triangular matrix of ones, a mechanism is a factorisation ``A = B C``: it releases

    A D + B Z  =  B (C D + Z),        Z of m rows, i.i.d. N(0, sigma^2) entries.

Guarantee
    If one increment changes by at most c in l2 norm, ``C D`` changes by at most ``c * sensitivity``,
    so the release is mu-GDP with ``mu = c * sensitivity / sigma``. This also holds if ``D_t`` depends on the
    releases before t (adaptive queries): the distribution of B Z depends only on B B', and
    chol(BB'), chol(BB')^{-1} A is a lower-triangular pair with column norms no larger (Denisov et al. 2022).

The library adds the noise to the increments, ``w = differences of B Z``, and accumulates afterwards.
The distribution is the same, and no prefix sum without noise ever exists.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from dpsco.errors import HorizonError, InvalidArgument, positive_integer
from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.long_vectors import combined

__all__ = ["ROUNDINGS", "Draw", "Increments", "Mechanism", "NoiseBuffers"]

ROUNDINGS = 32
"""Roundings of one increment besides one per draw that it adds: scaling, weights, the grid."""

Draw = Callable[[int], Array]
"""``draw(i)`` returns row i of Z, a p-vector of N(0, sigma^2) entries. The same i always gives the same vector."""

NoiseBuffers = tuple[Array, ...]
"""Noise state between rounds. SECRET: together with released values it reveals the sums without noise."""


class Increments(NamedTuple):
    """Bounds, in the mean over the rounds, on what computes an increment's noise from draws (float_noise.py)."""

    absolute: float
    """l1 norm of the weights."""
    rounded: float
    """Number of roundings times the standard deviation of what is rounded, at sigma = 1."""


class Mechanism(abc.ABC):
    """A factorisation ``A = B C`` of the prefix sums over ``horizon`` rounds.

    Parameters
    ----------
    horizon : int
        Number of rounds T.

    Attributes
    ----------
    name : str
        The argument of ``mechanism``.
    """

    name: str
    most_rounds: ClassVar[int] = 1 << 22
    """Longest horizon: the factorisation takes seconds and less than 1 GB, also for a plan that a file states."""

    def __init__(self, horizon: int) -> None:
        self.horizon = positive_integer("horizon", horizon, "It is the number of rounds T.")
        if self.horizon > self.most_rounds:
            raise InvalidArgument(
                f"Expected horizon={horizon} <= {self.most_rounds:,} for mechanism={self.name!r}: its factorisation "
                "would not fit into memory, or take too long. Use fewer rounds, or another mechanism."
            )

    # --- matrices -----------------------------------------------------------------------------

    @abc.abstractmethod
    def strategy(self) -> Array:
        """Return ``C``, of shape (m, T): the weight of each increment in each row of ``C D``."""

    @abc.abstractmethod
    def decoder(self) -> Array:
        """Return ``B``, of shape (T, m), with ``B C = A``: the weights that turn ``C D + Z`` into prefix sums."""

    @property
    def rows(self) -> int:
        """Number m of noise vectors over the whole run."""
        return self.horizon

    # --- cost ---------------------------------------------------------------------------------

    @cached_property
    def sensitivity(self) -> float:
        """Largest column norm of C: the largest change of ``C D`` if one increment changes by norm 1."""
        return float(np.sqrt(np.max(np.sum(self.strategy() ** 2, axis=0))))

    @cached_property
    def column_norms(self) -> Array:
        """Norm of each column of C: the change of ``C D`` if the increment of that round changes by norm 1."""
        return np.asarray(np.sqrt(np.sum(self.strategy() ** 2, axis=0)))

    @cached_property
    def errors(self) -> Array:
        """Standard deviation of the noise on each prefix sum, at unit clip and mu = 1."""
        return np.asarray(self.sensitivity * np.sqrt(np.sum(self.decoder() ** 2, axis=1)))

    @property
    def max_error(self) -> float:
        """Largest standard deviation over the rounds (unit clip, mu = 1)."""
        return float(np.max(self.errors))

    @property
    def mean_error(self) -> float:
        """Root mean square of the standard deviations over the rounds (unit clip, mu = 1)."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def increments(self) -> Increments:
        """How float64 computes the noise of an increment, the difference of two prefix sums, from at most T draws."""
        deviation = 2.0 * self.max_error / self.sensitivity
        return Increments(math.sqrt(self.rows) * deviation, (self.horizon + ROUNDINGS) * deviation)

    @property
    def memory(self) -> int:
        """Number of p-vectors that streaming keeps between rounds; the default streaming keeps every draw."""
        return self.rows

    # --- streaming ----------------------------------------------------------------------------

    def start(self) -> NoiseBuffers:
        """Return the buffers before round 0."""
        return ()

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Compute the noise ``w_t`` for the increment of round ``step``.

        The default combines all draws so far with row t of the lower-triangular decoder (m = T).

        Parameters
        ----------
        buffers : NoiseBuffers
            The buffers after the previous round. This call may overwrite them, so the caller must not reuse them.
        step : int
            The round t.
        draw : Draw
            Source of the rows of Z.

        Returns
        -------
        noise : array of shape (p,)
        buffers : NoiseBuffers
            The buffers for the next round.

        Raises
        ------
        HorizonError
            If ``step`` is not in 0 .. T - 1.
        """
        self._in_horizon(step)
        drawn = (*buffers, draw(step))
        weights = self._increment_weights(step)
        return combined(weights[: step + 1], drawn), drawn

    def _increment_weights(self, step: int) -> Array:
        """Return row t of the differences of B."""
        decoder = self._decoder
        return decoder[step] - decoder[step - 1] if step else decoder[0]

    @cached_property
    def _decoder(self) -> Array:
        return self.decoder()

    def streamed(self) -> Array:
        """Return the decoder that the streaming code applies, found by streaming unit vectors."""
        unit = np.eye(self.rows)
        buffers, rows = self.start(), []
        for step in range(self.horizon):
            noise, buffers = self.increment(buffers, step, lambda i: unit[i].copy())
            rows.append(noise)
        return np.cumsum(rows, axis=0)

    def _in_horizon(self, step: int) -> None:
        if not 0 <= step < self.horizon:
            raise HorizonError(
                f"Noise requested for round {step}, but the mechanism {self.name!r} covers rounds 0 to "
                f"{self.horizon - 1}. Noise beyond the horizon is not accounted for: make a plan with more rounds."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(horizon={self.horizon})"
