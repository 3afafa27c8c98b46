"""Truths that a released survey allows, as every plan behind it sees them: spectra and distances in each metric.

The parametric bootstrap (survey_bootstrap.py) gives a plausible truth for every hypothesis about the hidden signal, and
surveys it once more. Here the truth's Hessian is turned into the metric of each ridge, with the distance of the
simulated start from the truth's optimum: errors of the directions are in both. surveyed_planner.py chooses rounds on
these worlds, objective_in_geometry.py a minimiser.

Guarantee: post-processing of the released survey.
Cost: one eigendecomposition per ridge, of ``MOST`` directions at most: spectra are thinned to so many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.parallel import for_each
from dpsco.planning.geometry import STRETCHED, Geometry, floored, ridge_gains
from dpsco.planning.survey_bootstrap import AssumedSignal, Resurvey, assumed_spectrum, resurvey, simulated_survey
from dpsco.planning.survey_start import LEANINGS, Start
from dpsco.query import Array

__all__ = ["Worlds", "assumed_worlds"]

RIDGES = (0.1, 0.2, 0.4, 0.8, 2.0, 8.0)
HIDDEN_RIDGES = (0.8, 2.0, 8.0)
"""Where directions outside the known ones may be as large as the noise: less would stretch them beyond the others."""
TAIL = 4.0
"""Variance of ||P a||^2 over that of independent directions: 2 if Gaussian, more with rare 0/1 columns."""
MOST = 160
_IN_THREADS = 96
"""Directions from which ridges are tried in threads: less takes as long as to wake one."""
SINGLE, GROUP = 16, 6
HIDDEN = 0.3
"""Tables that need an intercept: mean signal behind the noise, as a share of the base's loss, before the gradient of
the survey is looked at. Signal, gradient and spectrum give the mean that the plan counts on."""
HIDDEN_CENTRED = 0.06
"""Without an intercept: at least this share of the base's loss is still to be gained, scores alike."""
UNLIKELY = 0.1
"""Likelihood of a leaning, relative to the best one, below which it is left out."""
BENT = 0.15
"""Relative error of the start that the loss's shape causes."""


@dataclass(frozen=True, eq=False)
class Worlds:
    """Where a plan behind a survey may find itself, for each ridge of the metric."""

    ridges: tuple[float, ...]
    """In units of the noise's spectral size."""
    curvature: Array
    """(ridges, hypotheses, factors, groups): h of the directions of a group."""
    distance: Array
    """The same shape: squared distance of the start from the optimum within the group."""
    count: Array
    """(groups,): directions of a group."""
    weights: Array
    """(hypotheses,)"""
    top: Array
    """(ridges,): largest size in the metric."""
    energy: Array
    """(ridges,): E ||P a||^2, as the survey shows it."""
    lifted_energy: Array
    """(ridges,): the same of the sizes that the metric counts on, none of which is empty."""
    true_energy: Array
    """(ridges,): the same of the truth: directions that look small do so because noise shortened them."""
    energy_doubt: Array
    """(ridges,): standard deviation of a released energy, s ||P'P|| (Frobenius), over the lifted one."""
    least: Array
    """(ridges,): lifted size of the direction that the metric stretches most."""
    tails: list[float]
    """(ridges,): variance of ||P a||^2 over its squared mean."""
    gaps: list[float]
    """(hypotheses,): F(base) - F* in the quadratic model."""
    chances: list[tuple[Array, Array] | None]
    """(hypotheses,): class chances at the optimum and their weights; None for losses without classes."""


