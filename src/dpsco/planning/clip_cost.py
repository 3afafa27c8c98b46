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
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from dpsco.query import Array

__all__ = ["clip_cost", "clip_cost_tables", "clip_costs", "gamma_quantiles", "label_spread"]

_SHARES = np.geomspace(0.2, 3.0, 28)
_FIRST, _STEP = math.log(0.2), math.log(15.0) / 27
"""Their logarithms are even."""
_REACHES = np.geomspace(0.01, 1.5, 100)
"""No slope is longer than sqrt 2: beyond, nothing is shortened."""
_LOG_REACHES = np.log(_REACHES)
_LENGTHS = 24
_TOGETHER = 1 << 16
"""Numbers of one array: rows may be many."""
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
    two = chances.shape[1] == 2
    if two:
        slopes = 1 - chances  # one score: its derivative, not that of two
    some = max(1, _TOGETHER // chances.size)
    found = []
    for k in range(0, len(_REACHES), some):
        if two:  # sums of two numbers, each in an array of its own
            (q, s), (r, t) = zip(chances.T, slopes.T, strict=True)
            first, second = (np.minimum(1.0, _REACHES[k : k + some, None] / slope) for slope in (s, t))
            one, other = q * first, r * second
            means = one + other
            found.append((one * first + other * second - means**2) @ weights)
            continue
        factors = np.minimum(1.0, _REACHES[k : k + some, None, None] / slopes)  # (reaches, rows, K)
        shortened = chances * factors
        means = np.sum(shortened, axis=2)
        found.append((np.sum(shortened * factors, axis=2) - means**2) @ weights)
    return np.maximum(np.concatenate(found), 0.0)


def clip_costs(spread: Array, tail: float) -> Array:
    """Return the logarithm of the cost at tabulated shares, for ``clip_cost``.

    Parameters
    ----------
    spread : array
        From ``label_spread``.
    tail : float
        Variance of ||P a||^2 over its squared mean.
    """
    return _costs(spread, _log_reaches(round(tail, 3)))


def clip_cost_tables(spreads: Sequence[Array], tails: Sequence[float]) -> Array:
    """Return ``clip_costs`` of every tail and spread at once, of shape (tails, spreads, shares)."""
    reaches = [_log_reaches(round(tail, 3)) for tail in tails]
    if len({reach.shape for reach in reaches}) > 1:  # rows of one length have one quantile
        return np.array([[_costs(spread, reach) for spread in spreads] for reach in reaches])
    together = np.array(reaches)
    return np.stack([_costs(spread, together) for spread in spreads], axis=1)


def _costs(spread: Array, log_reaches: Array) -> Array:
    costs = 0.5 * np.interp(log_reaches, _LOG_REACHES, spread, right=0.0)
    return np.log(np.mean(costs, axis=-1) + _LEAST)


def clip_cost(tables: Array, share: float | Array, m: Array) -> Array:
    """Return the cost of a clip of ``share``, where motion adds ``m`` to the mean square of a contribution.

    Parameters
    ----------
    tables : array of shape (.., tabulated shares)
        From ``clip_costs``; its leading axes are those of the result.
    share, m
        Arrays that broadcast to the leading axes of the tables and beyond.
    """
    places = (np.log(share) - 0.5 * np.log1p(m) - _FIRST) / _STEP
    places = np.clip(places, 0.0, len(_SHARES) - 1.0)
    below = np.clip(places.astype(np.intp), 0, len(_SHARES) - 2)  # NaN has a place too, and stays NaN below
    lines = np.arange(tables.size // len(_SHARES)).reshape(tables.shape[:-1]) * len(_SHARES)
    flat, at = tables.ravel(), lines + below
    low = flat[at]
    return np.exp(low + (places - below) * (flat[at + 1] - low))


@lru_cache(maxsize=256)
def _log_reaches(tail: float) -> Array:
    return np.log(np.outer(_SHARES, 1 / np.sqrt(gamma_quantiles(tail))))


def gamma_quantiles(tail: float) -> Array:
    """Return quantiles of a gamma variable of mean 1 and variance ``tail``, scaled to mean 1."""
    # The cube of a Gaussian (Wilson and Hilferty 1931) is close enough, and needs no special function.
    if tail <= 0:
        return np.ones(1)
    nodes = _gaussian_quantiles()
    cubes = np.maximum(1 - tail / 9 + nodes * math.sqrt(tail / 9), 0.05) ** 3
    return np.asarray(cubes / np.mean(cubes))


@lru_cache(maxsize=1)
def _gaussian_quantiles() -> Array:
    """Return the middles of ``_LENGTHS`` equally likely parts of a standard Gaussian."""
    law = NormalDist()
    return np.array([law.inv_cdf((k + 0.5) / _LENGTHS) for k in range(_LENGTHS)])
