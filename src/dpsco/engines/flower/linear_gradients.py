"""Gradients of a client's rows under the library's linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsco.engines.flower.client import Gradients
from dpsco.errors import DataError
from dpsco.problem import CustomLoss, Problem
from dpsco.query import Array
from dpsco.rows.gate import Declared

__all__ = ["linear_gradients"]


def linear_gradients(problem: Problem, features: Any, labels: Any) -> Gradients:
    """Return ``x -> (rows, p)``: the gradient of ``problem.loss`` on each row of any container, or on one row.

    A row that does not fit (gate.py), or whose label the loss cannot take, has a gradient of NaN, which clients count
    as 0.

    >>> import dpsco
    >>> problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    >>> linear_gradients(problem, [[0.6, 0.8]], [1])(np.zeros(2))
    array([[-0.3, -0.4]])
    """
    if isinstance(problem.loss, CustomLoss):
        raise DataError("A CustomLoss has gradients of its own: pass a function x -> (rows, p) in their place.")
    if isinstance(features, np.ndarray) and features.ndim == 1 and features.dtype != object:  # a device with one row
        features, labels = features[None], [labels] if np.ndim(labels) == 0 else labels
    a, y = Declared(problem.dimension).chunk(features, labels)
    if problem.intercept:
        a = np.hstack([a, np.ones((len(y), 1))])
    k = problem.loss.outputs
    valid = problem.loss.valid(y) & np.all(np.isfinite(a), axis=1)
    a, y = np.where(valid[:, None], a, 0.0), np.where(valid, y, 0)

    def gradients(x: Array) -> Array:
        scores = a @ x.reshape(k, -1).T
        slopes = problem.loss.slope(scores[:, 0], y)[:, None] if k == 1 else problem.loss.slope(scores, y)
        slopes = np.where(valid[:, None], slopes, np.nan)
        return (slopes[:, :, None] * a[:, None, :]).reshape(len(y), -1)

    return gradients
