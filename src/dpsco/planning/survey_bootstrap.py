"""A plausible truth behind a released survey, and the survey of that truth: the parametric bootstrap of stage two.

``assumed_spectrum`` and ``AssumedSignal`` give spectrum, curvature factor, and how far the optimum is, along each
direction. Hidden signal follows xi^(1 - alpha). ``simulated_survey`` and ``resurvey`` survey such a truth: the
directions and the start that a run would have, beside the truth that it cannot know. The directions depend on the
spectrum alone, so all hypotheses about the signal share them.

Guarantee: post-processing of the released survey.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsco.planning.geometry import Geometry, clean_spectrum, floored, positive_mean, true_spectrum
from dpsco.planning.survey_start import Start, Wiener
from dpsco.query import Array

__all__ = ["SIGNAL", "AssumedSignal", "Resurvey", "Simulated", "assumed_spectrum", "resurvey", "simulated_survey"]

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
class Simulated:
    """What a survey of the assumed truth shows, whatever the signal is: the noise of its moment is drawn once."""

    shape: Geometry
    signs: Array
    normals: Array
    """(k,): signs of the optimum, and the noise of the gradient, that decide on the shrinkage."""
    sizes: Array
    """(k,): ``floored`` sizes of the geometry."""


@dataclass(frozen=True, eq=False)
class Resurvey:
    """The start of a simulated survey, V diag(shrunk) V' g, with V the simulated directions and g minus the gradient.

    Optima of any sign and noise make g = ``pull`` signs + ``rough`` normals, all of shape (k,).
    """

    shrunk: Array
    far: Array
    """Root of the squared distance of the optimum, per direction of the truth."""
    pull: Array
    rough: Array

    def energies(self, turned: Array, directions: Array, whole: Array) -> tuple[Array, Array]:
        """Return the mean squares of what the start lacks, and of the start, along the rows of ``turned`` V'.

        Parameters
        ----------
        turned, directions, whole : arrays of shape (.., k, k)
            A basis in the coordinates of V, V itself, and ``turned @ directions.T``.
        """
        step = (turned * self.shrunk) @ directions.T
        square = step * step
        noise = square @ self.rough**2
        lacks = whole * self.far - step * self.pull
        return np.einsum("...ij,...ij->...i", lacks, lacks) + noise, square @ self.pull**2 + noise


def simulated_survey(truth: Array, shape: Geometry, each: float) -> Simulated:
    """Return the geometry that a survey of the assumed truth shows, in the truth's own eigenbasis.

    An entry of ``truth`` stands for ``each`` directions.
    """
    k, s = len(truth), shape.noise
    noise, signs, normals = _draws(k)
    observed, directions = np.linalg.eigh(np.diag(truth) + noise * (s * math.sqrt(each)))
    sizes = clean_spectrum(observed, shape.radius / 2)
    made = Geometry(np.ones(k), directions, sizes, 0.0, observed, s, shape.radius, np.zeros(k))
    return Simulated(made, signs, normals, floored(made))


@lru_cache(maxsize=8)
def _draws(k: int) -> tuple[Array, Array, Array]:
    """Return the symmetric noise of a moment of size 1, signs and normals."""
    rng = np.random.default_rng(0)  # public: the simulation is part of the rule
    draw = rng.standard_normal((k, k))
    above = np.triu(draw, 1) / math.sqrt(2.0)
    return above + above.T + np.diag(np.diag(draw)), rng.choice([-1.0, 1.0], k), rng.standard_normal(k)


def resurvey(
    seen: Simulated, truth: Array, square: Array, variance: Array, rows: int, c: float, each: float
) -> Resurvey:
    """Return the start that a simulated survey gives, for an optimum at squared distances ``square``.

    The gradient that decides on the shrinkage is drawn once. Given that, the start is linear in the optimum and in the
    noise: expectations over both are exact.
    """
    shape = seen.shape
    far, rough = np.sqrt(square), np.sqrt(variance + c * truth / rows)
    pull = c * truth * far
    gradient = -pull * seen.signs + seen.normals * rough
    along = (shape.directions.T @ gradient)[:, None]
    shrunk = Wiener(along, seen.sizes, variance, shape.noise, rows, each).step(c)
    return Resurvey(shrunk, far, pull, rough)


def assumed_spectrum(shape: Geometry) -> Array:
    """Return the spectrum (p,) of the assumed truth: no direction holds nothing."""
    return np.maximum(true_spectrum(shape), _EMPTY)


class AssumedSignal:
    """What a survey leaves open about the signal, on the spectrum ``truth`` (p,), for any leaning alpha.

    All stays within what F(base) allows.
    A signal h in the hidden directions, shared out in proportion to xi^(1 - alpha), has a squared gradient of
    2 c h sum(xi^(2 - alpha)) / sum(xi^(1 - alpha)): the released gradient shows h, with a standard deviation.
    """

    def __init__(self, shape: Geometry, truth: Array, start: Start, share: float, rows: int) -> None:
        c, p, k = start.curvature, shape.p, len(shape.sizes)
        moved = np.concatenate([np.zeros(p - k), start.moved])
        left = np.concatenate([np.full(p - k, float(np.max(start.left, initial=0.0))), start.left])
        gained = 0.5 * c * float(np.sum(truth * moved))
        fits = min(1.0, BELIEVED * start.gap / max(gained, 1e-300))
        self._moved, self._gained = moved * fits, gained * fits
        self._ahead = max(0.5 * c * float(np.sum(truth * left)), 1e-300)
        self._room = max(SIGNAL * start.gap - self._gained, share * start.gap)
        self._left = left * min(1.0, self._room / self._ahead)
        hidden = np.concatenate([np.ones(p - k, dtype=bool), shape.observed < shape.radius])
        self._hidden = hidden if np.any(hidden) else np.ones(p, dtype=bool)
        self._sizes = np.maximum(truth, float(np.mean(truth[self._hidden])) / FLOOR)
        self._shape, self._truth, self._start, self._share = shape, truth, start, share
        known = self._hidden[p - k :]
        self._seen: tuple[float, float] | None = None
        """Square of the gradient beyond its variance, and the deviation of that, over the hidden directions."""
        if start.gradient_square is not None and np.any(known):
            variance = (start.gradient_variance + c * truth[p - k :] / rows)[known]
            beyond = float(np.sum(start.gradient_square[known] - variance))
            self._seen = beyond, math.sqrt(2 * float(np.sum(variance**2)))
        self._known_gain = 0.5 * c * float(np.sum((truth * self._moved)[self._hidden]))
        self._known_left = 0.5 * c * float(np.sum((truth * self._left)[self._hidden]))

    def at(self, alpha: float) -> tuple[float, float, Array, Array]:
        """Return signal, curvature factor, squared shift of the start and distance still to go."""
        start, share, sizes, hidden = self._start, self._share, self._sizes, self._hidden
        c, ahead = start.curvature, min(self._ahead, self._room)
        profile = sizes ** (1 - alpha)
        behind = np.sum(profile[hidden])
        part = np.where(hidden, profile, 0.0) / behind
        shown, doubt = 0.0, math.inf
        if self._seen is not None:
            unit = 2 * c * max(float(np.sum(part * self._truth)), _EMPTY)
            shown, doubt = self._seen[0] / unit, self._seen[1] / unit
        if self._shape.intercept:
            others = max(float(np.sum(profile[:-1])), float(behind))  # the base knows the largest direction
            mean = max(share * start.gap * float(behind) / others, _EMPTY)
            doubt = math.hypot(doubt, MODEL_DOUBT * mean)
            expected = positive_mean(shown, doubt, mean) if math.isfinite(doubt) else mean
            expected -= self._known_gain
            short = max(0.0, min(expected, self._room) - self._known_left)
        else:
            short = max(0.0, min(share * start.gap, max(0.0, shown) + 2 * doubt) - ahead)
        signal = self._gained + ahead + short
        factor = min(c, start.curvature_at(signal))
        further = 2 * short * part / (factor * sizes)
        return signal, factor, self._moved * (c / factor), self._left * (c / factor) + further
