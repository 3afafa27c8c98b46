"""The rows' second moment as standard errors need it: a cleaned spectrum, and columns of their measured size.

The survey released S + N. Its spectrum is cleaned as in planning/geometry.py: eigenvectors stay, and each receives the
mean size of what it holds. That is the best guess if no basis is special. Columns are special: a rare 0/1 column is
small, and cleaning lends it the size of the others, so the error of its coefficient would come out too small. But the
diagonal was released too, with p errors instead of p^2: so the cleaned covariance C is scaled back to it,

    C_ij <- C_ij sqrt(v_i v_j / (C_ii C_jj)),      v_j the variance of column j given the diagonal (positive.py).

An error depends on what the other columns leave of column j: v_j (1 - sum_i r_ij^2), to second order in the
correlations r_ij. These have errors of variance s^2 / (2 v_i v_j). So the variance of its logarithm is about

    that of log v_j  +  2 s^2 sum_i r_ij^2 / (v_i v_j).

Guarantee: post-processing of released values.
Cost: one eigendecomposition, O(p^3).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsco.inference.positive import logs_of_positive
from dpsco.planning.geometry import clean_spectrum
from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.query import Array

__all__ = ["Moment", "cleaned_moment"]

_FLOOR = 0.2
"""Least size over the mean one behind the noise."""
_EMPTY = 1e-9


class Moment(NamedTuple):
    """The second moment in units of the survey's rows."""

    rows: Array
    """(p, p)."""
    least: float
    """Most that a combination of the columns, each of variance 1, may vary whose variance may be 0; 1 if none may."""
    doubt: Array
    """(p,): variance of the logarithm of what the others leave of each column; for the constant the median."""


def cleaned_moment(survey: ReleasedSurvey) -> Moment:
    """Return the second moment of a full survey's rows; without noise the released one."""
    s, c = survey.moment_noise, survey.constant
    moment = np.array(survey.moment)
    mean = np.zeros(len(moment))
    if c > 0:
        mean = np.append(moment[:-1, -1] / c, c)
        moment = moment[:-1, :-1] - np.outer(mean[:-1], mean[:-1])
        moment[np.diag_indices(len(moment))] += s * s / (2 * c * c)  # the square of the mean's error
    observed, directions = np.linalg.eigh(moment)
    radius = s * math.sqrt(2 * len(moment))
    sizes = clean_spectrum(observed, radius / 2)
    hidden = sizes[observed < radius]
    floor = _FLOOR * float(np.mean(hidden)) if len(hidden) else 0.0
    inside = (directions * np.maximum(sizes, max(floor, 1e-12 * float(np.max(sizes))))) @ directions.T
    doubt = np.zeros(len(moment))
    if s > 0:
        errors = s * np.sqrt(1 + (2 * mean[:-1] ** 2 / c**2 if c > 0 else np.zeros(len(moment))))
        logs, doubt = logs_of_positive(np.diag(moment), errors)
        scale = np.exp(0.5 * logs) / np.sqrt(np.diag(inside))
        inside = inside * np.outer(scale, scale)
        shares = (inside / np.exp(0.5 * np.add.outer(logs, logs))) ** 2 / np.exp(np.add.outer(logs, logs))
        doubt = doubt + 2 * s * s * (np.sum(shares, axis=0) - np.diag(shares))
    if c == 0:
        return Moment(inside, _least(inside, s), doubt)
    full = np.outer(mean, mean)
    full[:-1, :-1] += inside
    return Moment(full, _least(inside, s), np.append(doubt, np.median(doubt)))


def _least(covariance: Array, s: float) -> float:
    """Smallest eigenvalue of the correlations that may be 0, plus two deviations of its noise: z'Nz has s ||z||^2."""
    lengths = np.sqrt(np.diag(covariance))
    sizes, vectors = np.linalg.eigh(covariance / np.outer(lengths, lengths))
    errors = 2 * s * np.sum((vectors.T / lengths) ** 2, axis=1) + _EMPTY
    return float(np.min((sizes + errors)[sizes <= errors], initial=1.0))
