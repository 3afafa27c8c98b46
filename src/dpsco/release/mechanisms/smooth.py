"""The smooth binary mechanism (Andersson and Pagh 2023): the same error in every round.

Statement
    Sort all binary words with ``ones`` ones and ``zeros`` zeros, x_0 < x_1 < ... < x_T, and assign round s to leaf
    x_s of the binary tree. Prefix t + 1 is the sum over the leaves below x_{t+1}: one node per one of x_{t+1}, so
    always ``ones`` nodes. B marks them. The paper's C has one row per such node, with entry 1 where it covers a round.
Sensitivity
    The nodes that cover leaf x_s and that some prefix uses are at zeros of x_s, so there are at most ``zeros``
    of them: sqrt(zeros), and leaf x_0 = 0..01..1 has that many. But outputs show B Z, not Z. Up to ``LARGEST_EXACT``
    rounds C is therefore the least solution of B C = A, C = B' (B B')^-1 A, whose columns are shorter: 0.81 to 0.85 of
    sqrt(zeros) at T = 16 to 512.
Proof
    Outputs are A D + N with N = B Z, and N has the law of L W, W white and B B' = L L' with L lower triangular. So the
    run is that of the factorisation A = L (L^-1 A) with a lower-triangular strategy, which covers adaptive queries
    (Denisov et al. 2022). Column s of L^-1 A has the squared norm a_s' (B B')^-1 a_s, which is that of column s of C.
Error
    sensitivity * sqrt(ones) in every round. The pair has the least product with binomial(zeros + ones, ones) > T (the
    paper uses zeros = ones): 2.437 / 3.256 / 4.501 at T = 16 / 64 / 256, against 4.472 / 6.481 / 8.485 for the tree.
Pseudo-code
    x = ..0 1^k 0^j  ->  next(x) = ..1 0^(j+1) 1^(k-1): k new nodes replace the k lowest
    w_t = sum of the new draws - sum of the replaced ones
Cost
    less than two draws per round on average; ``ones`` buffers.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.lazy import cached_property
from dpsco.parallel import one_blas_thread
from dpsco.query import Array
from dpsco.release.mechanisms.protocol import Draw, Mechanism, NoiseBuffers

__all__ = ["Smooth"]

LARGEST_EXACT = 512
"""Most rounds for which the exact sensitivity is worked out; it takes 0.3 s there."""


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
    most_rounds = 1 << 20  # a list of words, one per round

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
        """Return the least solution of B C = A; for many rounds, the rounds that each node covers."""
        if self.horizon <= LARGEST_EXACT:
            b = self.decoder()
            with one_blas_thread():  # the same horizon has the same noise on every machine
                return np.asarray(b.T @ np.linalg.solve(b @ b.T, np.tri(self.horizon)))
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
        """Largest column norm of C: sqrt(zeros) at most."""
        return math.sqrt(self.zeros) if self.horizon > LARGEST_EXACT else float(np.max(self.column_norms))

    @cached_property
    def errors(self) -> Array:
        """Sensitivity times sqrt(ones), in every round."""
        return np.full(self.horizon, self.sensitivity * math.sqrt(self.ones))

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
