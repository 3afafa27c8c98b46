"""A plausible truth behind a released survey, and the survey of that truth: the parametric bootstrap of stage two.

``assumed_signal`` gives spectrum, curvature factor, and how far the optimum is, along each direction. Hidden signal
follows xi^(1 - alpha). ``resurvey`` simulates the survey of such a truth: the directions and the start that a run would
have, beside the truth that it cannot know.

Guarantee: post-processing of the released survey.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.planning.geometry import Geometry, clean_spectrum, floored, positive_mean, true_spectrum
from dpsco.planning.survey_start import Start, wiener
from dpsco.query import Array

__all__ = ["SIGNAL", "Resurvey", "assumed_signal", "resurvey"]

SIGNAL = 0.6
"""F(base) - F* is about this share of the base's loss at most."""
BELIEVED = 0.9
"""The start has gained at most this share of the base's loss."""
MODEL_DOUBT = 0.5
"""Relative error of the signal that a gradient shows: the signal need not follow the assumed law."""
FLOOR = 100.0
"""Directions this many times smaller than the mean hidden one hold no more signal than at that size."""
_EMPTY = 1e-15
"""Size of a direction that holds nothing, where rows have norm 1."""


@dataclass(frozen=True, eq=False)
class Resurvey:
    """A simulated survey. ``step`` and ``missing``: factors L of E[v v'] = L L', v the start and what it lacks."""

    shape: Geometry
    step: Array
    missing: Array


def resurvey(
    truth: Array, square: Array, variance: Array, shape: Geometry, rows: int, c: float, each: float
) -> Resurvey:
    """Return a survey of the assumed truth, in its own eigenbasis; an entry stands for ``each`` directions.

    The noise of the moment and of the gradient that decides on the shrinkage are drawn once. Given these, the start is
    linear in the optimum and in the noise: expectations over both are exact.
    """
    rng = np.random.default_rng(0)  # public: the simulation is part of the rule
    k, s = len(truth), shape.noise
    far, rough = np.sqrt(square), np.sqrt(variance + c * truth / rows)
    draw = rng.standard_normal((k, k)) * s * math.sqrt(each)
    noise = np.triu(draw, 1) / math.sqrt(2.0)
    observed, directions = np.linalg.eigh(np.diag(truth) + noise + noise.T + np.diag(np.diag(draw)))
    sizes = clean_spectrum(observed, shape.radius / 2)
    made = Geometry(np.ones(k), directions, sizes, 0.0, observed, s, shape.radius, np.zeros(k))
    gradient = -c * truth * far * rng.choice([-1.0, 1.0], k) + rng.standard_normal(k) * rough
    shrunk, _, _ = wiener((directions.T @ gradient)[:, None], floored(made), variance, s, rows, c, copies=each)
    newton = (directions * shrunk) @ directions.T
    step, noisy = newton * (c * truth * far), newton * rough
    return Resurvey(made, np.hstack([step, noisy]), np.hstack([np.diag(far) - step, noisy]))


def assumed_signal(
    shape: Geometry, start: Start, share: float, alpha: float, rows: int
) -> tuple[float, float, Array, Array, Array]:
    """Signal, curvature factor, spectrum (p,), squared shift of the start and distance still to go.

    All stay within what F(base) allows.
    A signal h in the hidden directions, shared out in proportion to xi^(1 - alpha), has a squared gradient of
    2 c h sum(xi^(2 - alpha)) / sum(xi^(1 - alpha)): the released gradient shows h, with a standard deviation.
    """
    truth = np.maximum(true_spectrum(shape), _EMPTY)
    c, p, k = start.curvature, shape.p, len(shape.sizes)
    moved = np.concatenate([np.zeros(p - k), start.moved])
    left = np.concatenate([np.full(p - k, float(np.max(start.left, initial=0.0))), start.left])
    gained = 0.5 * c * float(np.sum(truth * moved))
    fits = min(1.0, BELIEVED * start.gap / max(gained, 1e-300))
    moved, gained = moved * fits, gained * fits
    ahead = max(0.5 * c * float(np.sum(truth * left)), 1e-300)
    room = max(SIGNAL * start.gap - gained, share * start.gap)
    left = left * min(1.0, room / ahead)
    hidden = np.concatenate([np.ones(p - k, dtype=bool), shape.observed < shape.radius])
    hidden = hidden if np.any(hidden) else np.ones(p, dtype=bool)
    sizes = np.maximum(truth, float(np.mean(truth[hidden])) / FLOOR)
    profile = sizes ** (1 - alpha)
    part, known = np.where(hidden, profile, 0.0) / np.sum(profile[hidden]), hidden[p - k :]
    shown, doubt = 0.0, math.inf
    if start.gradient_square is not None and np.any(known):
        variance = (start.gradient_variance + c * truth[p - k :] / rows)[known]
        unit = 2 * c * max(float(np.sum(part * truth)), _EMPTY)
        shown = float(np.sum(start.gradient_square[known] - variance)) / unit
        doubt = math.sqrt(2 * float(np.sum(variance**2))) / unit
    if shape.intercept:
        others = max(
            float(np.sum(profile[:-1])), float(np.sum(profile[hidden]))
        )  # the base knows the largest direction
        mean = max(share * start.gap * float(np.sum(profile[hidden])) / others, _EMPTY)
        doubt = math.hypot(doubt, MODEL_DOUBT * mean)
        expected = positive_mean(shown, doubt, mean) if math.isfinite(doubt) else mean
        expected -= 0.5 * c * float(np.sum((truth * moved)[hidden]))
        short = max(0.0, min(expected, room) - 0.5 * c * float(np.sum((truth * left)[hidden])))
    else:
        short = max(0.0, min(share * start.gap, max(0.0, shown) + 2 * doubt) - min(ahead, room))
    signal = gained + min(ahead, room) + short
    factor = min(c, start.curvature_at(signal))
    return signal, factor, truth, moved * (c / factor), left * (c / factor) + 2 * short * part / (factor * sizes)
