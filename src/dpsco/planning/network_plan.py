"""A plan for networks and other losses that are not convex: what is known, and what has to be chosen.

Covered by proof: privacy, for any loss, since every row enters one clipped gradient. Not covered: how well the model
learns. The excess-risk theorems and the response planner need convexity and a known smoothness; a network has neither.
So the rules below rest on runs (``python -m benchmarks network_plans``), and a search over their numbers on private
data has to be paid for like any other run.

    method   DP-FTRL with momentum 0.9 and steps that fall linearly to 0. Algorithm 1 did worse at every setting tried.
    noise    "workload": on the last iterate 0.78 of the noise of "sqrt", and within 5 % of the least possible.
    rounds   sqrt(n), at most 256: a network needs many steps, and correlated noise hardly grows with their number.
    clip     1. Gradients of a network are longer at first, so this nearly normalises them; from 1/4 to 4 it makes no
             difference as long as clip times step size stays the same.
    step     what leaves noise of standard deviation 0.08 s on each weight of the model. The noise is a public number:
             step size times what mechanism, budget and batch size say. Longer steps blur the model, shorter ones
             learn too little. The step size is at most s / clip, which large budgets reach. The scale s is 1, or
             sqrt(20,000 / n) if that is more (fewer rows: the model needs the longer steps), or r / 0.16 if that is
             more (torch's embeddings begin at 1). Here 1 / r^2 is the mean over weights of 1 / R^2, R the root mean
             square of the tensor of initial weights that a weight belongs to. So the noise is half as long as the
             weights, tensor by tensor in the mean: behind a table of long embeddings, attention has short weights.
    words    for rows of words the outputs decide too: the noise is raised, to 0.64 at most, until it moves the outputs
             of the initial model on random words by 0.1, the shift that all rows share left out. A mean over words
             averages the noise of their embeddings, so a model of short embeddings learns nothing from steps that
             suit other networks, and an encoder needs short ones. The factor for few rows is then
             (20,000 / n)^(1/4), on whichever of 0.08, r / 2 and that noise is the largest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive, positive_integer
from dpsco.methods import DPFTRL
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss, Everything, Problem

__all__ = ["model_noise", "plan_network"]

MOST_ROUNDS = 256
MOMENTUM = 0.9
NOISE = 0.08
"""Standard deviation of the noise on each weight of the model."""
SHARE = 0.5
"""The same as a share of the initial weights' length r, where that is more."""
FEW_ROWS = 20_000
MOST_NOISE, OUTPUT_CHANGE = 8 * NOISE, 0.1
"""Noise that rows of words are given at most, and how far it may move the outputs."""
MOST_STEP = 1.0
"""Largest step size times clip."""
STEP_WITHOUT_CLIP = 0.05


def plan_network(
    size: int,
    n: int,
    budget: Budget,
    *,
    start: ArrayLike | Sequence[ArrayLike] | None = None,
    outputs: Callable[[float], float] | None = None,
    step_size: float | None = None,
    clip: float = 1.0,
    rounds: int | None = None,
) -> Plan:
    """Return a plan to train ``size`` parameters on ``n`` rows, with no assumption on the loss and none on utility.

    ``dpsco.train(plan, stream, oracle=oracle, start=oracle.start)`` with ``size=oracle.size``.

    Parameters
    ----------
    size : int
        Number of trainable parameters.
    n : int
        Public number of rows.
    budget : Budget
        The guarantee.
    start : list of arrays, or one array, optional
        Initial parameters, which are public: longer ones lengthen the steps. ``oracle.tensors`` lists them.
    outputs : callable, optional
        How far noise of a standard deviation on each weight moves the outputs: ``oracle.output_change(width)``, a
        public number. It is known for rows of words only.
    step_size : float, optional
        Mean step size; by rule unless given.
    clip : float
        Bound on the gradient of one row.
    rounds : int, optional
        Number of rounds; sqrt(n), at most ``MOST_ROUNDS``, unless given.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = plan_network(50_890, 60_000, Budget(epsilon=3.0, delta=1e-5))
    >>> plan.rounds, plan.batch_size, plan.clip, round(plan.method.step_size, 1)
    (244, 245, 1.0, 0.7)
    """
    size = positive_integer("size", size, "It is the number of trainable parameters: oracle.size.")
    n = positive_integer("n", n, "It is the public number of rows.")
    clip = positive("clip", clip, "It bounds one row's gradient.", infinite=True)
    loss = CustomLoss(given_lipschitz=clip if math.isfinite(clip) else 1.0, given_smoothness=1.0)
    method = DPFTRL(
        rounds=rounds or max(1, min(MOST_ROUNDS, math.isqrt(n))),
        clip=clip,
        step_size=MOST_STEP / clip if math.isfinite(clip) else STEP_WITHOUT_CLIP,
        momentum=MOMENTUM,
        decay="linear",
        iterate="last",
        mechanism="workload",
    )
    plan = Plan(problem=Problem(loss, Everything(), dimension=size), n=n, budget=budget, method=method, rule="network")
    if step_size is None:
        step_size = (
            min(1.0, NOISE / max(model_noise(plan), 1e-300)) * _scale(n, start, outputs) * (method.step_size or 0.0)
        )
    return dataclasses.replace(plan, method=dataclasses.replace(method, step_size=step_size))


def _scale(n: int, start: ArrayLike | Sequence[ArrayLike] | None, outputs: Callable[[float], float] | None) -> float:
    """Return s."""
    share = SHARE * _length(start) / NOISE
    if outputs is None:
        return max(1.0, math.sqrt(FEW_ROWS / n), share)
    return max(1.0, share, _tolerated(outputs) / NOISE) * max(1.0, FEW_ROWS / n) ** 0.25


def _tolerated(outputs: Callable[[float], float]) -> float:
    """Return the noise from NOISE to MOST_NOISE that moves the outputs by OUTPUT_CHANGE, by bisection."""
    low, high = NOISE, MOST_NOISE
    if outputs(low) >= OUTPUT_CHANGE:
        return low
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if outputs(middle) < OUTPUT_CHANGE else (low, middle)
    return low


def _length(start: ArrayLike | Sequence[ArrayLike] | None) -> float:
    """Return r; tensors that begin at 0 have no length and do not count."""
    tensors = start if isinstance(start, (list, tuple)) and all(np.ndim(part) > 0 for part in start) else [start]
    squares = [np.square(np.asarray(0.0 if part is None else part, dtype=np.float64)) for part in tensors]
    counted = [(square.size, float(np.mean(square))) for square in squares if np.any(square)]
    if not counted:
        return 0.0
    return math.sqrt(sum(size for size, _ in counted) / sum(size / mean for size, mean in counted))


def model_noise(plan: Plan) -> float:
    """Return the standard deviation of the noise on each weight of the model of ``plan``.

    Raises
    ------
    InvalidArgument
        Unless the method of the plan is ``DPFTRL``.
    """
    method, schedule = plan.method, plan.schedule
    if not isinstance(method, DPFTRL):
        raise InvalidArgument(f"Expected a plan of DP-FTRL, whose steps are fixed, got method={method.name!r}.")
    increments = np.diff(schedule.mechanism.decoder(), axis=0, prepend=0.0)
    per_step = np.linalg.norm(method.output_weights() @ increments) * schedule.most_noise.sigma / schedule.batch_size
    return float(schedule.settings["step_size"] * per_step)
