"""Planning in two stages: public numbers decide on the survey, the released survey decides on the rounds.

Stage one, ``survey_choice``: kind and rows of the survey from n, p, mu. The noise hides a typical direction, whose size
is rho^2 / p, when lambda = sqrt(2 p) rho^2 / (mu n_0) exceeds it. The survey takes the rows that bring their ratio to
0.05,

    n_0 = sqrt 2 p^1.5 / (0.05 mu),     within 5 % and 20 % of n      (0.6 and 15 % without an intercept).

There is no survey where one of all rows would have a ratio above ``HOPELESS``.

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
Cost: stage two about 5 ms at p = 20, 20 ms from p = ``MOST`` on: spectra are thinned to so many directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dpsco.parallel import available_threads, in_order
from dpsco.planning.clip_cost import clip_costs, label_spread
from dpsco.planning.geometry import Geometry, Metric, metric, ridge_gains
from dpsco.planning.response_curves import ResponseCurves, response_curves
from dpsco.planning.rounds_search import Candidates, search
from dpsco.planning.survey_bootstrap import Resurvey, assumed_signal, assumed_spectrum, resurvey, simulated_survey
from dpsco.planning.survey_start import LEANINGS, Start
from dpsco.query import Array

__all__ = ["RoundsChoice", "SurveyChoice", "rounds_choice", "survey_choice"]

RATIO, RATIO_CENTRED, LEAST_SHARE, MOST_SHARE, MOST_SHARE_CENTRED = 0.05, 0.6, 0.05, 0.2, 0.15
INTERVAL_RATIO, INTERVAL_SHARE = 0.015, 0.25
"""RATIO and MOST_SHARE of a survey that is to give standard errors: these need the Hessian, not its order of size."""
HOPELESS = 9.0
"""Noise of a survey of all rows over a typical direction from which there is none."""
FEWEST_CENTRED = 2_500
"""Rows from which a survey without an intercept pays: standardised columns have less to gain from one."""
WIDEST_FULL = 2048
"""Largest p whose full moment is asked for: p^2 / 2 numbers cross the wire."""
MOST_ROUNDS = 14
RIDGES = (0.1, 0.2, 0.4, 0.8, 2.0, 8.0)
HIDDEN_RIDGES = (0.8, 2.0, 8.0)
"""Where directions outside the known ones may be as large as the noise: less would stretch them beyond the others."""
CLIPS = (1.6, 1.4, 1.2, 1.0, 0.85, 0.7)
"""Clip over sqrt(E ||P a||^2) and slope."""
OTHER_COSTS = (0.0, 0.0, 0.0, 4e-4, 2.5e-3, 8e-3)
"""What these cost in units of F(base) - F*, for losses without class chances."""
TAIL = 4.0
"""Variance of ||P a||^2 over that of independent directions: 2 if Gaussian, more with rare 0/1 columns."""
BETAS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.1, 2.5, 3.0, 4.0, 6.0])
"""beta over c times the largest size in the metric."""
HORIZONS = (4, 5, 7, 9, 11, 13, 15)
"""Fewer only where no more are allowed: three rounds need a better beta than a survey gives."""
MOST = 160
_IN_THREADS = 64
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
ROUND_COST = 0.01


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
    """
    if kind == "none" or (rounds is not None and rounds < 2):
        return SurveyChoice(None, 0, "a survey needs a second round")
    if math.isinf(mu):
        mu = 1e6
    aim, most = (RATIO_CENTRED, MOST_SHARE_CENTRED) if centred else (RATIO, MOST_SHARE)
    if kind == "intervals":
        aim, most = INTERVAL_RATIO, INTERVAL_SHARE
    noise = math.sqrt(2.0) * clips_apart * p**1.5 / mu
    wanted, ratio = noise / aim, noise / (most * n)
    if kind == "auto":
        kind = "full" if p <= WIDEST_FULL else "diagonal"
        if centred and n < FEWEST_CENTRED:
            return SurveyChoice(None, 0, f"n={n} rows without an intercept are too few to gain from one")
        if n < 50 * (rounds or MOST_ROUNDS) or noise > HOPELESS * n:
            return SurveyChoice(None, 0, f"the survey's noise would be {ratio:.0f} times a typical direction")
    rows = int(min(max(wanted, LEAST_SHARE * n), most * n))
    kind = "full" if kind == "intervals" else kind
    return SurveyChoice(kind, rows, f"noise over a typical direction: {noise / rows:.2g}")


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
    copies = max(outputs - 1, 1)
    c = start.curvature
    thin = np.unique(np.round(np.linspace(0, shape.p - 1, min(shape.p, MOST))).astype(int))
    k, each = len(thin), shape.p / len(thin)
    seen_at = np.linspace(0, shape.p - 1, max(len(start.gradient_variance), 1))
    variance = np.interp(thin, seen_at, start.gradient_variance) if len(start.gradient_variance) else np.full(k, 1e-12)
    horizons = tuple(t for t in HORIZONS if t <= min(rounds, rows)) or (min(rounds, rows),)
    runs = [(T, z_step) for T in horizons for z_step in ("listed", "halved")]
    batches = np.array([float(max(rows // T, 1)) for T, _ in runs])
    shares = np.array(CLIPS if math.isfinite(mu) else CLIPS[:1])
    ridges = RIDGES if shape.hidden == 0 else HIDDEN_RIDGES
    spectrum = assumed_spectrum(shape)
    truth = spectrum[thin]
    simulated = simulated_survey(truth, shape, each)
    gains = ridge_gains(simulated.shape, ridges)
    inside = simulated.shape.sizes * gains**2
    top, energy = np.max(inside, axis=1), np.sum(inside, axis=1)
    tails = _tails(inside, shape, each)
    hypotheses, again, factors, costs = _hypotheses(shape, start), [], [], []
    for alpha, _ in hypotheses:
        share = HIDDEN if shape.intercept else HIDDEN_CENTRED
        signal, there, *arrays = assumed_signal(shape, spectrum, start, share, alpha, survey_rows)
        moved, left = (part[thin] for part in arrays)
        low = float(np.clip(there / start.base_curvature, 0.35, 0.9))
        high = min(start.steepest, max(1.25 * there, 1.1 * math.sqrt(there * start.steepest)))
        factors.append([there * low, there, max(high, there)])
        again.append(resurvey(simulated, truth, moved + left, variance, survey_rows, there, each))
        chances = start.chances_at(signal)
        if chances is None:
            gap = 0.5 * there * float(np.sum(truth * (moved + left))) * each
            costs.append(np.array(OTHER_COSTS[: len(shares)]) * gap)
        else:
            spread = label_spread(*chances)
            costs.append(np.array([clip_costs(spread, tail) for tail in tails]))
    sizes, counts, missing, moved_far = _in_metrics(truth, simulated.shape.directions, gains, again)
    factor = np.array(factors)[:, :, None]  # (hypotheses, factors, 1)
    relative = factor[:, 1:2] / factor
    candidates = Candidates(
        curvature=factor * sizes[:, None, None],
        distance=copies
        * each
        * (relative**2 * missing[:, :, None] + ((relative - 1) ** 2 + BENT**2) * moved_far[:, :, None]),
        count=counts * each * copies,
        disagreement=disagreement,
        weights=np.array([weight for _, weight in hypotheses]),
        tables=_tables(tuple(runs)),
        batches=batches,
        late=ROUND_COST * np.log2([T + 1.0 for T, _ in runs]),
        betas=BETAS[:, None] * (c * top),
        reach=clips_apart * slope * np.sqrt(energy * each) / (batches[:, None] * mu),
        shares=shares,
        costs=np.stack(costs, axis=1),
    )
    best = search(candidates)
    ridge, (T, z_step) = ridges[best.ridge], runs[best.run]
    share, ratio = float(shares[best.clip]), float(BETAS[best.beta])
    form = metric(shape, ridge)
    top, energy = _seen(shape, form)
    beta = ratio * c * top
    seen = np.sort(
        np.concatenate(
            [
                shape.sizes * form.gains**2,
                np.full(min(shape.p - len(form.gains), 50), _rest_size(shape, form)),
            ]
        )
    )
    return RoundsChoice(
        ridge,
        T,
        z_step,
        beta,
        share * slope * math.sqrt(energy),
        *best.parts,
        ratios=np.clip(c * seen / beta, 1e-4, 1.0),
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
    tasks = (partial(_in_metric, inner, directions, again, one[None]) for one in gains)
    sizes, counts, missing, moved = zip(*in_order(tasks, available_threads()), strict=True)
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
    edges = np.unique(np.concatenate([np.arange(0, max(k - SINGLE, 0), GROUP), np.arange(max(k - SINGLE, 0), k)]))
    counts = np.diff(np.append(edges, k))
    sizes = np.add.reduceat(values, edges, axis=1) / counts
    safe = np.maximum(sizes, 1e-300)[:, None]
    far, near = (np.add.reduceat(values[:, None] * part, edges, axis=2) / safe for part in (missing, moved))
    return sizes, counts, far, near


def _seen(shape: Geometry, form: Metric) -> tuple[float, float]:
    """Largest size in the metric and E ||P a||^2, as the survey shows them."""
    inside, rest = shape.sizes * form.gains**2, _rest_size(shape, form)
    largest = max(rest, shape.hidden * form.rest**2)
    return max(float(np.max(inside, initial=0.0)), largest), float(np.sum(inside)) + rest * (shape.p - len(form.gains))


def _tails(inside: Array, shape: Geometry, each: float) -> list[float]:
    """Variance of ||P a||^2 over its squared mean, per ridge; the intercept, the largest direction, does not vary."""
    varying = inside[:, :-1] if shape.intercept else inside
    whole = np.maximum(each * np.sum(inside, axis=1) ** 2, 1e-300)
    return [float(tail) for tail in TAIL * np.sum(varying**2, axis=1) / whole]


def _rest_size(shape: Geometry, form: Metric) -> float:
    return shape.rest * form.rest**2 if shape.p > len(form.gains) else 0.0


@lru_cache(maxsize=16)
def _tables(runs: tuple[tuple[int, str], ...]) -> Array:
    """Return the response's curves of each run, the noise roughly that of a fitted workload mechanism."""
    tables = np.array([response_curves(*run) for run in runs])
    tables[:, ResponseCurves._fields.index("noise")] *= [[max(0.6, 1 - 0.045 * math.log2(T))] for T, _ in runs]
    return tables
