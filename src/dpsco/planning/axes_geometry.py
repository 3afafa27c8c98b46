"""The geometry that a diagonal survey of very many columns shows: a size per column, the axes for directions.

    released_j = t_j + s z_j           t_j the mean square of column j, s the noise per number, z_j standard normal

Columns of wide tables follow no known law, and noise hides most of them. The law of t is estimated from all columns at
once (empirical Bayes): weights w_k of sizes t_k on a geometric grid that maximise the likelihood of the p released
numbers up to 8 s, by expectation maximisation over a histogram of these. A column's size is its posterior mean,

    xi_j = sum_k w_k t_k phi((released_j - t_k) / s) / sum_k w_k phi((released_j - t_k) / s),

which increases with the released number. Means of columns, from the column of the constant, give the one direction that
stands out of a diagonal metric, ``mean_size``: there all columns have size 1, and rows of positive values their mean.

Guarantee: post-processing of the released survey. Cost: O(p), and a table of 160 times 25 numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsco.planning.geometry import Geometry
from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.query import Array

__all__ = ["axes_geometry", "mean_size", "posterior_means", "size_groups"]

_NEAR, _FINE = 8.0, 0.1
"""Released numbers up to this many deviations are cleaned, counted in bins of this width; larger ones are believed."""
_LEAST, _SIZES = 0.02, 24
"""Least size of the grid beside 0, in deviations, and its sizes."""
_PASSES, _NOTHING = 200, 0.9
"""Passes of the maximisation, and the share of columns that hold nothing at its start: from an even start it takes ten
times as many passes until sizes add up to what was released."""
_EMPTY = 1e-15


def axes_geometry(released: ReleasedSurvey) -> Geometry:
    """Return the geometry of a survey of kind "diagonal", every column a direction of its own."""
    second, column = released.moment
    s, c, p = released.moment_noise, released.constant, len(second)
    mean = np.zeros(p)
    sizes = np.array(second)
    own = slice(0, p - (c > 0))
    sizes[own] = posterior_means(second[own], s)
    if c > 0:
        sizes[-1] = c * c  # public: every usable row has it
        mean = np.append(column[:-1] / c, c)
    radius = s * math.sqrt(2 * math.log(p + 1))
    return Geometry(
        np.ones(p), np.zeros((p, 0)), sizes, 0.0, np.append(second[own], sizes[own.stop :]), s, radius, mean
    )


def posterior_means(released: Array, s: float) -> Array:
    """Return the posterior mean of each positive number behind ``released``, with noise of deviation ``s``.

    >>> posterior_means(np.array([3.0, -1.0]), 0.0)
    array([3., 0.])
    """
    if s <= 0 or not np.all(np.isfinite(released)):
        return np.maximum(released, 0.0)
    x = released / s
    near = x[x < _NEAR]
    if not len(near):
        return released
    place = ((np.maximum(near, -_NEAR) + _NEAR) / _FINE).astype(np.int64)
    _, place, count = np.unique(place, return_inverse=True, return_counts=True)
    centre = np.bincount(place, near) / count
    sizes = np.append(0.0, np.geomspace(_LEAST, 1.5 * _NEAR, _SIZES))
    likely = np.exp(-0.5 * (np.maximum(centre, -_NEAR)[:, None] - sizes) ** 2)
    weights = np.full(len(sizes), (1 - _NOTHING) / (len(sizes) - 1))
    weights[0] = _NOTHING
    for _ in range(_PASSES):
        shares = likely * weights
        shares /= np.sum(shares, axis=1, keepdims=True)
        weights = count @ shares / len(near)
    shares = likely * weights
    means = np.maximum.accumulate(shares @ sizes / np.sum(shares, axis=1))
    return np.asarray(s * np.where(x < _NEAR, np.interp(x, centre, means), x))


def size_groups(sizes: Array, ratio: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each column, and the columns of each group: sizes within a factor ``ratio``, ascending.

    >>> size_groups(np.array([4.0, 1.0, 1.01]), 2.0)[0].tolist()
    [1, 0, 0]
    """
    steps = np.round(np.log(np.maximum(sizes, _EMPTY)) / math.log(ratio)).astype(np.int64)
    _, group, count = np.unique(steps, return_inverse=True, return_counts=True)
    return group, count


def mean_size(shape: Geometry, gains: Array) -> float:
    """Return the size of the mean row in the metric of ``gains``, without what noise adds to it; 0 if none is seen."""
    if not shape.intercept:
        return 0.0
    c = float(shape.mean[-1])
    doubt = shape.noise**2 / (2 * c * c)  # variance of an entry of the mean
    squares = gains[:-1] ** 2 * (shape.mean[:-1] ** 2 - doubt)
    deviation = math.sqrt(2.0 * float(np.sum((gains[:-1] ** 2 * doubt) ** 2)))
    return max(float(np.sum(squares)) + deviation, 0.0) + float(gains[-1] * c) ** 2
