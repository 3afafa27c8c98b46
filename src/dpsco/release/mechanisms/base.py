"""The protocol of a continual-counting mechanism: two matrices, a memory cost, no randomness.

A run of T rounds releases the prefix sums of increments ``D_0 .. D_{T-1}``. With ``A`` the lower
triangular matrix of ones, a mechanism is a factorisation ``A = B C``: it releases

    A D + B Z  =  B (C D + Z),        Z of m rows, i.i.d. N(0, sigma^2) entries.

Guarantee
    If one increment changes by at most c in l2 norm, ``C D`` changes by at most ``c * sensitivity``,
    so the release is mu-GDP with ``mu = c * sensitivity / sigma``. This also holds when ``D_t`` is
    chosen after seeing the releases before t (adaptively): the law of B Z depends on B B' alone, and
    chol(BB'), chol(BB')^{-1} A is a lower-triangular pair with column norms no larger (Denisov et al. 2022).

The library adds the noise to the increments, ``w = differences of B Z``, and accumulates afterwards:
the same law, and no un-noised prefix sum ever exists.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import cached_property

import numpy as np

from dpsco.errors import HorizonError, positive_integer
from dpsco.query import Array
from dpsco.release.long_vectors import combined

__all__ = ["Draw", "Mechanism", "NoiseBuffers"]

Draw = Callable[[int], Array]
"""``draw(i)``: row i of Z, a fresh p-vector of N(0, sigma^2), always the same for the same i."""

NoiseBuffers = tuple[Array, ...]
"""What streaming keeps between rounds. SECRET: with it, released values turn back into raw sums."""


class Mechanism(abc.ABC):
    """One factorisation ``A = B C`` of the prefix sums over ``horizon`` rounds."""

    name: str

    def __init__(self, horizon: int) -> None:
        self.horizon = positive_integer("horizon", horizon, "It is the number of rounds T.")

    # --- the matrices -------------------------------------------------------------------------

    @abc.abstractmethod
    def strategy(self) -> Array:
        """``C``, of shape (m, T): what each increment is spread over."""

    @abc.abstractmethod
    def decoder(self) -> Array:
        """``B``, of shape (T, m): how prefix sums are read off ``C D + Z``; ``B C = A``."""

    @property
    def rows(self) -> int:
        """``m``: noise vectors drawn over the whole run."""
        return self.horizon

    # --- what they cost -----------------------------------------------------------------------

    @cached_property
    def sensitivity(self) -> float:
        """Largest column norm of C: how far one increment of norm 1 moves ``C D``."""
        return float(np.sqrt(np.max(np.sum(self.strategy() ** 2, axis=0))))

    @cached_property
    def column_norms(self) -> Array:
        """Norm of each column of C: how far an increment of norm 1 in that round moves ``C D``."""
        return np.asarray(np.sqrt(np.sum(self.strategy() ** 2, axis=0)))

    @cached_property
    def errors(self) -> Array:
        """Standard deviation of the noise on each prefix sum, at unit clip and mu = 1."""
        return np.asarray(self.sensitivity * np.sqrt(np.sum(self.decoder() ** 2, axis=1)))

    @property
    def max_error(self) -> float:
        """Worst standard deviation over the rounds (unit clip, mu = 1)."""
        return float(np.max(self.errors))

    @property
    def mean_error(self) -> float:
        """Root mean square of the standard deviations over the rounds (unit clip, mu = 1)."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def memory(self) -> int:
        """p-vectors that streaming keeps between rounds (and the default streaming keeps every draw)."""
        return self.rows

    # --- streaming ----------------------------------------------------------------------------

    def start(self) -> NoiseBuffers:
        """Buffers before round 0."""
        return ()

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Noise ``w_t`` for the increment of round ``step``, and the buffers for the next round.

        The buffers are donated: their arrays may be worked in, so the caller keeps no other use for them.
        The default reads row t of the (lower-triangular, m = T) decoder and keeps every draw.
        """
        self._in_horizon(step)
        drawn = (*buffers, draw(step))
        weights = self._increment_weights(step)
        return combined(weights[: step + 1], drawn), drawn

    def _increment_weights(self, step: int) -> Array:
        """Row t of the differences of B."""
        decoder = self._decoder
        return decoder[step] - decoder[step - 1] if step else decoder[0]

    @cached_property
    def _decoder(self) -> Array:
        return self.decoder()

    def streamed(self) -> Array:
        """The decoder as the streaming code really applies it, found by streaming unit vectors."""
        unit = np.eye(self.rows)
        buffers, rows = self.start(), []
        for step in range(self.horizon):
            noise, buffers = self.increment(buffers, step, lambda i: unit[i].copy())
            rows.append(noise)
        return np.cumsum(rows, axis=0)

    def _in_horizon(self, step: int) -> None:
        if not 0 <= step < self.horizon:
            raise HorizonError(
                f"Noise asked for round {step}, but the mechanism {self.name!r} covers rounds 0 to {self.horizon - 1}. "
                "Noise past the horizon would not be paid for: make a plan with more rounds."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(horizon={self.horizon})"
