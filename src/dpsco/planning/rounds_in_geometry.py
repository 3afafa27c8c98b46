"""Rounds on mapped rows, planned from a geometry: behind a survey, or with a geometry that was public before the run.

    geometry, what is known of the way -> metric P, T, B, clip, beta, mechanism, start

``rounds_choice`` plans for Algorithm 1. Other methods take the same metric and clip and every round that is allowed:
the geometry is what is compared. beta of the unaccelerated variant is that of Algorithm 1. DP-SGD and DP-FTRL take the
step size of least predicted excess on the quadratic with the curvatures h_i that the geometry shows, per direction

    h/2 [ (mean over the last half of (1 - eta h)^t)^2 2 gap / (k h)  +  q sum_t (weight of gradient t in that mean)^2 ]

with k directions and q the variance of a mean gradient by noise and sampling; DP-FTRL's noise is taken as independent.

Guarantee: public or released numbers decide, and nothing here changes the budget.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.diagonal_map import diagonal_map
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.squares import THETA
from dpsco.errors import InvalidArgument
from dpsco.methods import DPFTRL, DPSGD, AcceleratedSRGD, InGeometry, Method, UnacceleratedSRGD
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.methods.surveyed import INTERCEPT, LATER, refusal
from dpsco.parallel import one_blas_thread
from dpsco.planning.geometry import Geometry, Metric, metric
from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.survey_bootstrap import SIGNAL
from dpsco.planning.survey_start import Start
from dpsco.planning.surveyed_planner import MOST_ROUNDS, RoundsChoice, rounds_choice
from dpsco.problem import Box, Logistic, Problem, Softmax
from dpsco.query import Array

__all__ = ["SANE", "InMetric", "fitting", "geometry_plan", "map_of", "rounds_in", "start_of"]

_LEAST_RATIO = 1e-4
_TINY = 1e-12
SANE = 1e12
"""Clip, beta and the length of mapped rows are of order 1 to p: whatever is beyond this is not a plan."""
_USUAL, _QUIET = 4.0, 0.1
"""Radius of squares over the usual length of a contribution, at least; the relative noise in a square up to which it is
larger, so that fewer contributions are shortened."""
_FAINT, _SLACK = 0.03, 2.0
"""Privacy noise over sampling error up to which the clip of a run with intervals is widened, and the clip beyond which
no contribution of a bounded slope is shortened: a gradient and what the iterates move, over the longest gradient."""
_UNKNOWN = 1.0
"""Variance of a gradient entry that says nothing: rows have norm 1, slopes about 1."""


class InMetric(NamedTuple):
    """Rounds on mapped rows."""

    map: RowMap
    later: Method
    prediction: Prediction | None
    start: Array
    """u_0; 0 where the start is not finite."""


def rounds_in(
    problem: Problem,
    rows: int,
    budget: Budget,
    shape: Geometry,
    start: Start,
    *,
    survey_rows: int,
    most: int,
    later: str = AcceleratedSRGD.name,
    squared_slope: float = 1.0,
) -> InMetric | None:
    """Plan rounds of the method ``later`` on ``rows`` rows, at most ``most`` of them; None if the geometry shows none.

    Parameters
    ----------
    problem, rows, budget
        The problem in its own parameters, the rows that are left, and their budget.
    shape, start, survey_rows
        The geometry, what is known of the way to the optimum, and the rows behind that.
    most, later
        Largest number of rounds, and the name of their method.
    squared_slope
        Mean square of the loss's derivative near the optimum, as far as it is known: it sets the radius of squares.
    """
    columns, outputs, scale = problem.dimension + problem.intercept, problem.loss.outputs, loss_scale(problem)
    choice = rounds_choice(
        shape,
        start,
        survey_rows=survey_rows,
        rows=rows,
        mu=budget.mu_per_record,
        rounds=most,
        outputs=outputs,
        slope=1.0 if isinstance(problem.loss, (Logistic, Softmax)) else scale.slope,
        disagreement=scale.disagreement,
        clips_apart=budget.clips_apart,
    )
    form = metric(shape, choice.ridge)
    row_map = map_of(problem, shape, form)
    longest = row_map.norm
    if not math.isfinite(choice.predicted) or not all(
        1 / SANE < value < SANE for value in (choice.clip, choice.beta, longest)
    ):
        return None
    if later == MeasuredSRGD.name:
        choice = _wider(choice, _SLACK * longest * scale.slope)
    u0 = start_of(form, start.x.reshape(columns, outputs))
    ours = later in (AcceleratedSRGD.name, MeasuredSRGD.name)
    prediction = Prediction(choice.optimisation, choice.noise, choice.sampling) if ours else None
    T = min(most, rows)
    step = 1.0 / choice.beta
    if later in (DPSGD.name, DPFTRL.name):
        step = _step_size(choice, T, rows // T, budget, gap=SIGNAL * start.gap, copies=max(outputs - 1, 1))
    method = _method(later, choice, T, step, budget)
    if later == MeasuredSRGD.name and isinstance(method, AcceleratedSRGD):
        usual = math.sqrt(squared_slope * float(np.sum(shape.sizes * form.gains**2)))
        quiet = _QUIET * THETA * budget.mu_per_record * rows / (budget.clips_apart * columns * outputs)
        wide = usual * max(_USUAL, math.sqrt(quiet))
        radius = wide if 0 < wide < choice.clip else choice.clip
        method = MeasuredSRGD(**vars(method) | {"clip": choice.clip * math.hypot(1.0, THETA), "radius": radius})
    return InMetric(row_map, method, prediction, u0)


def _wider(choice: RoundsChoice, most: float) -> RoundsChoice:
    """Widen the clip as far as noise stays faint: shortened rows move the minimum, and no interval counts that.

    With many rows the clip of least excess is too narrow for intervals. Its bias is far below the noise in the loss,
    but does not fall with n, and standard errors do.
    """
    if choice.noise <= 0 or choice.clip >= most:
        return choice
    factor = min(max(math.sqrt(_FAINT * choice.sampling / choice.noise), 1.0), most / choice.clip)
    return dataclasses.replace(choice, clip=factor * choice.clip, noise=factor**2 * choice.noise)


def map_of(problem: Problem, shape: Geometry, form: Metric) -> RowMap:
    """Return the map of rows into a metric; a diagonal where it is one, in factors where these are cheaper."""
    constant = INTERCEPT if problem.intercept else 0.0
    if shape.axes:
        return diagonal_map(shape.scale * form.gains, problem.feature_norm, constant)
    if not len(shape.sizes) and np.ptp(shape.scale) > 0:
        return diagonal_map(shape.scale * form.rest, problem.feature_norm, constant)
    if not _in_factors(shape):
        whole = len(form.gains) == shape.p and bool(np.all(shape.scale == 1))
        made_of = (form.gains, shape.directions) if whole else None
        return RowMap(form.matrix, problem.feature_norm, constant, made_of=made_of)
    of, none = shape.scale[0], np.zeros((shape.p, 0))
    factors = (shape.directions, of * form.gains, float(of * form.rest))
    return LowRankMap(none, problem.feature_norm, constant, *factors)


def start_of(form: Metric, x: Array) -> Array:
    """Return u_0 of a start x (p, K); 0 where it is not finite."""
    u0 = np.asarray(form.start(x).T.ravel())
    return u0 if np.all(np.isfinite(u0)) else np.zeros(x.size)


def _in_factors(shape: Geometry) -> bool:
    """Whether so few directions stand out that a map in factors is cheaper."""
    return bool(np.ptp(shape.scale) == 0) and 4 * len(shape.sizes) <= shape.p


def _step_size(choice: RoundsChoice, rounds: int, batch: int, budget: Budget, *, gap: float, copies: int) -> float:
    """Return the step size of least predicted excess: the formula of the module."""
    h = choice.ratios * choice.beta
    noise = (budget.clips_apart * choice.clip / budget.mu_per_record / batch) ** 2 if budget.private else 0.0
    steps = np.geomspace(0.02, 1.0, 18) / choice.beta
    age = np.arange(rounds + 1)
    kept = np.abs(1.0 - steps[:, None, None] * h[:, None]) ** age  # (steps, directions, ages)
    tail = range(rounds // 2 + 1, rounds + 1)
    bias = np.mean([kept[:, :, t] for t in tail], axis=0)
    weights = [np.sum([kept[:, :, t - 1 - s] for t in tail if t > s], axis=0) / len(tail) for s in range(rounds)]
    spread = steps[:, None] ** 2 * np.sum(np.square(weights), axis=0)
    share = 2 * gap / (len(h) * np.maximum(h, 1e-12))
    total = np.sum(0.5 * h * (bias**2 * share + copies * (noise + h / batch) * spread), axis=1)
    return float(steps[int(np.argmin(total))])


def _method(name: str, choice: RoundsChoice, most: int, step: float, budget: Budget) -> Method:
    clip = choice.clip if budget.private else math.inf
    if name == UnacceleratedSRGD.name:
        return UnacceleratedSRGD(rounds=most, clip=clip, beta=choice.beta)
    if name == DPSGD.name:
        return DPSGD(rounds=most, clip=clip, step_size=step)
    if name == DPFTRL.name:
        return DPFTRL(rounds=most, clip=clip, step_size=step)
    return AcceleratedSRGD(
        rounds=choice.rounds,
        beta=choice.beta,
        clip=clip,
        z_step=choice.z_step,
        mechanism="workload",
        prior=tuple(np.clip(choice.ratios, _LEAST_RATIO, 1.0).tolist()),
    )


def geometry_plan(
    problem: Problem, n: int, budget: Budget, shape: Geometry, *, rounds: int | None, later: str = AcceleratedSRGD.name
) -> Plan:
    """Plan a run in a geometry that is public: no rows, no round and no budget go to a survey.

    Parameters
    ----------
    problem, n, budget
        As in ``dpsco.plan``.
    shape : Geometry
        Of an earlier result, or of public rows.
    rounds : int, optional
        The most rounds.
    later : str
        The method of the rounds.

    Raises
    ------
    InvalidArgument
        If the geometry is not of such rows, or not private although the run is to be, or no map is possible.
    """
    columns, boxed = problem.dimension + problem.intercept, isinstance(problem.domain, Box)
    kind = "diagonal" if boxed or shape.axes else "low-rank" if _in_factors(shape) else "full"
    refused = refusal(problem, kind)
    if later not in LATER:
        refused = f"method={later!r} has no rounds of clipped sums of fresh rows"
    if not refused and (shape.p != columns or shape.intercept != problem.intercept):
        words = {True: "an", False: "no"}
        refused = f"it has {shape.p} columns with {words[shape.intercept]} intercept, the problem {columns}"
    if not refused and not math.isclose(shape.feature_norm, problem.feature_norm, rel_tol=1e-9):
        refused = f"it has feature_norm={shape.feature_norm:g}, the problem {problem.feature_norm:g}"
    if refused:
        raise InvalidArgument(f"The geometry does not fit: {refused}. Plan without geometry=.")
    shape = fitting(problem, shape)
    most = MOST_ROUNDS if rounds is None else rounds
    with one_blas_thread(), np.errstate(all="ignore"):
        made = rounds_in(
            problem, n, budget, shape, _ignorant(problem, shape), survey_rows=n, most=min(most, n), later=later
        )
    if made is None:
        raise InvalidArgument("The geometry shows nothing usable: its sizes are extreme. Plan without geometry=.")
    method = InGeometry(map=made.map, later=made.later, source=shape.source)
    return Plan(problem, n, budget, method, rule="geometry", prediction=made.prediction)


def fitting(problem: Problem, shape: Geometry) -> Geometry:
    """Return the geometry that the domain allows: sizes of columns alone for a box, which scaled columns keep a box."""
    if shape.axes or not isinstance(problem.domain, Box):
        return shape
    second = shape.moment_diagonal
    lifted = second + shape.noise + _TINY
    scale, p = 1 / np.sqrt(lifted), shape.p
    return dataclasses.replace(
        shape,
        scale=scale,
        directions=np.zeros((p, 0)),
        sizes=np.zeros(0),
        rest=float(np.mean(second / lifted)),
        observed=np.zeros(0),
        radius=shape.noise * float(np.mean(scale**2)),
    )


def _ignorant(problem: Problem, shape: Geometry) -> Start:
    """Return a start at zero, with nothing known of the way."""
    scale, outputs, k = loss_scale(problem), problem.loss.outputs, len(shape.sizes)
    gap = 2 * scale.gap / max(outputs - 1, 1)
    return Start(
        x=np.zeros((shape.p, outputs)),
        curvature=0.8 * scale.curvature,
        base_curvature=scale.curvature,
        steepest=scale.curvature,
        gap=gap,
        moved=np.zeros(k),
        left=np.full(k, 1e9),  # as far as the gap allows
        gradient_variance=np.full(k, _UNKNOWN),
    )
