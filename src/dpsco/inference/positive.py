"""Positive numbers behind noise of known size, one for each column: variances, mean squares.

Released is v_j + noise_j. The v_j are positive and of like size: log v_j ~ N(m, w^2), where every m and w of a grid
counts with the likelihood that it gives to all columns together. So a column that clearly stands out keeps its own
size, noise alone is drawn together, and a number that the noise hides keeps a wide distribution.

Guarantee: post-processing of released values.
Cost: O(p) for a fixed grid.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.query import Array

__all__ = ["logs_of_positive"]

_GRID, _EVERY = 160, 4
_WIDTHS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)
_LEAST = 0.01
"""Smallest number that is considered, over the mean one."""
_TINY = 1e-300


def logs_of_positive(released: Array, errors: Array) -> tuple[Array, Array]:
    """Return mean and variance of each number's logarithm, given all that was released.

    Parameters
    ----------
    released : array of shape (p,)
        The numbers with noise; a noisy one may be negative.
    errors : array of shape (p,)
        Standard deviations of the noise; zeros if there is none.
    """
    if not np.any(errors > 0):
        return np.log(np.maximum(released, _TINY)), np.zeros(len(released))
    unit = float(np.mean(errors))
    least, most = _LEAST * max(float(np.mean(released)), unit), max(float(np.max(released)), unit) + 4 * unit
    logs = np.linspace(math.log(least), math.log(most), _GRID)
    fits = np.exp(-0.5 * ((released[:, None] - np.exp(logs)) / errors[:, None]) ** 2) + _TINY
    middles, widths = (part.ravel() for part in np.meshgrid(logs[::_EVERY], _WIDTHS))
    priors = np.exp(-0.5 * ((logs - middles[:, None]) / widths[:, None]) ** 2)
    priors /= np.sum(priors, axis=1, keepdims=True)
    each = fits @ priors.T  # likelihood of a column under a prior
    together = np.sum(np.log(each), axis=0)
    found = fits * ((np.exp(together - np.max(together)) / each) @ priors)
    found /= np.sum(found, axis=1, keepdims=True)
    means = found @ logs
    return means, found @ logs**2 - means**2
