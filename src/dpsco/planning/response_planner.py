"""The default rule: solve the algorithm instead of bounding it.

On a direction of curvature h Algorithm 1 is a linear system (algorithm_1.py). With q = h / beta, in a population
(spectrum_priors.py) of curvatures h_i, squared distances d_i and disagreement g, T rounds of B = n / T rows leave

    optimisation  1/2 sum_i h_i d_i decay(q_i)
    noise         1/2 sum_i h_i (S C / (B mu beta))^2 noise(q_i)
    sampling      1/2 sum_i h_i h_i (g + m) / (B beta^2) sampling(q_i)

where m, the mean over the rounds of u' H u, is what rows disagree about because the iterates move. Noise moves them
too, so m solves m = (drift and privacy noise) + (g + m) a, with a = sum_i h_i^2 motion(q_i) / (B beta^2): runs with
a near 1 blow up. A clip below the largest gradient cuts rows short: measured on logistic, Huber and softmax problems,
that costs a small share of F(0) - F*.

The data's population is unknown. The rule picks the T, beta, z-step and clip of least mean log regret: the excess
in a population over the best excess in that population, averaged over the populations. A little is added per doubling
of T, because rounds cost. Public numbers alone decide. Where the unknown curvature costs much, which is at few rounds,
the plan is adaptive (methods/adaptive_beta.py). From ``VARIANT_FROM`` rounds on the unaccelerated variant competes: it
amplifies less noise, but its rounds shorten flat directions less. Tuned to a population it wins from 64 rounds on; the
mean over the populations prefers it at few rows and many rounds alone.

Cost: about 0.1 s the first time (the curves are kept), a few hundredths afterwards, plus the fit of the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.algorithm_1 import NO_Z, Z_STEPS
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.methods import AcceleratedSRGD, Method, UnacceleratedSRGD
from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction
from dpsco.planning.response_curves import ResponseCurves, interpolated, mechanism_noise, response_curves
from dpsco.planning.spectrum_priors import Populations, loss_scale, populations
from dpsco.problem import Problem
from dpsco.query import Array
from dpsco.release.calibration import Uneven
from dpsco.release.mechanisms import MECHANISMS

__all__ = ["SHAKE", "VARIANT_FROM", "Excess", "excess", "predict", "response_plan", "state_bytes"]

HORIZONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_ROUNDS = 4096
BETAS = 2.0 ** (np.arange(-16, 17) / 2)
"""Candidates for beta, in units of the largest curvature the loss can have."""

CLIPS = ((1.0, 0.0), (0.85, 0.0007), (0.7, 0.002))
"""Candidates for the clip, in units of the largest gradient, and what they cost in units of F(0) - F*."""

LISTED_UP_TO = 64
"""Rounds up to which the listed z-step is considered: with more of them it only amplifies noise."""

VARIANT_FROM, VARIANT_GAIN = 32, 0.05
"""Rounds from which the unaccelerated variant is considered, and by how much log excess it must win."""

ROUND_COST = 0.03
"""Log excess that half the rounds may cost."""

ADAPT_FROM = math.log(1.5)
"""Mean log regret at its own T from which a plan lets beta follow the curvature that released values show."""

SHAKE = 2.0
"""Motion that the noise causes on the way, relative to square-root Toeplitz: other mechanisms put more of it there."""

WORKING_VECTORS = 8
"""p-vectors that training holds besides the noise: iterates, released sums, one query."""


@dataclass(frozen=True)
class Excess:
    """Predicted parts, each of shape (betas, populations)."""

    optimisation: Array
    noise: Array
    sampling: Array
    motion: Array
    """m: what rows disagree about because the iterates move."""

    @property
    def total(self) -> Array:
        """All of it."""
        return self.optimisation + self.noise + self.sampling


def excess(
    population: Populations,
    table: ResponseCurves,
    betas: Array,
    *,
    batch_size: int,
    clips: Sequence[tuple[float, float]],
    noise_share: float,
) -> list[Excess]:
    """Return the formula of this module, for each clip.

    Parameters
    ----------
    population, table, betas, batch_size
        What the rounds run on; the sums over directions are the same for every clip.
    clips
        Pairs of the spread S C / (B mu) and the cost of clipping.
    noise_share
        Scales the noise curve.
    """
    h, beta = population.curvature, betas[:, None]
    weight, signal = population.count * h, h * population.distance
    of = np.stack([signal, weight * h, weight, signal, weight * h, weight])
    sums = np.einsum("kbpg,kpg->kbp", interpolated(h / beta[..., None], *table), of)
    decay, sampling, noise, drift, motion, shake = sums
    rows = batch_size * beta**2
    fed_back = np.minimum(motion / rows, 0.98)
    found = []
    for spread, cost in clips:
        privacy = (spread / beta) ** 2
        m = (drift + SHAKE * privacy * shake + population.disagreement * fed_back) / (1 - fed_back)
        found.append(
            Excess(
                0.5 * decay + cost * population.gap,
                0.5 * noise_share * privacy * noise,
                0.5 * sampling / rows * (population.disagreement + m),
                m,
            )
        )
    return found


def response_plan(
    problem: Problem,
    n: int,
    budget: Budget,
    *,
    rounds: int | None = None,
    memory: float | None = None,
    mechanism: str | None = None,
    variant: bool = False,
) -> Plan:
    """Return the plan of least mean log regret over the populations of ``problem``.

    Parameters
    ----------
    problem, n, budget, rounds, memory, mechanism
        As in ``dpsco.plan``.
    variant : bool
        Whether the unaccelerated variant competes, with square-root noise unless memory is short.
    """
    population, scale = populations(problem), loss_scale(problem)
    top = scale.curvature * problem.row_norm**2
    reach = min(problem.lipschitz, scale.slope * problem.row_norm)
    betas = top * BETAS
    choices = []
    for T, name in _horizons(problem, n, rounds, memory, mechanism):
        steps = [*(Z_STEPS if T <= LISTED_UP_TO else ("halved",)), *([NO_Z] if variant and T >= VARIANT_FROM else [])]
        for z_step in steps:
            made_for = "sqrt" if (z_step, name) == (NO_Z, "workload") else name  # "workload" is made for Algorithm 1
            clips = CLIPS if budget.private else CLIPS[:1]
            found = excess(
                population,
                response_curves(T, z_step),
                betas,
                batch_size=n // T,
                clips=[(_spread(budget, share * reach, n // T), cost) for share, cost in clips],
                noise_share=_noise_share(made_for, T),
            )
            for (share, _), each in zip(clips, found, strict=True):
                choices.append((T, z_step, made_for, share * reach, np.log(each.total)))
    logs = np.array([choice[-1] for choice in choices])  # (choices, betas, populations)
    horizons = np.array([choice[0] for choice in choices])
    plain = np.array([choice[1] == NO_Z for choice in choices])
    cost = ROUND_COST * np.log2(horizons) + VARIANT_GAIN * plain
    regret = np.mean(logs - np.min(logs, axis=(0, 1)), axis=2) + cost[:, None]
    best, at_beta = np.unravel_index(int(np.argmin(regret)), regret.shape)
    T, z_step = choices[best][:2]
    same = np.flatnonzero((horizons == T) & ~plain)
    unknown = float(np.mean(logs[best, at_beta] - np.min(logs[same], axis=(0, 1))))
    adaptive = unknown > ADAPT_FROM and T > 2 and z_step != NO_Z
    if adaptive:  # the first step alone has this beta; afterwards the shorter z-steps would only hold the run back
        listed = np.array([i for i in same if choices[i][1] == ("listed" if T <= LISTED_UP_TO else "halved")])
        inner, at_beta = np.unravel_index(int(np.argmin(regret[listed])), regret[listed].shape)
        best = listed[inner]
    T, z_step, name, clip, _ = choices[best]
    beta, clip = _rounded(float(betas[at_beta])), _rounded(clip) if budget.private else math.inf
    method: Method = AcceleratedSRGD(
        rounds=T, beta=beta, clip=clip, z_step="halved" if z_step == NO_Z else z_step, mechanism=name, adaptive=adaptive
    )
    if z_step == NO_Z:
        method = UnacceleratedSRGD(rounds=T, beta=beta, clip=clip, mechanism=name)
    plan = Plan(problem, n, budget, method, rule="response")
    return plan.predicting(predict(plan))


def predict(plan: Plan) -> Prediction:
    """Return the expected excess of a plan: the geometric mean over populations, split as its parts are."""
    population, scale = populations(plan.problem), loss_scale(plan.problem)
    reach = min(plan.problem.lipschitz, scale.slope * plan.problem.row_norm)
    sizes, costs = np.array(CLIPS[::-1]).T
    method, schedule = plan.method, plan.schedule
    if not isinstance(method, (AcceleratedSRGD, UnacceleratedSRGD)) or isinstance(schedule.calibration, Uneven):
        raise InvalidArgument(
            "Only method='accelerated-srgd' and 'unaccelerated-srgd' with one clip for all rounds have a predicted "
            f"excess, got method={method.name!r}."
        )
    beta, z_step, adaptive = schedule.settings["beta"], NO_Z, False
    if isinstance(method, AcceleratedSRGD):
        z_step, adaptive = method.z_step, method.adaptive
    table = response_curves(method.rounds, z_step)
    table = table._replace(noise=mechanism_noise(schedule.mechanism, z_step))
    betas = np.array([beta]) if not adaptive else beta * 2.0 ** -np.arange(0, 6.5, 0.5)
    cost = float(np.interp(min(plan.clip / reach, 1.0), sizes, costs))
    (found,) = excess(
        population,
        table,
        betas,
        batch_size=plan.batch_size,
        clips=[(_spread(plan.budget, plan.clip, plan.batch_size), cost)],
        noise_share=1.0,
    )
    # An adaptive beta finds the curvature of its population, and not more than that.
    steep = betas[:, None] < np.max(population.curvature, axis=1)
    steep[0] = False
    chosen = np.argmin(np.where(steep, math.inf, found.total), axis=0)
    here = (chosen, np.arange(len(chosen)))
    totals = found.total[here]
    mean = math.exp(float(np.mean(np.log(totals))))
    shares = [mean * float(np.mean(part[here] / totals)) for part in (found.optimisation, found.noise, found.sampling)]
    return Prediction(*shares)


def state_bytes(problem: Problem, noise_vectors: int) -> int:
    """Bytes that training keeps between rounds: iterates, released sums and noise."""
    return 8 * problem.parameters * (WORKING_VECTORS + noise_vectors)


def _horizons(
    problem: Problem, n: int, rounds: int | None, memory: float | None, mechanism: str | None
) -> list[tuple[int, str]]:
    """Candidate rounds, each with its mechanism, that fit into n rows and into the memory."""
    if mechanism is not None:
        one_of("mechanism", mechanism, [*MECHANISMS, "auto"])
    if rounds is None:
        candidates = [T for T in HORIZONS if n >= T]
    else:
        candidates = [positive_integer("rounds", rounds, "It is the number of batch gradient steps T.")]
        if candidates[0] > n:
            raise InvalidArgument(f"Expected rounds={rounds} <= n={n}: every round needs at least one fresh row.")
        if candidates[0] > MOST_ROUNDS:
            raise InvalidArgument(
                f"Expected rounds={rounds} <= {MOST_ROUNDS}: the response rule solves no longer runs, and none is "
                "needed. Use fewer rounds, or dpsco.Plan with settings of your own."
            )
    if memory is None:
        return [(T, mechanism or "workload") for T in candidates]
    room = positive("memory", memory, "It is the most bytes that training may keep between rounds.")
    fitting = []
    for T in candidates:
        for name in [mechanism] if mechanism else ["workload", "blt"]:
            if state_bytes(problem, _noise_vectors(name, T)) <= room:
                fitting.append((T, name))
                break
    if not fitting:
        need = min(state_bytes(problem, _noise_vectors(name, T)) for T in candidates for name in [mechanism or "blt"])
        raise InvalidArgument(
            f"Expected memory={room:.3g} to be at least {need:,} bytes: {problem.parameters:,} parameters in float64, "
            f"{WORKING_VECTORS} vectors to train with and the noise that is kept. Allow more, or use fewer parameters."
        )
    return fitting


def _noise_vectors(name: str, rounds: int) -> int:
    """Noise vectors that streaming keeps: every draw for dense strategies, a few for the others."""
    if name in ("tree", "honaker", "smooth"):
        return 2 * max(1, math.ceil(math.log2(rounds + 1)))
    return {"independent": 0, "blt": 3}.get(name, rounds)


def _noise_share(name: str, rounds: int) -> float:
    """Excess noise of a mechanism relative to square-root Toeplitz, roughly; the prediction uses its matrices."""
    doublings = math.log2(rounds)
    if name in ("workload", "auto"):
        return max(0.6, 1 - 0.045 * doublings)
    if name in ("tree", "honaker", "smooth"):
        return 1 + 0.75 * doublings
    return 1 + 0.3 * rounds**0.8 if name == "independent" and rounds > 1 else 1.0


def _spread(budget: Budget, clip: float, batch_size: int) -> float:
    return budget.clips_apart * clip / (batch_size * budget.mu_per_record) if budget.private else 0.0


def _rounded(value: float) -> float:
    """Four digits: plans are read by people."""
    return float(f"{value:.4g}")
