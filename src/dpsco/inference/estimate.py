"""The covariance of a surveyed run's model: the linear response of its final iterate to everything that is random.

In the eigenbasis of the Hessian's form, with q_j = level g_j / beta and algorithm_1's response r and v,

    y_T - x* = r(q_j) (x_0 - x*) + sum_t W_jt (sampling_t + noise_t),      W_jt = sum_{i >= t} v_i(q_j) / beta

    sampling      W_i W_j' times kappa g_i / B for i = j, plus what rows disagree about away from the minimiser
    privacy       W_j' noise W_j: exact, the mechanism's own covariance in isotropic coordinates
    optimisation  r / (1 - r) (x_0 - y_T): what the rounds left of the distance from the start; a shift, not a variance

Levels and kappas are averaged by their weights (scatter.py). The spread of the average gives the degrees of freedom of
Student's distribution for intervals.

Guarantee: post-processing of released values; no budget.
Cost: one eigendecomposition, O(p^3), and the likelihood of scatter.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsco.algorithm_1 import response
from dpsco.errors import IntervalError
from dpsco.inference.curvature import Curvature, curvature
from dpsco.inference.doubts import Signs, notes, refuse, refuse_plan
from dpsco.inference.evidence import Evidence
from dpsco.inference.intervals import Inference
from dpsco.inference.measured import Measured, measure
from dpsco.inference.moment import cleaned_moment
from dpsco.inference.prior import prior_of
from dpsco.inference.scatter import Directions, Scatter, scatter
from dpsco.methods import AcceleratedSRGD, Surveyed
from dpsco.parallel import one_blas_thread
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.problem import L2Ball
from dpsco.query import Array

__all__ = ["infer"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(7)
_MASS = _MASS / np.sum(_MASS)
_LEAST_LEFT = 0.1
"""1 - r is at least this in the estimate of what the rounds left."""


class _Basis(NamedTuple):
    vectors: Array
    """(p, p): directions of the features, in u."""
    classes: Array
    """(K, k): directions of the scores."""
    back: Array
    """(p, p): parameters of each direction."""
    spread: Array
    """(p, p): the rows' second moment between directions."""
    scattering: Array
    """(p, p): the gradients' covariance between directions, over kappa and the weight of a direction of the scores."""


def infer(evidence: Evidence | None) -> Inference:
    """Compute standard errors and intervals of a run, or a refusal with its reason.

    Parameters
    ----------
    evidence : Evidence or None
        What a surveyed run released; None for a run without a survey.

    Raises
    ------
    IntervalError
        If the released values do not support intervals.
    """
    evidence = refuse_plan(evidence)
    with one_blas_thread(), np.errstate(all="ignore"):
        try:
            return _infer(evidence)
        except np.linalg.LinAlgError:
            raise IntervalError(
                "The released values do not determine a covariance: they are not finite, or the noise hides every "
                "direction. Train on more rows or with a larger epsilon."
            ) from None


def _infer(evidence: Evidence) -> Inference:
    second, problem = evidence.second, evidence.plan.problem
    shape, survey, matrix = second.geometry, second.survey, second.map.matrix
    moment, least, column_doubt = cleaned_moment(survey)
    u = evidence.final.reshape(problem.loss.outputs, -1)
    form = curvature(problem.loss, moment, shape.mean, u @ matrix)
    run, basis = _directions(evidence, form, moment)
    seen = measure(evidence, run, form, matrix @ form.rows @ matrix.T, matrix @ moment @ matrix.T)
    if seen is not None:
        run, basis = _scattered(run, basis, form, matrix, seen)
    method = evidence.plan.method
    slope = method.moment(problem).slope if isinstance(method, Surveyed) else 1.0
    x = (u @ matrix)[0]
    centre = float(shape.mean @ x)
    scores = (centre, math.sqrt(max(float(x @ moment @ x) - centre**2, 0.0)))
    prior = prior_of(problem.loss, survey, u @ matrix, slope, form.levels, scores, seen and seen[:3])
    found = scatter(run, evidence.noise, evidence.batch_size, prior)
    sampling, privacy, shift, doubt_of_kappa = _parts(evidence, run, basis, found)
    doubt = doubt_of_kappa + _doubt_of_columns(sampling, privacy, column_doubt, None if seen is None else seen.doubt)
    # Rounds that scatter more than the survey explains: its curvatures are off. Counted as sampling.
    excess = max(0.0, found.misfit - math.sqrt(2 / found.numbers) - 1.0)
    sampling = sampling + excess * (sampling + privacy)
    estimate = evidence.second.map.parameters(evidence.final)
    kappa = float(np.sum(found.weights * found.kappas))
    total = np.diag(sampling + privacy)
    inside = np.linalg.solve(basis.back, np.eye(len(matrix)))  # u of a parameter
    score = sum(
        float(np.sum((inside @ (sampling + privacy)[part, part] @ inside.T) * basis.spread))
        for part in _blocks(len(matrix), problem.loss.outputs)
    )
    signs = Signs(
        hidden=shape.radius / max(float(np.trace(moment) - shape.mean @ shape.mean) / max(shape.p - 1, 1), 1e-300),
        misfit=found.misfit,
        numbers=found.numbers,
        left=float(np.median(shift**2 / np.maximum(total, 1e-300))),
        clip=float(np.sqrt(kappa * np.sum(run.scattering))) / second.plan.schedule.most_noise.clip,
        scores=score / loss_scale(problem).score ** 2,
        distance=float(np.linalg.norm(estimate)),
        overshoot=_overshoot(evidence, found),
        least=least,
        curved=_curved(run, found),
    )
    domain = problem.domain
    refuse(signs, domain.radius if isinstance(domain, L2Ball) else math.inf)
    return Inference(
        estimate=estimate,
        sampling=sampling,
        privacy=privacy,
        shift=shift,
        degrees=4.0 + 2.0 / np.maximum(doubt, 1e-6),
        loss=problem.loss,
        features=problem.dimension,
        intercept=problem.intercept,
        notes=notes(signs, evidence.plan),
    )


