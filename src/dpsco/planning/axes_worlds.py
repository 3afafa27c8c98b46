"""Truths that a diagonal survey of very many columns allows: ``Worlds`` whose groups are columns of like sizes.

No direction is known but the axes, so nothing turns: the Hessian in the metric has the entries c xi_j g_j^2, and the
optimum is at the squared distance left_j / g_j^2. One direction more is the mean row (``mean_size``), which stands out
where values are positive: it decides on beta.

Guarantee: post-processing of the released survey. Cost: O(p) per ridge and hypothesis.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.planning.axes_geometry import mean_size, size_groups
from dpsco.planning.geometry import STRETCHED, Geometry, floored, ridge_gains
from dpsco.planning.survey_bootstrap import AssumedSignal
from dpsco.planning.survey_start import Start
from dpsco.planning.survey_worlds import HIDDEN, HIDDEN_CENTRED, RIDGES, TAIL, Worlds

__all__ = ["axes_worlds"]

_RATIO = 1.3
_LEAST = 1e-12


def axes_worlds(shape: Geometry, start: Start, *, survey_rows: int, outputs: int = 1) -> Worlds:
    """Return the worlds of a released diagonal survey; parameters as for ``assumed_worlds``."""
    copies, truth = max(outputs - 1, 1), np.maximum(shape.sizes, _LEAST)
    gains = ridge_gains(shape, RIDGES)
    group, count = size_groups(truth, _RATIO)
    share = HIDDEN if shape.intercept else HIDDEN_CENTRED
    assumed = AssumedSignal(shape, truth, start, share, survey_rows)
    hypotheses, factors, gaps, chances, lefts = ((0.0, 1.0),), [], [], [], []
    for alpha, _ in hypotheses:
        signal, there, moved, left = assumed.at(alpha)
        low = float(np.clip(there / start.base_curvature, 0.35, 0.9))
        high = min(start.steepest, max(1.25 * there, 1.1 * math.sqrt(there * start.steepest)))
        factors.append([there * low, there, max(high, there)])
        lefts.append(moved + left)
        chances.append(start.chances_at(signal))
        gaps.append(0.5 * there * float(np.sum(truth * lefts[-1])))
    inside = truth * gains**2
    tops = np.array([mean_size(shape, one) for one in gains])
    # Size of a group: its mean. Distances keep size times distance. The last group is the mean row: its share of the
    # distance is that of a column.
    size = np.stack([np.bincount(group, one) / count for one in inside])
    far = np.stack(
        [[np.bincount(group, one * left / g**2) for left in lefts] for one, g in zip(inside, gains, strict=True)]
    )
    far = np.asarray(far / size[:, None])
    top = np.maximum(np.max(inside, axis=1), tops)
    size = np.column_stack([size, top])
    typical = np.sum(far * size[:, None, :-1], axis=2) / shape.p
    far = np.concatenate([far, (typical / top[:, None])[:, :, None]], axis=2)
    factor = np.array(factors)[:, :, None]
    relative = factor[:, 1:2] / factor
    energy, lifted = np.sum(inside, axis=1), gains**2 @ floored(shape, STRETCHED)
    unit = shape.noise * float(np.mean(shape.scale**2))
    varying = inside[:, :-1] if shape.intercept else inside
    return Worlds(
        RIDGES,
        curvature=factor * size[:, None, None],
        distance=copies * relative**2 * far[:, :, None],
        count=np.append(count, 1) * float(copies),
        weights=np.array([weight for _, weight in hypotheses]),
        top=top,
        energy=energy,
        lifted_energy=lifted,
        true_energy=energy,
        energy_doubt=unit * np.linalg.norm(gains**2, axis=1) / lifted,
        least=1 / np.max(gains, axis=1) ** 2,
        tails=[float(tail) for tail in TAIL * np.sum(varying**2, axis=1) / np.maximum(energy**2, 1e-300)],
        gaps=gaps,
        chances=chances,
    )
