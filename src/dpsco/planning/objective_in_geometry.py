"""Objective perturbation in the geometry of a released survey: metric, longest row and ridge of least predicted excess.

In a world of survey_worlds.py, with curvatures h_j and squared distances d_j of the start in the metric of a ridge r,
rows b = P a shortened to F and n of them, the minimiser of methods/objective_perturbation.py has the expected excess

    1/2 sum_j h_j ((d_j lam^2 + sigma(lam)^2 + n h_j g) / (n h_j + lam)^2 + e^2)  +  gap s(F)^2,

g the disagreement of the gradients, e the noise that covers the solver's error. Rows longer than F are shortened by
f = F / ||b||, which lets the minimiser grow by the share s = E[f (1 - f) ||b||^2] / E[f^2 ||b||^2]: exact for the
squared loss where the length of a row says nothing of its direction. ||b||^2 is taken as a gamma variable
(clip_cost.py).

Among all whose geometric mean over hypotheses and curvature factors (surveyed_planner.py) is within ``CAUTION`` of the
least, the one wins that holds back the smallest columns least: lam (s + r), s + r the size of the direction that the
metric stretches most.

Guarantee: post-processing of the released survey; the budget is that of the plan.
Cost: that of the worlds, and some ten milliseconds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.accounting.objective import RESIDUAL
from dpsco.errors import InvalidArgument
from dpsco.methods.objective_perturbation import RIDGES, Objective, ObjectivePerturbation, objective_of, rough_noise
from dpsco.planning.clip_cost import gamma_quantiles
from dpsco.planning.geometry import Geometry, metric
from dpsco.planning.prediction import Prediction
from dpsco.planning.rounds_in_geometry import SANE, InMetric, map_of, start_of
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.survey_start import Start
from dpsco.planning.survey_worlds import Worlds, assumed_worlds
from dpsco.planning.surveyed_planner import seen_sizes
from dpsco.problem import L2Ball, Problem
from dpsco.query import Array

__all__ = ["MappedObjective", "objective_in"]

LONGEST = (2.0, 1.7, 1.4, 1.2, 1.1, 1.0)
"""F over sqrt(E ||P a||^2)."""
REACH = 30.0
"""Radius in the coordinates of u, in large scores: those of usual rows spread by the length of u. The noise that covers
the solver's rounding grows with it."""
METRICS = (0.01, 0.1, 0.4, 2.0, 8.0)
"""Ridges of the metric. Rounds need larger ones: a minimiser is exact along stretched directions too."""
CAUTION = 0.05
"""What a smaller ridge may cost. A survey does not see columns that are much smaller than its noise, and no prediction
knows what they hold: a ridge that is too large loses it whole."""
_RIDGES = RIDGES[::2]


class MappedObjective(NamedTuple):
    """An objective on mapped rows: its problem in the coordinates of u, beside what ``InMetric`` has."""

    problem: Problem
    found: InMetric


def objective_in(
    problem: Problem, rows: int, budget: Budget, shape: Geometry, start: Start, *, survey_rows: int
) -> MappedObjective | None:
    """Plan objective perturbation on ``rows`` rows behind a survey; None if the geometry shows no sane one.

    Parameters
    ----------
    problem, rows, budget
        The problem in its own parameters, the rows that are left, and their budget.
    shape, start, survey_rows
        The geometry, what is known of the way to the optimum, and the rows behind that.
    """
    outputs, columns, scale = problem.loss.outputs, problem.dimension + problem.intercept, loss_scale(problem)
    worlds = assumed_worlds(shape, start, survey_rows=survey_rows, outputs=outputs, ridges=METRICS)
    ball = L2Ball(REACH * scale.score * math.sqrt(max(1.0, outputs / 2)))
    unit = Problem(problem.loss, ball, columns)
    usual = ObjectivePerturbation.planned(unit, rows, budget)
    form = objective_of(unit, usual.clip)
    r, f, k, parts = _least(worlds, form, rows, budget, scale.disagreement, columns, outputs)
    in_metric = metric(shape, worlds.ridges[r])
    row_map = map_of(problem, shape, in_metric)
    longest = min(LONGEST[f] * math.sqrt(seen_sizes(shape, in_metric)[1]), 2.0 * row_map.norm)
    if not all(map(math.isfinite, parts)) or not all(1 / SANE < size < SANE for size in (longest, row_map.norm)):
        return None
    mapped = Problem(problem.loss, ball, columns, feature_norm=longest)
    ridge = float(f"{form.spread * longest**2 * _RIDGES[k]:.4g}")
    try:
        method = ObjectivePerturbation.planned(mapped, rows, budget, ridge=ridge)
        method.schedule(mapped, rows, budget)
    except InvalidArgument:  # floating point cannot honour it
        return None
    u0 = start_of(in_metric, start.x.reshape(columns, outputs))
    return MappedObjective(mapped, InMetric(row_map, method, Prediction(*parts), u0))


