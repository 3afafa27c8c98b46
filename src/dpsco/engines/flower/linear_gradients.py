"""Gradients of a client's rows under the library's linear models."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpsco.engines.flower.client import Gradients
from dpsco.errors import DataError
from dpsco.problem import CustomLoss, Problem
from dpsco.query import Array

__all__ = ["linear_gradients"]


def linear_gradients(problem: Problem, features: ArrayLike, labels: ArrayLike) -> Gradients:
    """``x -> (rows, p)``: the gradient of ``problem.loss`` on each row; NaN, which clients count as 0, where a label is
    not one the loss can take.

    >>> import dpsco
    >>> problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    >>> linear_gradients(problem, [[0.6, 0.8]], [1])(np.zeros(2))
    array([[-0.3, -0.4]])
    """
    a, y = np.array(features, dtype=np.float64, ndmin=2), np.atleast_1d(np.asarray(labels))
    if isinstance(problem.loss, CustomLoss):
        raise DataError("A CustomLoss has gradients of its own: pass a function x -> (rows, p) in their place.")
    if a.shape != (len(y), problem.dimension):
        raise DataError(f"Expected a client's rows to be of shape ({len(y)}, {problem.dimension}), one label each.")
    if problem.intercept:
        a = np.hstack([a, np.ones((len(y), 1))])
    k, valid = problem.loss.outputs, problem.loss.valid(y)
    y = np.where(valid, y, 0)

    def gradients(x: Array) -> Array:
        scores = a @ x.reshape(k, -1).T
        slopes = problem.loss.slope(scores[:, 0], y)[:, None] if k == 1 else problem.loss.slope(scores, y)
        slopes = np.where(valid[:, None], slopes, np.nan)
        return (slopes[:, :, None] * a[:, None, :]).reshape(len(y), -1)

    return gradients
