"""Gradients of a client's rows under the library's linear models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import row_norms
from dpsco.clipping.survey import MOMENTS, joint_parts, joint_rows, padded
from dpsco.errors import DataError
from dpsco.lazy import cached_property
from dpsco.problem import CustomLoss, Problem
from dpsco.query import Array, Moment
from dpsco.rows.gate import Declared

__all__ = ["LinearRows", "linear_gradients", "survey_numbers"]

_TOGETHER = 64
"""Rows are padded to whole units of it where functions work on several numbers at once."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearRows:
    """Rows of a client: ``x -> (rows, p)``, and their joint contributions to a survey. SENSITIVE."""

    problem: Problem
    features: Array
    labels: NDArray[Any]

    def __repr__(self) -> str:
        return "LinearRows(<sensitive>)"

    def __call__(self, x: Array) -> Array:
        """Return the gradient of each row at ``x``; NaN for an unusable row. No row's place changes its bits."""
        loss, k = self.problem.loss, self.problem.loss.outputs
        a, y, valid = self._usable
        scores = padded(np.sum(a[:, None, :] * x.reshape(k, -1), axis=2), _TOGETHER)  # a matrix product has other bits
        labels = padded(y, _TOGETHER)
        slopes = loss.slope(scores[:, 0], labels)[:, None] if k == 1 else loss.slope(scores, labels)
        slopes = np.where(valid[:, None], slopes[: len(y)], np.nan)
        return np.asarray((slopes[:, :, None] * a[:, None, :]).reshape(len(y), x.size))

    @cached_property
    def _usable(self) -> tuple[Array, NDArray[Any], NDArray[np.bool_]]:
        a, y = self.features, self.labels
        if self.problem.intercept:
            a = np.hstack([a, np.ones((len(y), 1))])
        valid = self.problem.loss.valid(y) & np.all(np.isfinite(a), axis=1)
        return np.where(valid[:, None], a, 0.0), np.where(valid, y, 0), valid

    @cached_property
    def shortened(self) -> LinearRows:
        """The same with rows no longer than the feature norm: what a survey and the rounds behind it see."""
        lengths = row_norms(self.features)
        with np.errstate(all="ignore"):
            scale = np.where(lengths > self.problem.feature_norm, self.problem.feature_norm / lengths, 1.0)
            return LinearRows(self.problem, self.features * scale[:, None], self.labels)

    def survey(self, numbers: Sequence[float]) -> Array:
        """Return the joint contribution of each row (clipping/survey.py) to a survey of these ``survey_numbers``."""
        kind, norm, constant, outputs, classes, slope, gradient, health = numbers
        moment = Moment(MOMENTS[int(kind)], norm, constant, int(outputs), int(classes), slope, gradient, health)
        return joint_rows(moment, joint_parts(self.problem.loss, moment, self.features, self.labels))


def survey_numbers(moment: Moment) -> tuple[float, ...]:
    """Return a survey's question as a query states it (wire.py)."""
    return (
        MOMENTS.index(moment.kind),
        moment.feature_norm,
        moment.constant,
        moment.outputs,
        moment.classes,
        moment.slope,
        moment.gradient,
        moment.health,
    )


def linear_gradients(problem: Problem, features: Any, labels: Any) -> LinearRows:
    """Return ``x -> (rows, p)``: the gradient of ``problem.loss`` on each row of any container, or on one row.

    A row that does not fit (gate.py), or whose label the loss cannot take, has a gradient of NaN, which clients count
    as 0.

    Parameters
    ----------
    problem : Problem
        Its loss must be built in.
    features : table or array
        Rows in any container, or one row.
    labels : column or scalar
        A label per row.

    Returns
    -------
    LinearRows
        A client for ``LocalNodes``, ``respond`` or ``client_app``; it can be surveyed.

    >>> import dpsco
    >>> problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2)
    >>> linear_gradients(problem, [[0.6, 0.8]], [1])(np.zeros(2))
    array([[-0.3, -0.4]])
    """
    if isinstance(problem.loss, CustomLoss):
        raise DataError("A CustomLoss has gradients of its own: pass a function x -> (rows, p) in their place.")
    if isinstance(features, np.ndarray) and features.ndim == 1 and features.dtype != object:  # a device with one row
        features, labels = features[None], [labels] if np.ndim(labels) == 0 else labels
    return LinearRows(problem, *Declared(problem.dimension).chunk(features, labels))
