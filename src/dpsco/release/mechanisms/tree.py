"""The binary tree (Dwork et al. 2010; Chan, Shi, Song 2011), the paper's Lemma btm.

Statement
    Round t (prefix length e = t + 1) closes the dyadic node that ends at e and has length
    2^l, l = trailing zeros of e. C has one row per closed node, one column per round, entry 1 where
    the node covers the round. Prefix e is the sum of the nodes in the binary expansion of e.
Sensitivity
    Round 0 is in one node per level, and no round is in more: sqrt(floor(log2 T) + 1).
    (The paper bounds it by sqrt(1 + ceil(log2 T)). Its Corollary dp-guarantee then states less noise
    than this sensitivity needs: docs/errata.md, 1.)
Error
    sensitivity * sqrt(popcount(t + 1)).
Pseudo-code
    z = draw(t); w_t = z - (sum of the lower nodes that merge into it); push z
Cost
    one draw per round, at most floor(log2 T) + 1 buffers.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.protocol import Draw, Increments, Mechanism, NoiseBuffers

__all__ = ["Tree"]


def _trailing_zeros(e: int) -> int:
    return (e & -e).bit_length() - 1


class Tree(Mechanism):
    """Binary tree over the rounds. Only nodes that some prefix uses get noise."""

    name = "tree"
    most_rounds = 1 << 25  # the theorems ask for so many at 1e8 rows: 16 bytes per round, three seconds

    def strategy(self) -> Array:
        """Mark the rounds that each node covers."""
        c = np.zeros((self.horizon, self.horizon))
        for t in range(self.horizon):
            c[t, t + 1 - (1 << _trailing_zeros(t + 1)) : t + 1] = 1.0
        return c

    def decoder(self) -> Array:
        """Mark the nodes in the binary expansion of each prefix length."""
        b = np.zeros((self.horizon, self.horizon))
        for t in range(self.horizon):
            e = t + 1
            while e:
                b[t, e - 1] = 1.0
                e &= e - 1
        return b

    @cached_property
    def sensitivity(self) -> float:
        """sqrt(floor(log2 T) + 1)."""
        return math.sqrt(self.horizon.bit_length())

    @cached_property
    def column_norms(self) -> Array:
        """Round t is in one node for each bit of t that is 0, if that node ends within the horizon."""
        rounds, nodes = np.arange(self.horizon), np.zeros(self.horizon)
        for level in range(self.horizon.bit_length()):
            before = rounds >> level
            nodes += (before % 2 == 0) & ((before + 1) << level <= self.horizon)
        return np.sqrt(nodes)

    @cached_property
    def errors(self) -> Array:
        """Sensitivity times sqrt(popcount(t + 1))."""
        nodes = np.array([(t + 1).bit_count() for t in range(self.horizon)], dtype=np.float64)
        return np.asarray(self.sensitivity * np.sqrt(nodes))

    @property
    def increments(self) -> Increments:
        """An increment adds 1 + z draws, z = trailing zeros of t + 1; at most T / 2^z rounds have z or more.

        1 + z draws are scaled by sigma and z are added: at most 2 z + 2 roundings.
        """
        parts = [(2.0 ** -(z + 1), z) for z in range(64)]
        return Increments(
            sum(share * (1 + z) for share, z in parts),
            sum(share * (2 * z + 2) * math.sqrt(1 + z) for share, z in parts),
        )

    @property
    def memory(self) -> int:
        """At most one buffer per level."""
        return self.horizon.bit_length()

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Follow the pseudo-code above."""
        self._in_horizon(step)
        merged = _trailing_zeros(step + 1)
        z = draw(step)
        noise = z.copy()
        for node in buffers[len(buffers) - merged :]:
            noise -= node
        return noise, (*buffers[: len(buffers) - merged], z)
