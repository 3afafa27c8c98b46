"""The smooth binary mechanism (Andersson and Pagh 2023): the same error in every round.

Statement
    Take all binary words with ``ones`` ones and ``zeros`` zeros in increasing order, x_0 < x_1 < ... < x_T, and put
    round s at leaf x_s of the binary tree. Prefix t + 1 is the sum over leaves below x_{t+1}: one node for each
    one of x_{t+1}, so always ``ones`` nodes. C has a row for each such node, entry 1 where it covers a round.
Sensitivity
    The nodes that cover leaf x_s and that some prefix uses sit at zeros of x_s: at most ``zeros`` of them, and
    leaf x_0 = 0..01..1 reaches it. sqrt(zeros).
Error
    sqrt(zeros * ones) in every round. The pair is the one of least product with binomial(zeros + ones, ones) > T
    (the paper takes zeros = ones): 3 / 4 / 5.292 at T = 16 / 64 / 256, against 4.472 / 6.481 / 8.485 for the tree.
Pseudo-code
    x = ..0 1^k 0^j  ->  next(x) = ..1 0^(j+1) 1^(k-1): the k lowest nodes are replaced by k new ones
    w_t = sum of the new draws - sum of the replaced ones
Cost
    under two draws a round on average; ``ones`` buffers.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from dpsco.query import Array
from dpsco.release.mechanisms.base import Draw, Mechanism, NoiseBuffers

__all__ = ["Smooth"]


def _shape(horizon: int) -> tuple[int, int]:
    """(zeros, ones) of least product with at least T + 1 words; of equal products, the one with fewer ones."""
    best = (horizon, 1)  # horizon + 1 words with a single one
    for ones in range(1, horizon + 1):
        zeros = 1
        while math.comb(zeros + ones, ones) <= horizon:
            zeros += 1
        if zeros * ones < best[0] * best[1]:
            best = (zeros, ones)
        if ones > best[0] * best[1]:  # every further product is larger
            break
    return best


def _next_word(word: int) -> int:
    """The next larger word with as many ones."""
    lowest = word & -word
    carried = word + lowest
    return carried | (((word ^ carried) // lowest) >> 2)


def _lowest_run(word: int) -> int:
    """Length of the lowest run of ones."""
    shifted = word // (word & -word)
    return ((shifted + 1) & -(shifted + 1)).bit_length() - 1


class Smooth(Mechanism):
    """Binary tree on balanced leaves: uniform error, a lower one than the tree's."""

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
        return self._first_rows[-1]

    def strategy(self) -> Array:
        c = np.zeros((self.rows, self.horizon))
        leaves = np.array(self._words[:-1])
        for step in range(self.horizon):
            word = self._words[step + 1]
            bits = [bit for bit in reversed(range(word.bit_length())) if word >> bit & 1]
            fresh = self._first_rows[step + 1] - self._first_rows[step]
            for row, bit in enumerate(bits[self.ones - fresh :], start=self._first_rows[step]):
                node = (word >> bit) - 1  # the leaves whose high bits are those of the word, this one cleared
                c[row] = leaves >> bit == node
        return c

    def decoder(self) -> Array:
        b = np.zeros((self.horizon, self.rows))
        used: list[int] = []
        for step in range(self.horizon):
            fresh = range(self._first_rows[step], self._first_rows[step + 1])
            used = [*used[: self.ones - len(fresh)], *fresh]
            b[step, used] = 1.0
        return b

    @cached_property
    def sensitivity(self) -> float:
        return math.sqrt(self.zeros)

    @cached_property
    def errors(self) -> Array:
        return np.full(self.horizon, math.sqrt(self.zeros * self.ones))

    @property
    def memory(self) -> int:
        return self.ones

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        self._in_horizon(step)
        fresh = tuple(draw(row) for row in range(self._first_rows[step], self._first_rows[step + 1]))
        kept, replaced = buffers[: self.ones - len(fresh)], buffers[self.ones - len(fresh) :]
        noise = fresh[0].copy()
        for node in fresh[1:]:
            noise += node
        for node in replaced:
            noise -= node
        return noise, (*kept, *fresh)