def _least(
    worlds: Worlds, form: Objective, n: int, budget: Budget, disagreement: float, columns: int, outputs: int
) -> tuple[int, int, int, tuple[float, float, float]]:
    """Return the places of ridge of the metric, longest row and ridge, and the parts of the expected excess.

    ``form`` is that of rows of norm 1.
    """
    lengths = np.array(LONGEST if budget.private else LONGEST[:1])
    noise = rough_noise(form, form.spread * _RIDGES, budget)
    usable = np.isfinite(noise)
    ridges, merits, totals = [], [], []
    for r, (energy, tail) in enumerate(zip(worlds.energy.tolist(), worlds.tails, strict=True)):
        scaled = [_of_length(form, float(length) * math.sqrt(energy)) for length in lengths]
        lam = np.array([one.spread * _RIDGES for one in scaled])  # (lengths, ridges)
        sigma = np.array([one.lipschitz * noise for one in scaled])
        finish = np.array([_finish(*each, n, columns, outputs) for each in zip(scaled, lam, sigma, strict=True)])
        ridges.append(lam)
        lam, tilts, finish = (part[..., None, None, None] for part in (lam, sigma**2, finish**2))
        h, count = worlds.curvature[r], worlds.count
        under = 0.5 * h / (n * h + lam) ** 2  # (lengths, ridges, hypotheses, factors, groups)
        left, tilted, sampled = (
            np.sum(under * part, axis=-1)
            for part in (worlds.distance[r] * lam**2, count * tilts, count * n * h * disagreement)
        )
        tilted = tilted + np.sum(0.5 * h * count * finish, axis=-1)
        grown = np.array([_grown(float(length), tail) for length in lengths])
        left = left + np.multiply.outer(grown**2, np.array(worlds.gaps))[:, None, :, None]
        merits.append(np.mean(np.log(left + tilted + sampled), axis=-1) @ worlds.weights)
        totals.append(np.stack([left, tilted, sampled])[..., h.shape[1] // 2] @ worlds.weights)
    merit = np.where(np.isfinite(merits) & usable, merits, math.inf)
    allowed = merit <= np.min(merit) + math.log1p(CAUTION)
    held = np.where(allowed, np.array(ridges) * worlds.least[:, None, None], math.inf)
    r, f, k = (int(place) for place in np.unravel_index(int(np.argmin(held)), held.shape))
    left, tilted, sampled = (float(part) for part in totals[r][:, f, k])
    return r, f, k, (left, tilted, sampled)


def _of_length(form: Objective, longest: float) -> Objective:
    """Return the sizes of rows of this norm; ``form`` is that of rows of norm 1."""
    return dataclasses.replace(
        form,
        lipschitz=form.lipschitz * longest,
        smoothness=form.smoothness * longest**2,
        spread=form.spread * longest**2,
    )


def _finish(form: Objective, ridges: Array, sigma: Array, n: int, columns: int, outputs: int) -> Array:
    """Return the deviation of the noise that covers the solver's error, for each ridge."""
    tau = form.tolerance(n, ridges, sigma, columns, columns * outputs) / ridges
    return np.asarray(2 * tau * sigma / (RESIDUAL * form.lipschitz))


def _grown(longest: float, tail: float) -> float:
    """Return s of the module docstring, for rows of mean square 1."""
    squares = gamma_quantiles(tail)
    f: Array = np.minimum(1.0, longest / np.sqrt(squares))
    return float(np.sum(f * (1 - f) * squares) / np.sum(f * f * squares))
