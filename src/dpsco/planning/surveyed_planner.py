"""Planning in two stages: public numbers decide on the survey, the released survey decides on the rounds.

Stage one, ``survey_choice``: kind and rows of the survey from n, p, mu. The noise hides a typical direction, whose size
is rho^2 / p, when lambda = sqrt(2 p) rho^2 / (mu n_0) exceeds it. The survey takes the rows that bring their ratio to
0.05,

    n_0 = sqrt 2 p^1.5 / (0.05 mu),     within 5 % and 20 % of n      (0.6 and 15 % without an intercept).

There is no survey where one of all rows would have a ratio above ``HOPELESS``. Of more than 2,048 columns the
survey is diagonal, and takes ``WIDE_SHARE`` of the rows (axes_geometry.py, axes_worlds.py).

Stage two, ``rounds_choice``: a parametric bootstrap. The released survey gives a plausible truth: spectrum
(geometry.true_spectrum), curvature factor, distance of the optimum (survey_start), and how much signal the noise hides
(survey_bootstrap.py). Hidden signal follows xi^(1 - alpha), each alpha weighed by the likelihood of the released
gradient: alpha = 1 where small columns count as much as large ones, 0 where coefficients are alike. The survey is
simulated once more on that truth. Then the truth's Hessian in the simulated metric, and the distance of the simulated
start from the truth's optimum, are known exactly, errors of the directions included, and Algorithm 1's response
(response_curves.py) gives

    optimisation + privacy noise + sampling      for every ridge, T, z-step, beta and clip,

and clip_cost.py what the clip costs.

The spectrum, and so the simulated directions, are the same for every alpha: one eigendecomposition per ridge.

The least geometric mean over the hypotheses and three curvature factors wins: the expected c, c^2 / c_base (a stronger
signal flattens the loss further, and the optimum is farther by as much), and a larger one (rows whose scores stay near
0). The prediction is the mean over the hypotheses.

Guarantee: stage one is public, stage two post-processing; neither changes the budget mu.
Cost: stage two about 5 ms at p = 20, 20 ms from p = 160 on (survey_worlds.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsco.planning.axes_geometry import mean_size
from dpsco.planning.axes_worlds import axes_worlds
from dpsco.planning.clip_cost import clip_cost_tables, label_spread
from dpsco.planning.geometry import Geometry, Metric, metric
from dpsco.planning.response_curves import ResponseCurves, response_curves
from dpsco.planning.rounds_search import Candidates, search
from dpsco.planning.survey_start import Start
from dpsco.planning.survey_worlds import assumed_worlds
from dpsco.query import Array

__all__ = ["RoundsChoice", "SurveyChoice", "rounds_choice", "seen_sizes", "survey_choice"]

RATIO, RATIO_CENTRED, LEAST_SHARE, MOST_SHARE, MOST_SHARE_CENTRED = 0.05, 0.6, 0.05, 0.2, 0.15
OBJECTIVE_SHARE = 0.15
"""MOST_SHARE of a survey before an objective, whose minimiser is exact whatever the condition of its Hessian."""
INTERVAL_RATIO, INTERVAL_SHARE = 0.015, 0.25
"""RATIO and MOST_SHARE of a survey that is to give standard errors: these need the Hessian, not its order of size."""
HOPELESS = 9.0
"""Noise of a survey of all rows over a typical direction from which there is none."""
FEWEST_CENTRED = 2_500
"""Rows from which a survey without an intercept pays: standardised columns have less to gain from one."""
WIDE_SHARE = 0.08
"""Share of the rows that a diagonal survey of very many columns takes: shares from 0.03 to 0.2 do alike."""
WIDE_FROM = 4096
"""Columns from which "auto" takes one; up to here objective perturbation is a choice too, on rows at rest."""
WIDE_HOPELESS = 0.25
"""Noise in the mean square of a row, as the sum of those of its columns, over that square, from which "auto" takes
none: sqrt p / (mu n_0). In python -m benchmarks wide_survey regimes up to 0.18 gain, 0.37 and 0.56 do not matter."""
WIDEST_FULL = 2048
"""Largest p whose full moment is asked for: p^2 / 2 numbers cross the wire."""
MOST_ROUNDS = 14
CLIPS = (1.6, 1.4, 1.2, 1.0, 0.85, 0.7)
"""Clip over sqrt(E ||P a||^2) and slope."""
OTHER_COSTS = (0.0, 0.0, 0.0, 4e-4, 2.5e-3, 8e-3)
"""What these cost in units of F(base) - F*, for losses without class chances."""
BETAS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.1, 2.5, 3.0, 4.0, 6.0])
"""beta over c times the largest size in the metric."""
HORIZONS = (4, 5, 7, 9, 11, 13, 15)
"""Fewer only where no more are allowed: three rounds need a better beta than a survey gives."""
ROUND_COST = 0.01
MOST_PRIOR = WIDEST_FULL
"""Curvatures that a mechanism is fitted to, at most."""


@dataclass(frozen=True)
class SurveyChoice:
    """Stage one. ``kind`` None: no survey, the plain plan."""

    kind: str | None
    rows: int
    reason: str


@dataclass(frozen=True)
class RoundsChoice:
    """Stage two: everything the rounds need, and what is expected of them."""

    ridge: float
    rounds: int
    """Rounds after the survey."""
    z_step: str
    beta: float
    clip: float
    optimisation: float
    noise: float
    sampling: float
    ratios: Array
    """Curvatures over beta, ascending: the prior to fit the workload mechanism to."""

    @property
    def predicted(self) -> float:
        """Expected excess."""
        return self.optimisation + self.noise + self.sampling


def survey_choice(
    n: int,
    p: int,
    mu: float,
    rounds: int | None = None,
    *,
    clips_apart: float = 1.0,
    kind: str = "auto",
    centred: bool = False,
    objective: bool = False,
) -> SurveyChoice:
    """Stage one: is there a survey, of which kind, on how many rows.

    Parameters
    ----------
    n, p, mu
        Rows, columns and budget.
    rounds
        All adaptive rounds, the survey's included; None for up to ``MOST_ROUNDS``.
    clips_apart
        sqrt 2 for replace-one, 1 otherwise.
    kind
        "auto", the kind that is wanted, or "intervals": full, on as many rows as standard errors need.
    centred
        Whether the model has no intercept: rows are then taken to be standardised, and fewer are surveyed.
    objective
        Whether an objective follows in place of rounds.
    """
    if kind == "none" or (rounds is not None and rounds < 2):
        return SurveyChoice(None, 0, "a survey needs a second round")
    if math.isinf(mu):
        mu = 1e6
    aim, most = (RATIO_CENTRED, MOST_SHARE_CENTRED) if centred else (RATIO, MOST_SHARE)
    if objective:
        most = min(most, OBJECTIVE_SHARE)
    if kind == "intervals":
        aim, most = INTERVAL_RATIO, INTERVAL_SHARE
    noise = math.sqrt(2.0) * clips_apart * p**1.5 / mu
    wanted, ratio = noise / aim, noise / (most * n)
    if p > WIDEST_FULL and kind in ("auto", "diagonal"):
        return _wide_choice(n, p, mu, rounds, clips_apart, wanted=kind == "diagonal")
    if kind == "auto":
        kind = "full"
        if centred and n < FEWEST_CENTRED:
            return SurveyChoice(None, 0, f"n={n} rows without an intercept are too few to gain from one")
        if n < 50 * (rounds or MOST_ROUNDS) or noise > HOPELESS * n:
            return SurveyChoice(None, 0, f"the survey's noise would be {ratio:.0f} times a typical direction")
    rows = max(1, int(min(max(wanted, LEAST_SHARE * n), most * n)))
    kind = "full" if kind == "intervals" else kind
    return SurveyChoice(kind, rows, f"noise over a typical direction: {noise / rows:.2g}")


def _wide_choice(n: int, p: int, mu: float, rounds: int | None, clips_apart: float, *, wanted: bool) -> SurveyChoice:
    """Return a diagonal survey of very many columns; none where it is not ``wanted`` by name and does not pay."""
    rows = max(1, int(WIDE_SHARE * n))
    noise = math.sqrt(p) * clips_apart / (mu * rows)
    reason = f"noise in the mean square of a row: {noise:.2g} of it"
    if not wanted and (p <= WIDE_FROM or n < 50 * (rounds or MOST_ROUNDS) or noise > WIDE_HOPELESS):
        return SurveyChoice(None, 0, reason)
    return SurveyChoice("diagonal", rows, reason)


def rounds_choice(
    shape: Geometry,
    start: Start,
    *,
    survey_rows: int,
    rows: int,
    mu: float,
    rounds: int,
    outputs: int = 1,
    slope: float = 1.0,
    disagreement: float = 1.0,
    clips_apart: float = 1.0,
) -> RoundsChoice:
    """Stage two: the ridge, T, z-step, beta and clip of least predicted excess.

    Parameters
    ----------
    shape, start, survey_rows
        What the survey shows, and the rows that it took.
    rows, mu
        Rows left after the survey, and their budget.
    outputs, clips_apart
        Scores per row; clips by which neighbours' sums differ.
    rounds
        The most rounds after the survey.
    slope
        Largest derivative in the score that is worth keeping whole (1 for logistic and softmax).
    disagreement
        Covariance of the gradients over the Hessian near the optimum (1 for likelihoods).
    """
    c = start.curvature
    shares = np.array(CLIPS if math.isfinite(mu) else CLIPS[:1])
    seen_worlds = axes_worlds if shape.axes else assumed_worlds
    worlds = seen_worlds(shape, start, survey_rows=survey_rows, outputs=outputs)
    chances = [one for one in worlds.chances if one is not None]
    if chances:
        costs = clip_cost_tables([label_spread(*one) for one in chances], worlds.tails)
    else:
        costs = np.stack([np.array(OTHER_COSTS[: len(shares)]) * gap for gap in worlds.gaps], axis=1)
    horizons = tuple(t for t in HORIZONS if t <= min(rounds, rows)) or (min(rounds, rows),)
    runs = [(T, z_step) for T in horizons for z_step in ("listed", "halved")]
    batches = np.array([float(max(rows // T, 1)) for T, _ in runs])
    candidates = Candidates(
        curvature=worlds.curvature,
        distance=worlds.distance,
        count=worlds.count,
        disagreement=disagreement,
        weights=worlds.weights,
        tables=_tables(tuple(runs)),
        batches=batches,
        late=ROUND_COST * np.log2([T + 1.0 for T, _ in runs]),
        betas=BETAS[:, None] * (c * worlds.top),
        reach=clips_apart * slope * np.sqrt(worlds.energy) / (batches[:, None] * mu),
        shares=shares,
        costs=costs,
    )
    best = search(candidates)
    ridge, (T, z_step) = worlds.ridges[best.ridge], runs[best.run]
    share, ratio = float(shares[best.clip]), float(BETAS[best.beta])
    form = metric(shape, ridge)
    top, energy = seen_sizes(shape, form)
    beta = ratio * c * top
    inside, others = np.sort(shape.sizes * form.gains**2), min(shape.p - len(form.gains), 50)
    if len(inside) > MOST_PRIOR:
        inside = np.append(inside[np.round(np.linspace(0, shape.p - 1, MOST_PRIOR)).astype(int)], top)
    seen = np.sort(np.concatenate([inside, np.full(others, _rest_size(shape, form))]))
    return RoundsChoice(
        ridge,
        T,
        z_step,
        beta,
        share * slope * math.sqrt(energy),
        *best.parts,
        ratios=np.clip(c * seen / beta, 1e-4, 1.0),
    )


def seen_sizes(shape: Geometry, form: Metric) -> tuple[float, float]:
    """Largest size in the metric and E ||P a||^2, as the survey shows them."""
    inside, rest = shape.sizes * form.gains**2, _rest_size(shape, form)
    largest = max(rest, shape.hidden * form.rest**2, mean_size(shape, form.gains) if shape.axes else 0.0)
    return max(float(np.max(inside, initial=0.0)), largest), float(np.sum(inside)) + rest * (shape.p - len(form.gains))


def _rest_size(shape: Geometry, form: Metric) -> float:
    return shape.rest * form.rest**2 if shape.p > len(form.gains) else 0.0


@lru_cache(maxsize=16)
def _tables(runs: tuple[tuple[int, str], ...]) -> Array:
    """Return the response's curves of each run, the noise roughly that of a fitted workload mechanism."""
    tables = np.array([response_curves(*run) for run in runs])
    tables[:, ResponseCurves._fields.index("noise")] *= [[max(0.6, 1 - 0.045 * math.log2(T))] for T, _ in runs]
    return tables
