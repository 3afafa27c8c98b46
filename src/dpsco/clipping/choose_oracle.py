"""The choice of an oracle: plain NumPy for small data, compiled kernels for large data."""

from __future__ import annotations

from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.oracle import Oracle
from dpsco.problem.problem import Problem

__all__ = ["linear_oracle"]

COMPILED_FROM = 1 << 24
"""Rows times features times classes (64 MB of float32) above which loading the kernels, 0.5 s, saves time."""

COMPILED_FROM_SLOW = 1 << 30
"""The same for rows computed or parsed while training: the source limits the speed, and numba's 100 MB matter."""


def linear_oracle(problem: Problem, n: int, *, slow_source: bool = False, squares: bool = False) -> Oracle:
    """Choose the oracle of ``problem`` for ``n`` rows in total, from public numbers only.

    Parameters
    ----------
    problem : Problem
        Its loss must be built in.
    n : int
        Public number of rows.
    slow_source : bool
        Whether rows are computed or parsed while training.
    squares : bool
        Whether squares of contributions are asked for: the kernels do not make them.

    Returns
    -------
    Oracle
        ``CompiledOracle`` for large data, ``LinearOracle`` for small data.
    """
    size = n * problem.dimension * problem.loss.outputs
    compiled = not squares and size >= (COMPILED_FROM_SLOW if slow_source else COMPILED_FROM)
    kind = CompiledOracle if compiled else LinearOracle
    return kind(problem.loss, problem.intercept)
