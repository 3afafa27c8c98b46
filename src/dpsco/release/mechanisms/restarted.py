"""A mechanism that restarts a few times: shorter segments need less noise each, but the last noise of each remains.

Statement   C = diag(C_1 .. C_k), one block per segment. B has B_s in its blocks, and below each block copies of its
            last row: the noise of a finished segment stays in the sum.
Sensitivity the largest sensitivity of a segment.
Pseudo-code w_t = the segment's own increment, with its own draws.
Cost        the memory of one segment.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsco.errors import InvalidArgument
from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.protocol import Draw, Mechanism, NoiseBuffers

__all__ = ["Restarted"]


class Restarted(Mechanism):
    """``restarts`` + 1 segments of nearly equal length, each with the mechanism ``make(length)``.

    Raises InvalidArgument unless restarts < horizon.
    """

    name = "restarted"

    def __init__(self, horizon: int, restarts: int, make: Callable[[int], Mechanism]) -> None:
        super().__init__(horizon)
        if restarts >= self.horizon:
            raise InvalidArgument(f"Expected restarts={restarts} < rounds={self.horizon}: each segment needs a round.")
        self._edges = [s * self.horizon // (restarts + 1) for s in range(restarts + 2)]
        lengths = [last - first for first, last in zip(self._edges, self._edges[1:], strict=False)]
        kinds = {length: make(length) for length in set(lengths)}
        self._segments = [kinds[length] for length in lengths]
        self._rows = np.concatenate([[0], np.cumsum([segment.rows for segment in self._segments])]).tolist()
        self.name = f"{self._segments[0].name}, {restarts} restarts"

    @property
    def rows(self) -> int:
        """Rows of all segments together."""
        return int(self._rows[-1])

    def strategy(self) -> Array:
        """C = diag(C_1 .. C_k)."""
        c = np.zeros((self.rows, self.horizon))
        for s, segment in enumerate(self._segments):
            c[self._rows[s] : self._rows[s + 1], self._edges[s] : self._edges[s + 1]] = segment.strategy()
        return c

    def decoder(self) -> Array:
        """B_s in the blocks, and copies of the last row of each block below it."""
        b = np.zeros((self.horizon, self.rows))
        for s, segment in enumerate(self._segments):
            columns, own = slice(self._rows[s], self._rows[s + 1]), segment.decoder()
            b[self._edges[s] : self._edges[s + 1], columns] = own
            b[self._edges[s + 1] :, columns] = own[-1]
        return b

    @cached_property
    def sensitivity(self) -> float:
        """Largest sensitivity of a segment."""
        return max(segment.sensitivity for segment in self._segments)

    @property
    def memory(self) -> int:
        """Largest memory of a segment."""
        return max(segment.memory for segment in self._segments)

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Increment of the segment that contains the round."""
        self._in_horizon(step)
        s = int(np.searchsorted(self._edges, step, side="right")) - 1
        segment, first = self._segments[s], self._rows[s]
        if step == self._edges[s]:
            buffers = segment.start()
        return segment.increment(buffers, step - self._edges[s], lambda row: draw(first + row))
