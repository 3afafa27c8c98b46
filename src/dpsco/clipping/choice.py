"""Which oracle a plan uses: plain NumPy for small data, compiled kernels where they pay."""

from __future__ import annotations

from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.oracle import Oracle
from dpsco.problem.problem import Problem

__all__ = ["linear_oracle"]

COMPILED_FROM = 1 << 26
"""Rows times features times classes from which loading compiled code, half a second, pays: 256 MB of float32."""

COMPILED_FROM_SLOW = 1 << 30
"""The same for rows made on the way, where their source sets the pace and the compiler's 100 MB are felt."""


def linear_oracle(problem: Problem, n: int, *, slow_source: bool = False) -> Oracle:
    """The oracle of ``problem`` for ``n`` rows in all; decided by public numbers alone."""
    size = n * problem.dimension * problem.loss.outputs
    kind = CompiledOracle if size >= (COMPILED_FROM_SLOW if slow_source else COMPILED_FROM) else LinearOracle
    return kind(problem.loss, problem.intercept)
