"""The ridge, run, beta and clip of least predicted excess, among all candidates behind a survey.

A candidate is a ridge r of the metric, a run (T, z-step), a beta and a clip. Its merit is the mean over curvature
factors f, and the weighted mean over hypotheses h about the hidden signal, of the logarithm of

    optimisation + privacy noise + sampling + cost of the clip       (response_planner.py, clip_cost.py).

The clip enters through one number, the privacy noise of a unit of variance, and through its cost. Noise and motion grow
with the clip and the cost is not negative, so the merit at the least clip without a cost is below the merits of all
clips. The search evaluates that bound for all ridges, runs and betas, and the clips where the bound is below the best
merit found: the answer is that of evaluating all of them.

Guarantee: public or released numbers decide.
Cost: two milliseconds for 8,000 candidates in 9 populations each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.planning.clip_cost import clip_cost
from dpsco.planning.response_curves import ratio_weights
from dpsco.planning.response_planner import SHAKE
from dpsco.query import Array

Places = NDArray[np.intp]

__all__ = ["Candidates", "Found", "search"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What there is to choose from, and where it would run."""

    curvature: Array
    """(ridges, hypotheses, factors, groups): h of the directions of a group."""
    distance: Array
    """The same shape: squared distance to the optimum within the group."""
    count: Array
    """(groups,): directions of a group."""
    disagreement: float
    weights: Array
    """(hypotheses,)"""
    tables: Array
    """(runs, 6, ratios): ``ResponseCurves`` of each run."""
    batches: Array
    """(runs,): rows of a round."""
    late: Array
    """(runs,): what a run's rounds add to its merit."""
    betas: Array
    """(betas, ridges)"""
    reach: Array
    """(runs, ridges): deviation of a mean gradient entry by privacy noise, at share 1."""
    shares: Array
    """(clips,): clips as shares, the least one last."""
    costs: Array
    """(clips, hypotheses): cost of each clip; or (ridges, hypotheses, tabulated shares) of ``clip_costs``."""


@dataclass(frozen=True)
class Found:
    """The best candidate, by its places, and its expected excess: optimisation and the clip's cost, noise, sampling."""

    ridge: int
    run: int
    clip: int
    beta: int
    merit: float
    parts: tuple[float, float, float]


def search(given: Candidates) -> Found:
    """Return the candidate of least merit."""
    sums = _sums(given)
    shape = (sums.shape[1], *given.betas.shape)  # of the places: runs, betas, ridges
    everywhere = _everywhere(given)
    least = _merits(given, everywhere, _parts(given, sums, everywhere, given.shares[-1:], free=True)).ravel()
    by_ridge = least.reshape(-1, shape[-1])
    few = np.asarray(np.argmin(by_ridge, axis=0), np.intp) * shape[-1] + np.arange(shape[-1])
    enough = np.min(_tried(given, sums, few)[0])
    # NaN stays. So do the few: rounding may put the bound of the best above its own merit.
    places = np.union1d(few, np.flatnonzero(~(least > enough)))
    merits, parts = _tried(given, sums, places)
    clip, at = np.unravel_index(int(np.argmin(merits)), merits.shape)
    run, beta, ridge = (int(k) for k in np.unravel_index(places[at], shape))
    middle = given.curvature.shape[2] // 2
    optimisation, noise, sampling = (float(given.weights @ part[clip, 0, :, middle, at]) for part in parts)
    return Found(ridge, run, int(clip), beta, float(merits[clip, at]), (optimisation, noise, sampling))


class _Places(NamedTuple):
    """Runs, betas and ridges, in arrays that broadcast to (runs, 1, 1, places of a run): places are the fast axis."""

    run: Places
    beta: Places
    ridge: Places


def _everywhere(given: Candidates) -> _Places:
    beta, ridge = np.unravel_index(np.arange(given.betas.size), given.betas.shape)
    return _Places(np.arange(len(given.tables))[:, None, None, None], beta, ridge)


def _tried(given: Candidates, sums: Array, places: Places) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the merits (clips, places) of every clip at some places, and their parts, as of one run."""
    at = _Places(*np.unravel_index(places, (sums.shape[1], *given.betas.shape)))
    taken = sums[:, at.run, ..., places % given.betas.size]  # the places come first
    parts = _parts(given, np.ascontiguousarray(np.moveaxis(taken, 0, -1))[:, None], at, given.shares, free=False)
    return _merits(given, at, parts)[:, 0], parts


def _sums(given: Candidates) -> Array:
    """Return sums over directions of each curve, of shape (curves, runs, hypotheses, factors, betas x ridges)."""
    # (hypotheses, factors, 1, ridges, groups)
    h, distance = (
        np.ascontiguousarray(part.transpose(1, 2, 0, 3))[:, :, None] for part in (given.curvature, given.distance)
    )
    weight, signal = given.count * h, h * distance
    used, of = ratio_weights(h / given.betas[..., None], np.stack([signal, weight * h, weight]))
    tables = given.tables[:, :, used]
    count, ratios = len(tables), tables.shape[-1]
    curves = tables.reshape(count, 2, 3, ratios).transpose(2, 1, 0, 3).reshape(3, 2 * count, ratios)
    sums = curves @ of.reshape(3, -1, ratios).swapaxes(1, 2)  # decay and drift, sampling and motion, noise and shake
    return np.asarray(sums.reshape(6, count, *of.shape[1:3], -1))


def _parts(given: Candidates, sums: Array, at: _Places, shares: Array, *, free: bool) -> tuple[Array, Array, Array]:
    """Optimisation and cost, noise, sampling: (clips, runs, hypotheses, factors, places of a run).

    ``free`` leaves out the cost.
    """
    decay, drift, sampling, motion, noise, shake = sums
    step, shares = given.betas[at.beta, at.ridge], shares[:, None, None, None, None]
    rows = given.batches[at.run] * step**2
    privacy = shares**2 * (given.reach[at.run, at.ridge] / step) ** 2
    fed_back = np.minimum(motion / rows, 0.98)
    own, pushed = drift + given.disagreement * fed_back, SHAKE * shake
    m = (own + privacy * pushed) / (1 - fed_back)
    optimisation = np.broadcast_to(0.5 * decay, m.shape)
    if not free and given.costs.ndim == 3:
        tables = given.costs.swapaxes(0, 1)[:, at.ridge]  # (hypotheses, places, tabulated shares)
        optimisation = optimisation + clip_cost(tables[:, None], shares, m)
    elif not free:
        optimisation = optimisation + given.costs[:, None, :, None, None]
    return optimisation, privacy * (0.5 * noise), 0.5 * sampling / rows * (given.disagreement + m)


def _merits(given: Candidates, at: _Places, parts: tuple[Array, Array, Array]) -> Array:
    """Merits of shape (clips, runs, places of a run)."""
    optimisation, noise, sampling = parts
    logs = np.log(optimisation + noise + sampling)
    factors = logs.shape[3]  # a product: a mean over so short an axis takes far longer
    means = np.repeat(given.weights / factors, factors) @ logs.reshape(*logs.shape[:2], -1, logs.shape[-1])
    return np.asarray(means + given.late[at.run.reshape(-1, 1) if at.run.ndim > 1 else at.run])
