"""Fresh noise on every increment: the mechanism correlated noise is measured against.

Statement   C = I, B = A. Sensitivity 1; the noise on prefix sum t has standard deviation sqrt(t + 1).
Pseudo-code w_t = z_t.
Cost        one draw a round, no memory.
"""

from __future__ import annotations

import numpy as np

from dpsco.query import Array
from dpsco.release.mechanisms.base import Draw, Mechanism, NoiseBuffers

__all__ = ["Independent"]


class Independent(Mechanism):
    """``C = I``, ``B = A``: sensitivity 1, error sqrt(t + 1) after t + 1 rounds."""

    name = "independent"

    def strategy(self) -> Array:
        return np.eye(self.horizon)

    def decoder(self) -> Array:
        return np.tri(self.horizon)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def errors(self) -> Array:
        return np.sqrt(np.arange(1.0, self.horizon + 1.0))

    @property
    def memory(self) -> int:
        return 0

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        self._in_horizon(step)
        return draw(step), ()