def _directions(evidence: Evidence, form: Curvature, moment: Array) -> tuple[Directions, _Basis]:
    """Turn the run into the eigenbasis of the Hessian's form."""
    second = evidence.second
    matrix, p = second.map.matrix, len(second.map.matrix)
    sizes, vectors = np.linalg.eigh(matrix @ form.rows @ matrix.T)
    weights, classes = np.linalg.eigh(form.outputs)
    if len(weights) > 1:  # a softmax model moved by the same vector in every class is the same model
        weights, classes = weights[1:], classes[:, 1:]
    sizes, weights = np.maximum(sizes, 1e-12 * np.max(sizes)), np.maximum(weights, 1e-12)
    spread = vectors.T @ matrix @ moment @ matrix.T @ vectors
    lengths = np.sum((matrix.T @ vectors) ** 2, axis=0)
    factor = float(np.trace(form.rows) / np.trace(moment))

    def turned(table: Array) -> Array:
        return np.asarray(np.einsum("ki,tkp,pj->tij", classes, table, vectors).reshape(len(table), -1))

    final = evidence.final.reshape(1, -1, p)
    run = Directions(
        sizes=np.outer(weights, sizes).ravel(),
        spread=np.tile(np.diag(spread), len(weights)),
        doubt=np.outer(weights**2, (factor * second.geometry.noise * lengths) ** 2).ravel(),
        means=turned(evidence.means),
        points=turned(evidence.points.reshape(len(evidence.points), -1, p)),
        asked=turned(evidence.asked),
        final=turned(final)[0],
        form=form,
        scattering=np.outer(weights, sizes).ravel(),
    )
    back = second.map.parameters(np.eye(p).ravel()).reshape(p, p).T
    return run, _Basis(vectors, classes, back @ vectors, spread, np.diag(sizes))


def _scattered(
    run: Directions, basis: _Basis, form: Curvature, matrix: Array, seen: Measured
) -> tuple[Directions, _Basis]:
    """Give the gradients' covariance the shape that was measured: D^1/2 A D^1/2 in the coordinates of u."""
    root = basis.vectors.T * np.sqrt(seen.ratios)
    shape = root @ (matrix @ form.rows @ matrix.T) @ root.T
    weights = np.linalg.eigvalsh(form.outputs)[-basis.classes.shape[1] :]
    scattering = np.outer(np.maximum(weights, 1e-12), np.diag(shape)).ravel()
    run = run._replace(scattering=scattering, form=form._replace(square=0.0))  # it is in the squares
    return run, basis._replace(scattering=shape)


