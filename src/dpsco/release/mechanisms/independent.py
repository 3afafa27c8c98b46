"""Independent noise on every increment: the baseline for correlated noise.

Statement   C = I, B = A. Sensitivity 1; the noise on prefix sum t has standard deviation sqrt(t + 1).
Pseudo-code w_t = z_t.
Cost        one draw per round, no memory.
"""

from __future__ import annotations

import numpy as np

from dpsco.query import Array
from dpsco.release.mechanisms.protocol import ROUNDINGS, Draw, Increments, Mechanism, NoiseBuffers

__all__ = ["Independent"]


class Independent(Mechanism):
    """``C = I``, ``B = A``: sensitivity 1, error sqrt(t + 1) after t + 1 rounds."""

    name = "independent"

    def strategy(self) -> Array:
        """C = I."""
        return np.eye(self.horizon)

    def decoder(self) -> Array:
        """B = A."""
        return np.tri(self.horizon)

    @property
    def sensitivity(self) -> float:
        """1."""
        return 1.0

    @property
    def errors(self) -> Array:
        """sqrt(t + 1)."""
        return np.sqrt(np.arange(1.0, self.horizon + 1.0))

    @property
    def increments(self) -> Increments:
        """One draw."""
        return Increments(1.0, 1.0 + ROUNDINGS)

    @property
    def memory(self) -> int:
        """No buffers."""
        return 0

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """w_t = z_t."""
        self._in_horizon(step)
        return draw(step), ()
