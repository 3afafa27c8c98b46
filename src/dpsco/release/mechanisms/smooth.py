"""The smooth binary mechanism (Andersson and Pagh 2023): the same error in every round.

Statement
    Sort all binary words with ``ones`` ones and ``zeros`` zeros, x_0 < x_1 < ... < x_T, and assign round s to leaf
    x_s of the binary tree. Prefix t + 1 is the sum over the leaves below x_{t+1}: one node per one of x_{t+1}, so
    always ``ones`` nodes. C has one row per such node, with entry 1 where it covers a round.
Sensitivity
    The nodes that cover leaf x_s and that some prefix uses are at zeros of x_s, so there are at most ``zeros``
    of them. Leaf x_0 = 0..01..1 has that many. sqrt(zeros).
Error
    sqrt(zeros * ones) in every round. The pair has the least product with binomial(zeros + ones, ones) > T
    (the paper uses zeros = ones): 3 / 4 / 5.292 at T = 16 / 64 / 256, against 4.472 / 6.481 / 8.485 for the tree.
Pseudo-code
    x = ..0 1^k 0^j  ->  next(x) = ..1 0^(j+1) 1^(k-1): k new nodes replace the k lowest
    w_t = sum of the new draws - sum of the replaced ones
Cost
    less than two draws per round on average; ``ones`` buffers.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from dpsco.query import Array
from dpsco.release.mechanisms.protocol import Draw, Mechanism, NoiseBuffers

__all__ = ["Smooth"]


def _shape(horizon: int) -> tuple[int, int]:
    """Return (zeros, ones) of least product with at least T + 1 words; of equal products, the one with fewer ones."""
    best = (horizon, 1)  # horizon + 1 words with a single one
    for ones in range(1, horizon + 1):
        zeros = 1
        while math.comb(zeros + ones, ones) <= horizon:
            zeros += 1
        if zeros * ones < best[0] * best[1]:
            best = (zeros, ones)
        if ones > best[0] * best[1]:  # all further products are larger
            break
    return best


def _next_word(word: int) -> int:
    """Return the next larger word with the same number of ones."""
    lowest = word & -word
    carried = word + lowest
    return carried | (((word ^ carried) // lowest) >> 2)


def _lowest_run(word: int) -> int:
    """Return the length of the lowest run of ones."""
    shifted = word // (word & -word)
    return ((shifted + 1) & -(shifted + 1)).bit_length() - 1


class Smooth(Mechanism):
    """Binary tree on balanced leaves: the same error in every round, lower than the tree's largest."""

    name = "smooth"

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon)
        self.zeros, self.ones = _shape(self.horizon)

    @cached_property
    def _words(self) -> list[int]:
        """x_0 .. x_T."""
        words = [(1 << self.ones) - 1]
        for _ in range(self.horizon):
            words.append(_next_word(words[-1]))
        return words

    @cached_property
    def _first_rows(self) -> list[int]:
        """Row of the first new node of each round, and m at the end."""
        fresh = [self.ones, *(_lowest_run(word) for word in self._words[1:-1])]
        return [0, *np.cumsum(fresh).tolist()]

    @property
    def rows(self) -> int:
        """Number of nodes that some prefix uses."""
        return self._first_rows[-1]

    def strategy(self) -> Array:
        """Mark the rounds that each node covers."""
        c = np.zeros((self.rows, self.horizon))
        leaves = np.array(self._words[:-1])
        for step in range(self.horizon):
            word = self._words[step + 1]
            bits = [bit for bit in reversed(range(word.bit_length())) if word >> bit & 1]
            fresh = self._first_rows[step + 1] - self._first_rows[step]
            for row, bit in enumerate(bits[self.ones - fresh :], start=self._first_rows[step]):
                node = (word >> bit) - 1  # leaves that agree with the word above this bit, with this bit cleared
                c[row] = leaves >> bit == node
        return c

    def decoder(self) -> Array:
        """Mark the nodes of each prefix."""
        b = np.zeros((self.horizon, self.rows))
        used: list[int] = []
        for step in range(self.horizon):
            fresh = range(self._first_rows[step], self._first_rows[step + 1])
            used = [*used[: self.ones - len(fresh)], *fresh]
            b[step, used] = 1.0
        return b

    @cached_property
    def sensitivity(self) -> float:
        """sqrt(zeros)."""
        return math.sqrt(self.zeros)

    @cached_property
    def errors(self) -> Array:
        """sqrt(zeros * ones) in every round."""
        return np.full(self.horizon, math.sqrt(self.zeros * self.ones))

    @property
    def memory(self) -> int:
        """One buffer per one."""
        return self.ones

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Follow the pseudo-code above."""
        self._in_horizon(step)
        fresh = tuple(draw(row) for row in range(self._first_rows[step], self._first_rows[step + 1]))
        kept, replaced = buffers[: self.ones - len(fresh)], buffers[self.ones - len(fresh) :]
        noise = fresh[0].copy()
        for node in fresh[1:]:
            noise += node
        for node in replaced:
            noise -= node
        return noise, (*kept, *fresh)
