"""Draws per second: an exact discrete Gaussian sampler against the library's dithered float64 noise.

    python -m benchmarks discrete_gaussian [DRAWS]

The exact sampler (Canonne, Kamath, Steinke 2020) uses whole numbers and random bits only: it proposes from a discrete
Laplace distribution and accepts with probability exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)), decided exactly. Its values
are multiples of the grid, at sigma / grid of a usual plan.
"""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections import Counter

from dpsco import Budget, mechanism
from dpsco.release.calibration import calibrate
from dpsco.release.noise import Normals, new_key


class Bits:
    """Uniform whole numbers from random bytes of the operating system, fetched many at a time."""

    def __init__(self) -> None:
        self._bytes, self._at = b"", 0

    def below(self, n: int) -> int:
        bits = n.bit_length()
        size = (bits + 7) // 8
        while True:
            if self._at + size > len(self._bytes):
                self._bytes, self._at = secrets.token_bytes(1 << 16), 0
            found = int.from_bytes(self._bytes[self._at : self._at + size], "little") >> (8 * size - bits)
            self._at += size
            if found < n:
                return found


below = Bits().below


def exp_minus(numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator / denominator), exactly."""
    while numerator > denominator:
        if not exp_minus(1, 1):
            return False
        numerator -= denominator
    k = 1
    while below(k * denominator) < numerator:
        k += 1
    return k % 2 == 1


def laplace(t: int) -> int:
    """A discrete Laplace draw of scale t, exactly."""
    while True:
        u = below(t)
        if not exp_minus(u, t):
            continue
        v = 0
        while exp_minus(1, 1):
            v += 1
        y = u + t * v
        if below(2):
            return y
        if y:
            return -y


def exact(sigma: int) -> int:
    """A discrete Gaussian draw with parameter sigma, exactly."""
    t = sigma + 1
    while True:
        y = laplace(t)
        if exp_minus((abs(y) * t - sigma * sigma) ** 2, 2 * sigma * sigma * t * t):
            return y


def rate_of_ours(p: int, bits: int) -> float:
    source, rounds, began = Normals(new_key()), 0, time.perf_counter()
    while time.perf_counter() - began < 1.0:
        source(rounds, p)
        source.dither(rounds, p, bits)
        rounds += 1
    return rounds * p / (time.perf_counter() - began)


def main(draws: int = 20_000) -> None:
    for p in (50, 1_000_000):
        noise = calibrate(Budget(1.0, 1e-6), mechanism("sqrt", horizon=16), clip=1.0, dimension=p, rows=1000)
        sigma = round(noise.sigma / noise.grid)
        bits = round(math.log2(noise.window / noise.grid))
        began = time.perf_counter()
        values = [exact(sigma) for _ in range(draws)]
        theirs = draws / (time.perf_counter() - began)
        spread = math.sqrt(sum(v * v for v in values) / draws) / sigma
        ours = rate_of_ours(p, bits)
        print(f"p = {p:,}, sigma / grid = {sigma:,}: exact {theirs:,.0f} draws per second, ours {ours:,.0f}", end="")
        print(f" ({ours / theirs:,.0f}x); deviation of the exact draws {spread:.3f} sigma")
    small = Counter(exact(2) for _ in range(draws))
    weights = {v: math.exp(-(v**2) / 8) for v in range(-30, 31)}
    total = sum(weights.values())
    worst = max(abs(small[v] / draws - w / total) for v, w in weights.items())
    print(f"check at sigma = 2: largest difference from its probabilities {worst:.4f} in {draws:,} draws")


if __name__ == "__main__":
    main(*(int(float(argument)) for argument in sys.argv[1:]))
