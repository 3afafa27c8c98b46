"""The choice of an oracle: plain NumPy for small data, compiled kernels for large data."""

from __future__ import annotations

from dpsco.clipping.compiled import CompiledOracle
from dpsco.clipping.compiled_survey import CompiledSurveyOracle
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.oracle import Oracle
from dpsco.clipping.survey import SurveyOracle
from dpsco.problem.problem import Problem

__all__ = ["linear_oracle", "survey_oracle"]

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
    compiled = not squares and _large(problem, n, slow_source)
    kind = CompiledOracle if compiled else LinearOracle
    return kind(problem.loss, problem.intercept)


def survey_oracle(problem: Problem, n: int, *, slow_source: bool = False) -> SurveyOracle:
    """Choose the oracle of a survey by the same rule: the rounds behind it load the compiled code anyway.

    Parameters
    ----------
    problem, n, slow_source
        As for ``linear_oracle``.

    Returns
    -------
    SurveyOracle
        A ``CompiledSurveyOracle`` for large data.
    """
    kind = CompiledSurveyOracle if _large(problem, n, slow_source) else SurveyOracle
    return kind(problem.loss, problem.intercept)


def _large(problem: Problem, n: int, slow_source: bool) -> bool:
    size = n * problem.dimension * problem.loss.outputs
    return size >= (COMPILED_FROM_SLOW if slow_source else COMPILED_FROM)