def _parts(evidence: Evidence, run: Directions, basis: _Basis, found: Scatter) -> tuple[Array, Array, Array, float]:
    """Compute sampling and privacy covariance, what optimisation left, and the relative variance of the variance."""
    plan, noise, batch = evidence.second.plan, evidence.noise, evidence.batch_size
    method, beta = plan.method, plan.schedule.settings["beta"]
    z_step = method.z_step if isinstance(method, AcceleratedSRGD) else "halved"
    rounds, p = len(noise), len(basis.back)
    outputs, copies = basis.classes.shape
    moved = run.disagreement
    start = np.einsum("ki,kp,pj->ij", basis.classes, evidence.second.start.reshape(outputs, p), basis.vectors).ravel()
    sampling, privacy = np.zeros((2, outputs, p, outputs, p))
    shift = np.zeros((copies, p))
    means, squares = np.zeros(p), np.zeros(p)  # over the weights, of the summed variance of each feature
    for row, curvatures, variances in zip(found.weights, found.curvatures, found.variances, strict=True):
        weight = float(np.sum(row))
        if weight < 1e-4:
            continue
        kappa = float(row @ found.kappas) / weight
        answer = _averaged(curvatures / beta, np.sqrt(variances) / beta, rounds, z_step, beta)
        gains, again = answer.gains.reshape(copies, p, rounds), answer.again.reshape(copies, p, rounds, rounds)
        decay = answer.decay.reshape(copies, p)
        shift += weight * decay / np.maximum(1 - decay, _LEAST_LEFT) * (start - run.final).reshape(copies, p)
        unit, fixed = np.zeros(p), np.zeros(p)
        for i in range(copies):
            covariance = basis.scattering * (run.scattering.reshape(copies, p)[i, 0] / basis.scattering[0, 0])
            extra = np.einsum("jtt->j", again[i]) - np.sum(gains[i] ** 2, axis=1)
            rows = (gains[i] @ gains[i].T + np.diag(extra)) * covariance / batch
            extra = np.einsum("jtt,t->j", again[i], moved) - (gains[i] ** 2) @ moved
            motion = ((gains[i] * moved) @ gains[i].T + np.diag(extra)) * basis.spread / batch
            added = np.diag(np.einsum("jts,ts->j", again[i], noise))
            pair = np.outer(basis.classes[:, i], basis.classes[:, i])
            rows, motion, added = (basis.back @ part @ basis.back.T for part in (rows, motion, added))
            sampling += weight * np.einsum("kl,ij->kilj", pair, kappa * rows + motion)
            privacy += weight * np.einsum("kl,ij->kilj", pair, added)
            unit += np.diag(rows)
            fixed += np.diag(motion + added)
        means += weight * fixed + float(row @ found.kappas) * unit
        squares += row @ (fixed + found.kappas[:, None] * unit) ** 2
    doubt = float(np.median(squares / np.maximum(means, 1e-300) ** 2)) - 1.0
    total = outputs * p
    return (
        sampling.reshape(total, total),
        privacy.reshape(total, total),
        (basis.classes @ shift @ basis.back.T).ravel(),
        max(doubt, 0.0),
    )


def _doubt_of_columns(sampling: Array, privacy: Array, size: Array, scattering: Array | None) -> Array:
    """Return the relative variance of each parameter's variance that its column's own errors cause.

    The sampling part goes as the measured scatter over the column's size, the privacy part as one over its square.

    Parameters
    ----------
    sampling, privacy : arrays
        Covariances.
    size, scattering : arrays of shape (p,)
        Variance of the logarithm of each column's size, and of its measured scatter.
    """
    parts = np.diag(sampling), np.diag(privacy)
    share = parts[0] / np.maximum(sum(parts), 1e-300)
    doubt = (2 - share) ** 2 * np.resize(size, share.shape)
    return np.asarray(doubt if scattering is None else doubt + share**2 * np.resize(scattering, share.shape))


def _overshoot(evidence: Evidence, found: Scatter) -> float:
    """Return the largest |r| along the directions that are steeper than beta."""
    plan = evidence.second.plan
    z_step = plan.method.z_step if isinstance(plan.method, AcceleratedSRGD) else "halved"
    ratios = np.sum(found.weights, axis=1) @ found.curvatures / plan.schedule.settings["beta"]
    left = np.abs(response(ratios, len(evidence.noise), z_step).decay)
    return float(np.max(left[ratios > 1.0], initial=0.0))


def _curved(run: Directions, found: Scatter) -> float:
    """Return the least curvature of the rounds over that of the survey, along any direction."""
    weights = np.sum(found.weights, axis=1)
    return float(np.min(weights @ found.curvatures / (weights @ np.outer(found.levels, run.sizes))))


class _Answer(NamedTuple):
    decay: Array
    gains: Array
    """(d, T): mean of W."""
    again: Array
    """(d, T, T): mean of W W'."""


def _averaged(ratios: Array, errors: Array, rounds: int, z_step: str, beta: float) -> _Answer:
    """Average the response to the released means over the curvature ratios N(ratios, errors^2)."""
    decay, gains, again = (
        np.zeros(len(ratios)),
        np.zeros((len(ratios), rounds)),
        np.zeros((len(ratios), rounds, rounds)),
    )
    for node, mass in zip(_NODES, _MASS, strict=True):
        answer = response(np.maximum(ratios + node * errors, 0.05 * ratios), rounds, z_step)
        weights = np.cumsum(answer.gains[:, ::-1], axis=1)[:, ::-1] / beta
        decay += mass * answer.decay
        gains += mass * weights
        again += mass * weights[:, :, None] * weights[:, None, :]
    return _Answer(decay, gains, again)


def _blocks(p: int, outputs: int) -> list[slice]:
    return [slice(k * p, (k + 1) * p) for k in range(outputs)]
