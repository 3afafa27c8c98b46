"""Objective perturbation in the geometry of a released survey: metric, longest row and ridge of least predicted excess.

In a world of survey_worlds.py, with curvatures h_j and squared distances d_j of the start in the metric of a ridge r,
rows b = P a shortened to F and n of them, the minimiser of methods/objective_perturbation.py has the expected excess

    1/2 sum_j h_j ((d_j lam^2 + sigma(lam)^2 + n h_j g) / (n h_j + lam)^2 + e^2)  +  gap s(F)^2,

g the disagreement of the gradients, e the noise that covers the solver's error. Rows longer than F are shortened by
f = F / ||b||, which lets the minimiser grow by the share s = E[f (1 - f) ||b||^2] / E[f^2 ||b||^2]: exact for the
squared loss where the length of a row says nothing of its direction. ||b||^2 is taken as a gamma variable
(clip_cost.py), cut at the length that no row of norm 1 exceeds in the metric; no F is beyond it.

E ||b||^2 is known up to the noise of the survey: its deviation is s ||P'P||, Frobenius, and the directions that the
metric stretches most are those that noise shortened. For the losses in ``DOUBTED`` s(F)^2 is the mean over a lognormal
law with that deviation, about the value that the simulated survey of survey_worlds.py has behind what it shows.

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
from dpsco.methods.surveyed import INTERCEPT
from dpsco.planning.clip_cost import gamma_quantiles
from dpsco.planning.geometry import STRETCHED, Geometry, Metric, floored, metric
from dpsco.planning.prediction import Prediction
from dpsco.planning.rounds_in_geometry import SANE, InMetric, map_of, start_of
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.survey_start import Start
from dpsco.planning.survey_worlds import Worlds, assumed_worlds
from dpsco.problem import Huber, L2Ball, Problem, Squared
from dpsco.query import Array

__all__ = ["MappedObjective", "objective_in"]

LONGEST = (2.0, 1.7, 1.4, 1.2, 1.1, 1.0, 0.85, 0.7)
"""F over sqrt(E ||P a||^2), before the cut."""
REACH = 30.0
"""Radius in the coordinates of u, in large scores: those of usual rows spread by the length of u. The noise that covers
the solver's rounding grows with it."""
METRICS = (0.01, 0.1, 0.4, 2.0, 8.0)
"""Ridges of the metric. Rounds need larger ones: a minimiser is exact along stretched directions too."""
CAUTION = 0.05
"""What a smaller ridge may cost. A survey does not see columns that are much smaller than its noise, and no prediction
knows what they hold: a ridge that is too large loses it whole."""
DOUBTED = (Squared, Huber)
"""Losses for which the error of E ||P a||^2 counts. Their excess may be far below F(0) - F*, so that rows that are cut
too short cost more than all else. With classes it is not, and longer rows, which need a larger ridge, cost more."""
_RIDGES = RIDGES[::2]
_NODES, _MASS = np.polynomial.hermite_e.hermegauss(5)
_MASS = _MASS / np.sum(_MASS)


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
    constant = INTERCEPT if problem.intercept else 0.0
    doubted = isinstance(problem.loss, DOUBTED)
    metrics = [metric(shape, ridge) for ridge in worlds.ridges]
    energies = [_energy(shape, one, doubted) for one in metrics]
    most = [_most(shape, one, constant) / np.sqrt(energy) for one, energy in zip(metrics, energies, strict=True)]
    lengths = _Lengths(worlds, most, doubted)
    r, f, k, parts = _least(worlds, lengths, form, rows, budget, scale.disagreement, columns, outputs)
    in_metric = metrics[r]
    row_map = map_of(problem, shape, in_metric)
    longest = float(lengths.tried(r)[f] * np.sqrt(energies[r]))
    if (
        not np.any(shape.sizes > 0)
        or not all(map(math.isfinite, parts))
        or not all(1 / SANE < size < SANE for size in (longest, row_map.norm))
    ):
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


def _energy(shape: Geometry, form: Metric, doubted: bool) -> Array:
    """Return E ||P a||^2, as the survey shows it or, ``doubted``, as the metric counts on it: no direction is empty."""
    sizes = floored(shape, STRETCHED) if doubted else shape.sizes
    return np.sum(sizes * form.gains**2) + (shape.p - len(sizes)) * shape.rest * np.square(form.rest)


def _most(shape: Geometry, form: Metric, constant: float) -> Array:
    """Return what no mapped row exceeds.

    A row is (a, c) with ||a|| <= 1, and ||P (a, c)||^2 <= ||P||^2 + 2 c ||P'P e|| + c^2 ||P e||^2, e the constant's
    direction.
    """
    last = np.zeros(shape.p)
    last[-1] = constant
    turned = form.backward(form.forward(last))
    widest = max(np.max(form.gains, initial=0.0), form.rest) * np.max(shape.scale)
    return np.sqrt(np.square(widest) + 2 * np.linalg.norm(turned[:-1]) + constant * turned[-1])


class _Lengths:
    """Lengths that rows may be shortened to, and what that costs, in units of sqrt(E ||P a||^2) as ``_energy`` has it.

    Parameters
    ----------
    worlds
        Where the plan may find itself.
    most
        What no row exceeds, for each ridge of the metric.
    doubted
        Whether E ||P a||^2 may be another: its mean in these worlds, with the deviation of its release.
    """

    def __init__(self, worlds: Worlds, most: list[Array], doubted: bool) -> None:
        self._most, self._tails = [float(one) for one in most], worlds.tails
        self.energy = (worlds.lifted_energy if doubted else worlds.energy).tolist()
        self._means = np.ones((len(most), len(_NODES)))
        if doubted:
            known = worlds.true_energy / worlds.lifted_energy
            self._means = known[:, None] * np.exp(worlds.energy_doubt[:, None] * _NODES)

    def tried(self, r: int) -> list[float]:
        """Return the candidates at ridge r."""
        return [min(length, self._most[r]) for length in LONGEST]

    def growth(self, r: int, longest: float) -> float:
        """Return E s^2 of the module docstring."""
        roots = np.sqrt(self._means[r][:, None] * gamma_quantiles(self._tails[r]))
        length: Array = np.minimum(roots, self._most[r])  # (nodes, quantiles)
        f = np.minimum(1.0, longest / length)
        s = np.sum(f * (1 - f) * length**2, axis=1) / np.sum((f * length) ** 2, axis=1)
        return float(_MASS @ s**2)


def _least(
    worlds: Worlds,
    lengths: _Lengths,
    form: Objective,
    n: int,
    budget: Budget,
    disagreement: float,
    columns: int,
    outputs: int,
) -> tuple[int, int, int, tuple[float, float, float]]:
    """Return the places of ridge of the metric, longest row and ridge, and the parts of the expected excess.

    ``form`` is that of rows of norm 1.
    """
    noise = rough_noise(form, form.spread * _RIDGES, budget)
    usable = np.isfinite(noise)
    ridges, merits, totals = [], [], []
    for r, energy in enumerate(lengths.energy):
        tried = lengths.tried(r)[: None if budget.private else 1]
        scaled = [_of_length(form, length * math.sqrt(energy)) for length in tried]
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
        grown = [lengths.growth(r, length) for length in tried]
        left = left + np.multiply.outer(grown, worlds.gaps)[:, None, :, None]
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