def assumed_worlds(
    shape: Geometry, start: Start, *, survey_rows: int, outputs: int = 1, ridges: tuple[float, ...] = RIDGES
) -> Worlds:
    """Return the worlds of a released survey.

    Parameters
    ----------
    shape, start, survey_rows
        What the survey shows, and the rows that it took.
    outputs
        Scores per row.
    ridges
        Ridges of the metric to try, in units of the noise's spectral size.
    """
    copies = max(outputs - 1, 1)
    thin = np.arange(shape.p)
    if shape.p > MOST:
        thin = np.unique(np.round(np.linspace(0, shape.p - 1, MOST)).astype(int))
    k, each = len(thin), shape.p / len(thin)
    seen_at = np.linspace(0, shape.p - 1, max(len(start.gradient_variance), 1))
    variance = np.interp(thin, seen_at, start.gradient_variance) if len(start.gradient_variance) else np.full(k, 1e-12)
    ridges = ridges if shape.hidden == 0 else HIDDEN_RIDGES
    spectrum = assumed_spectrum(shape)
    truth = spectrum[thin]
    simulated = simulated_survey(truth, shape, each)
    gains = ridge_gains(simulated.shape, ridges)
    inside = simulated.shape.sizes * gains**2
    hypotheses, again, factors, gaps, chances = _hypotheses(shape, start), [], [], [], []
    share = HIDDEN if shape.intercept else HIDDEN_CENTRED
    assumed = AssumedSignal(shape, spectrum, start, share, survey_rows)
    for alpha, _ in hypotheses:
        signal, there, *arrays = assumed.at(alpha)
        moved, left = (part[thin] for part in arrays)
        low = float(np.clip(there / start.base_curvature, 0.35, 0.9))
        high = min(start.steepest, max(1.25 * there, 1.1 * math.sqrt(there * start.steepest)))
        factors.append([there * low, there, max(high, there)])
        again.append(resurvey(simulated, truth, moved + left, variance, survey_rows, there, each))
        chances.append(start.chances_at(signal))
        gaps.append(0.5 * there * float(np.sum(truth * (moved + left))) * each)
    sizes, counts, missing, moved_far = _in_metrics(truth, simulated.shape.directions, gains, again)
    lifted = each * gains**2 @ floored(simulated.shape, STRETCHED)
    unit = shape.noise * float(np.mean(shape.scale**2)) * math.sqrt(each)
    factor = np.array(factors)[:, :, None]  # (hypotheses, factors, 1)
    relative = factor[:, 1:2] / factor
    return Worlds(
        ridges,
        curvature=factor * sizes[:, None, None],
        distance=copies
        * each
        * (relative**2 * missing[:, :, None] + ((relative - 1) ** 2 + BENT**2) * moved_far[:, :, None]),
        count=counts * each * copies,
        weights=np.array([weight for _, weight in hypotheses]),
        top=np.max(inside, axis=1),
        energy=np.sum(inside, axis=1) * each,
        lifted_energy=lifted,
        true_energy=sizes @ counts * each,
        energy_doubt=unit * np.linalg.norm(gains**2, axis=1) / lifted,
        least=1 / np.max(gains, axis=1) ** 2,
        tails=_tails(inside, shape, each),
        gaps=gaps,
        chances=chances,
    )


def _hypotheses(shape: Geometry, start: Start) -> list[tuple[float, float]]:
    """Each alpha that the release does not contradict, with its weight."""
    if not shape.intercept:
        return [(1.0, 1.0)]
    leaning = start.leaning if np.all(np.isfinite(start.leaning)) else np.ones(len(LEANINGS))
    likely = np.where(leaning < UNLIKELY * np.max(leaning), 0.0, leaning)
    weights = (likely / np.sum(likely)).tolist()
    return [(alpha, weight) for alpha, weight in zip(LEANINGS, weights, strict=True) if weight > 0]


def _in_metrics(
    truth: Array, directions: Array, gains: Array, again: list[Resurvey]
) -> tuple[Array, Array, Array, Array]:
    """Return sizes (ridges, groups), counts (groups,) and squared distances (ridges, hypotheses, groups) twice.

    They are those of the truth's Hessian in each metric: with V the simulated directions and g the gains, that of
    diag(g) V' diag(truth) V diag(g), whose eigenvectors are in the coordinates of V.
    """
    inner = (directions.T * truth) @ directions
    if len(truth) < _IN_THREADS:
        return _in_metric(inner, directions, again, gains)
    found: dict[int, tuple[Array, Array, Array, Array]] = {}

    def one(k: int) -> None:
        found[k] = _in_metric(inner, directions, again, gains[k : k + 1])

    for_each(one, range(len(gains)))
    sizes, counts, missing, moved = zip(*(found[k] for k in range(len(gains))), strict=True)
    return np.concatenate(sizes), counts[0], np.concatenate(missing), np.concatenate(moved)


def _in_metric(
    inner: Array, directions: Array, again: list[Resurvey], gains: Array
) -> tuple[Array, Array, Array, Array]:
    with np.errstate(all="ignore"):  # that of the caller does not hold in a thread
        values, vectors = np.linalg.eigh(gains[:, :, None] * inner * gains[:, None])
        turned = vectors.swapaxes(1, 2) / gains[:, None]
        whole = turned @ directions.T
        found = [one.energies(turned, directions, whole) for one in again]
        missing, moved = (np.stack(part, axis=1) for part in zip(*found, strict=True))
        return _grouped(np.maximum(values, 0.0), missing, moved)


def _grouped(values: Array, missing: Array, moved: Array) -> tuple[Array, Array, Array, Array]:
    """Ascending sizes in groups: the ``SINGLE`` largest alone, the others by ``GROUP``.

    Energies keep size times distance.
    """
    k = values.shape[1]
    edges = np.array([*range(0, k - SINGLE, GROUP), *range(max(k - SINGLE, 0), k)])
    counts = np.diff(edges, append=k)
    sizes = np.add.reduceat(values, edges, axis=1) / counts
    safe = np.maximum(sizes, 1e-300)[:, None]
    far, near = (np.add.reduceat(values[:, None] * part, edges, axis=2) / safe for part in (missing, moved))
    return sizes, counts, far, near


def _tails(inside: Array, shape: Geometry, each: float) -> list[float]:
    """Variance of ||P a||^2 over its squared mean, per ridge; the intercept, the largest direction, does not vary."""
    varying = inside[:, :-1] if shape.intercept else inside
    whole = np.maximum(each * np.sum(inside, axis=1) ** 2, 1e-300)
    return [float(tail) for tail in TAIL * np.sum(varying**2, axis=1) / whole]
