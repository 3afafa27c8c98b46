"""What clipping costs: half the variance, over the labels of a row, of the factor that shortens its gradient.

The gradient of a row with class chances q and label y is (q - e_y) a'. Shortened by f_y, its mean over the labels is no
longer 0 at the optimum but q_j (fbar - f_j) a' in class j, fbar the mean of f_y. The loss's minimum moves by what of
this is linear in the rows, so the excess is at most, and on tables about,

    1/2 E[ sum_y q_y (f_y - fbar)^2 ],      f_y = min(1, share / (rho ||q - e_y|| sqrt(1 + m))).

``share`` is the clip over sqrt(E ||P a||^2), rho the length of a mapped row over the same, taken as the root of a gamma
variable. A round asks for more than a gradient: what the iterates move adds the share m (response_planner.py) to the
mean square of a contribution.

Guarantee: public or released numbers decide. Cost: milliseconds, once per plan and set of chances.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsco.query import Array

__all__ = ["clip_cost", "clip_costs", "label_spread"]

_SHARES = np.geomspace(0.2, 3.0, 28)
_REACHES = np.geomspace(0.01, 1.5, 100)
"""No slope is longer than sqrt 2: beyond, nothing is shortened."""
_LENGTHS = 24
_LEAST = 1e-12


def label_spread(chances: Array, weights: Array) -> Array:
    """Return E[ sum_y q_y (f_y - fbar)^2 ] at tabulated share / rho, for ``clip_costs``.

    Parameters
    ----------
    chances : array of shape (rows, K)
        Chances of the classes in some rows, of both classes for two.
    weights : array of shape (rows,)
        Weight of each row; they add up to 1.
    """
    squares = np.sum(chances**2, axis=1, keepdims=True)
    slopes = np.sqrt(np.maximum(squares - 2 * chances + 1, _LEAST))
    if chances.shape[1] == 2:
        slopes = 1 - chances  # one score: its derivative, not that of two
    found = np.empty(len(_REACHES))
    for i, reach in enumerate(_REACHES):  # one at a time: rows may be many
        factors = np.minimum(1.0, reach / slopes)
        means = np.sum(chances * factors, axis=1)
        found[i] = (np.sum(chances * factors**2, axis=1) - means**2) @ weights
    return np.maximum(found, 0.0)


def clip_costs(spread: Array, tail: float) -> Array:
    """Return the logarithm of the cost at tabulated shares, for ``clip_cost``.

    Parameters
    ----------
    spread : array
        From ``label_spread``.
    tail : float
        Variance of ||P a||^2 over its squared mean.
    """
    reach = np.outer(_SHARES, 1 / np.sqrt(_gamma_quantiles(round(tail, 3))))
    costs = 0.5 * np.interp(np.log(reach), np.log(_REACHES), spread, right=0.0)
    return np.log(np.mean(costs, axis=1) + _LEAST)


def clip_cost(table: Array, share: float | Array, m: Array) -> Array:
    """Return the cost of a clip of ``share``, where motion adds ``m`` to the mean square of a contribution."""
    places = np.log(share) - 0.5 * np.log1p(m)
    return np.exp(np.interp(places, np.log(_SHARES), table))


@lru_cache(maxsize=64)
def _gamma_quantiles(tail: float) -> Array:
    """Return quantiles of a gamma variable of mean 1 and variance ``tail``, scaled to mean 1."""
    # The cube of a Gaussian (Wilson and Hilferty 1931) is close enough, and needs no special function.
    if tail <= 0:
        return np.ones(1)
    nodes = _gaussian_quantiles()
    cubes = np.maximum(1 - tail / 9 + nodes * math.sqrt(tail / 9), 0.05) ** 3
    return np.asarray(cubes / np.mean(cubes))


def _gaussian_quantiles() -> Array:
    """Return the middles of ``_LENGTHS`` equally likely parts of a standard Gaussian."""
    law = NormalDist()
    return np.array([law.inv_cdf((k + 0.5) / _LENGTHS) for k in range(_LENGTHS)])
