"""The cost of correlated noise: time per round relative to one draw of p normals, and memory.

    python -m benchmarks mechanisms

Every mechanism at T = 64; the buffered ones also at T = 4096. "own work" excludes the time of the draws, "with draws"
includes it. The measured rounds are the last ones, where memory is largest.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from typing import Any

import numpy as np

from dpsco.query import Array
from dpsco.release.mechanisms import MECHANISMS, Mechanism, mechanism

ROUNDS = 8
"""Rounds timed, after as many as fill the buffers."""


class Source:
    """Normals in the order they are asked for, and the time they take."""

    def __init__(self, dimension: int) -> None:
        self.generator, self.dimension = np.random.default_rng(1), dimension
        self.seconds, self.draws = 0.0, 0

    def __call__(self, row: int) -> Array:
        start = time.perf_counter()
        z = self.generator.standard_normal(self.dimension)
        self.seconds += time.perf_counter() - start
        self.draws += 1
        return z


def measure(made: Mechanism, dimension: int) -> tuple[float, float, float, float, int]:
    """(draws per round, own work, with draws, peak p-vectors in a round, p-vectors kept); work relative to one draw."""
    warm = min(made.horizon, 64) - ROUNDS - 1
    # Timing and tracing in separate runs: tracing slows allocation down.
    source, buffers = Source(dimension), made.start()
    for step in range(warm):
        _, buffers = made.increment(buffers, step, source)
    source.seconds, source.draws = 0.0, 0
    start = time.perf_counter()
    for step in range(warm, warm + ROUNDS):
        _, buffers = made.increment(buffers, step, source)
    total = time.perf_counter() - start
    one, draws = source.seconds / source.draws, source.draws / ROUNDS
    work = (total - source.seconds) / ROUNDS / one
    kept = len({id(buffer) for buffer in buffers})
    tracemalloc.start()
    made.increment(buffers, warm + ROUNDS, source)
    peak = tracemalloc.get_traced_memory()[1] / (8.0 * dimension) + kept
    tracemalloc.stop()
    return draws, work, work + draws, peak, kept


def main(dimension: int = 1_000_000) -> None:
    cases: list[tuple[str, int, dict[str, Any]]] = [(name, 64, {}) for name in sorted(MECHANISMS)]
    cases += [("workload", 64, {"buffers": 2}), ("blt", 4096, {}), ("workload", 4096, {})]
    print(f"p = {dimension:,}; work in units of drawing p normals once")
    print(
        f"{'mechanism':<22}{'T':>6}{'draws':>8}{'own work':>10}{'with draws':>12}{'kept':>8}{'peak':>8}   (p-vectors)"
    )
    for name, horizon, options in cases:
        made = mechanism(name, horizon=horizon, **options)
        draws, own, total, peak, kept = measure(made, dimension)
        label = f"{name}, {made.memory} buffers" if hasattr(made, "decays") else name
        print(f"{label:<22}{horizon:>6}{draws:>8.2f}{own:>10.2f}{total:>12.2f}{kept:>8d}{peak:>8.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
