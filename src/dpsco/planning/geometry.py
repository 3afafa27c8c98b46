"""The geometry of the rows, from a released survey alone: directions, sizes, and the metric of the later rounds.

Clean-up
    The released mean moment is S + N, N symmetric Gaussian with off-diagonal deviation s / sqrt 2, whose spectrum is a
    semicircle of radius lambda = s sqrt(2 p). For the eigenvectors v of S + N with eigenvalues l the size v'Sv is not l
    but, up to fluctuations (Bun, Allez, Bouchaud, Potters 2016, additive noise),

        xi(l) = l - 2 sw^2 Re g(l - i eta),    g(z) = mean_j 1 / (z - l_j),   sw = lambda / 2,

    made increasing in l and clamped at 0. Bulk eigenvectors all receive nearly the mean size of what the noise hides.
Metric
    Weights w_i = 1 / (xi_i + ridge), xi_i ``floored``, along the directions known, and one common weight for the rest:

        P = (V diag(g) V' + g_rest (I - V V')) diag(scale),     g = sqrt(w)

    x = P'u. Rows become P a (clipping/row_map.py), contributions are clipped in those coordinates and noise is
    isotropic in u. P is symmetric up to ``scale`` (all ones unless the survey was diagonal).
Cost
    one eigendecomposition, O(p^3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.methods.in_geometry import NOT_PRIVATE
from dpsco.planning.geometry_form import GeometryForm
from dpsco.planning.released_survey import ReleasedSurvey
from dpsco.query import Array

__all__ = [
    "STRETCHED",
    "Geometry",
    "Metric",
    "clean_spectrum",
    "floored",
    "geometry",
    "metric",
    "positive_mean",
    "ridge_gains",
    "true_spectrum",
]

_TINY = 1e-12
SPREAD = 1.4
"""Tables that need an intercept: sizes of directions behind the noise are (-log(1 - u))^SPREAD, u even in (0, 1)."""
STRETCHED = 0.5
"""Least size in the metric over the mean one behind the noise. The noise alone makes smaller ones: taken at their word,
such directions would be stretched beyond all others, and the rounds would blow up along them."""
_EMPTY = 1e-15
"""Size of a direction that holds nothing, where rows have norm 1."""
LEAST_RATE = math.log(3.0)
"""Without an intercept: the largest direction behind the noise is at least exp of this times the smallest."""
HIDDEN_TRACE = 0.15
"""Their sum is about this much, where rows have norm 1: columns are shorter than their declared ranges."""


@dataclass(frozen=True, eq=False, repr=False)
class Geometry(GeometryForm):
    """What is known of the rows' second moment, and from where.

    It is in coordinates a * ``scale``, where a is a row over the feature norm. ``result.geometry`` is one.

    Parameters
    ----------
    scale : array of shape (p,)
        Coordinates are multiplied by it first; ones for kind "full".
    directions : array of shape (p, k)
        Orthonormal, ascending in size; k = p for kind "full". Of shape (p, 0) beside p sizes: the axes.
    sizes : array of shape (k,)
        xi, the cleaned second moment along each direction.
    rest : float
        Second moment along any direction orthogonal to ``directions``; 0 if there is none.
    observed : array of shape (k,)
        Eigenvalues before the clean-up.
    noise : float
        s, the standard deviation of a packed moment entry.
    radius : float
        lambda, the spectral size of the noise, the unit of ridges.
    mean : array of shape (p,)
        Mean row, from the column of the constant; zeros without an intercept.
    feature_norm : float
        What rows were divided by before.
    hidden : float
        Largest size that a direction orthogonal to ``directions`` may have; 0 if they are alike.
    source : str
        "released by run ID", "public rows" or "not private". A ``Result`` states that of its own geometry.
    """

    scale: Array
    directions: Array
    sizes: Array
    rest: float
    observed: Array
    noise: float
    radius: float
    mean: Array
    feature_norm: float = 1.0
    hidden: float = 0.0
    source: str = NOT_PRIVATE

    @property
    def p(self) -> int:
        """Columns, the intercept's included."""
        return len(self.scale)

    def along(self, x: Array) -> Array:
        """Coordinates along the directions, of a vector (p,) or of the columns of (p, K)."""
        return x if self.axes else np.asarray(self.directions.T @ x)

    def across(self, along: Array) -> Array:
        """Return the vector with these coordinates along the directions."""
        return along if self.axes else np.asarray(self.directions @ along)

    @property
    def above_noise(self) -> int:
        """Directions whose eigenvalue stands out of the noise."""
        return int(np.sum(self.observed > self.radius))


@dataclass(frozen=True, eq=False)
class Metric:
    """P of the module docstring."""

    scale: Array
    directions: Array
    gains: Array
    rest: float

    def forward(self, vector: Array) -> Array:
        """P d, for a vector (p,) or (p, K)."""
        scaled = (self.scale * vector.T).T
        return self._root(scaled)

    def backward(self, u: Array) -> Array:
        """P'u."""
        return np.asarray((self.scale * self._root(u).T).T)

    def start(self, x: Array) -> Array:
        """Return u with P'u = x."""
        scaled = (x.T / self.scale).T
        if self._axes:
            return np.asarray((scaled.T / self.gains).T)
        inside = self.directions.T @ scaled
        return np.asarray(scaled / self.rest + self.directions @ ((1 / self.gains - 1 / self.rest) * inside.T).T)

    @property
    def matrix(self) -> Array:
        """P, of shape (p, p)."""
        if self._axes:
            return np.diag(self.gains * self.scale)
        inside = np.ascontiguousarray(self.directions.T) * self.scale
        along = (self.gains - self.rest) * inside.T
        return np.asarray(np.diag(self.rest * self.scale) + self.directions @ along.T)

    @property
    def _axes(self) -> bool:
        return self.directions.shape[1] < len(self.gains)

    def _root(self, v: Array) -> Array:
        if self._axes:
            return np.asarray((self.gains * v.T).T)
        inside = self.directions.T @ v
        return np.asarray(self.rest * v + self.directions @ ((self.gains - self.rest) * inside.T).T)


def clean_spectrum(observed: Array, half_radius: float) -> Array:
    """Return xi for ascending eigenvalues; ``half_radius`` is sw, half the semicircle's radius.

    >>> clean_spectrum(np.array([1.0, 2.0]), 0.0)
    array([1., 2.])
    """
    if half_radius <= 0:
        return np.maximum(observed, 0.0)
    smoothing = 2 * half_radius / math.sqrt(len(observed))
    apart = observed[:, None] - observed[None, :]
    transform = np.mean(apart / (apart**2 + smoothing**2), axis=1)
    return np.maximum(_increasing(observed - 2 * half_radius**2 * transform), 0.0)


def geometry(released: ReleasedSurvey) -> Geometry:
    """Return the geometry that a released survey shows. Post-processing."""
    s, c = released.moment_noise, released.constant
    if released.kind == "diagonal":
        return _diagonal(released)
    moment = np.array(released.moment)
    p = len(moment)
    mean = np.zeros(p)
    if c > 0:
        moment[-1, -1] = c * c  # public: every usable row has it
        mean = np.append(moment[:-1, -1] / c, c)
    radius = s * math.sqrt(2 * p)
    observed, directions = np.linalg.eigh(moment)
    sizes = clean_spectrum(observed, radius / 2)
    return Geometry(np.ones(p), directions, sizes, 0.0, observed, s, radius, mean)


def floored(shape: Geometry, share: float = 0.2) -> Array:
    """Sizes, none below ``share`` of the mean size behind the noise: no direction of a table is exactly empty."""
    hidden = shape.sizes[shape.observed < shape.radius]
    floor = share * float(np.mean(hidden)) if len(hidden) else 0.0
    return np.maximum(shape.sizes, max(floor, _EMPTY, _TINY * max(float(np.max(shape.sizes, initial=0.0)), shape.rest)))


def metric(shape: Geometry, ridge: float) -> Metric:
    """Whiten every direction known with a ridge of ``ridge`` lambda, and all others alike.

    A large ridge gives the plain metric up to a factor.
    """
    sizes, lift = floored(shape, STRETCHED), float(_lifts(shape, np.array(ridge)))
    least = shape.rest if shape.p > len(shape.sizes) else float(np.min(sizes))
    return Metric(shape.scale, shape.directions, 1 / np.sqrt(sizes + lift), 1 / math.sqrt(least + lift))


def ridge_gains(shape: Geometry, ridges: tuple[float, ...]) -> Array:
    """Return the gains of ``metric`` for each ridge, of shape (ridges, k)."""
    return np.asarray(1 / np.sqrt(floored(shape, STRETCHED) + _lifts(shape, np.array(ridges))[:, None]))


def _lifts(shape: Geometry, ridges: Array) -> Array:
    largest = max(float(np.max(shape.sizes, initial=0.0)), shape.rest, _TINY)
    return np.asarray(ridges * shape.radius + _TINY * largest)


def true_spectrum(shape: Geometry) -> Array:
    """Return a spectrum (p,) with the trace and, up to the noise's reach, the second moment of the truth.

    xi of bulk eigenvectors is an average; the true sizes behind it spread. Without an intercept the bulk is replaced by
    a geometric sequence of the same sum whose squares add up to ||S + N||_F^2 - E ||N||_F^2, and which stays below the
    noise's half radius. With one, by the lowest quantiles of a law that has many small directions (``SPREAD``): these
    decide what few rounds leave, and no release shows them. Their sum is the mean given the released trace.
    """
    p, s, sw = shape.p, shape.noise, shape.radius / 2
    if len(shape.sizes) < p:
        return np.sort(np.concatenate([_falling(p - len(shape.sizes), shape.rest, shape.hidden), shape.sizes]))
    bulk = shape.observed < 2.1 * sw
    count = int(np.sum(bulk))
    if count < 3 or s == 0:
        return shape.sizes
    inside, outside = shape.sizes[bulk], shape.sizes[~bulk]
    squares = float(np.sum(shape.observed**2)) - s * s * p * (p + 1) / 2 - float(np.sum(outside**2))
    total = float(np.sum(inside))
    if shape.intercept:
        deviation = s * math.sqrt(p)
        measured = float(np.sum(shape.observed)) - float(np.sum(outside))
        total = min(total, positive_mean(measured, deviation, HIDDEN_TRACE))
        fan = (-np.log1p(-(count / p) * (np.arange(count) + 0.5) / count)) ** SPREAD
        return np.sort(np.concatenate([fan * total / np.sum(fan), outside]))
    rank = np.arange(count)[::-1] / count
    low, high = LEAST_RATE, 40.0
    for _ in range(40):
        rate = 0.5 * (low + high)
        fan = np.exp(-rate * rank)
        fan *= total / np.sum(fan)
        if np.sum(fan**2) < squares and np.max(fan) < sw:
            low = rate
        else:
            high = rate
    fan = np.exp(-low * rank)
    return np.sort(np.concatenate([fan * total / np.sum(fan), outside]))


def positive_mean(measured: float, deviation: float, mean: float) -> float:
    """Return the posterior mean of a positive number with an exponential prior of this mean, and Gaussian noise."""
    a = measured / deviation - deviation / mean
    if a < -30:
        return -deviation / a
    density = math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    return deviation * (a + density / (0.5 * math.erfc(-a / math.sqrt(2.0))))


def _diagonal(released: ReleasedSurvey) -> Geometry:
    """Independent columns around their mean: S = diag(variance) + mean mean'.

    Coordinates are scaled by 1 / sqrt(second moment + s); in them the mean is the one direction apart.
    """
    second, column = released.moment
    s, c = released.moment_noise, released.constant
    p = len(second)
    mean = np.zeros(p)
    if c > 0:
        second = np.append(second[:-1], c * c)
        mean = np.append(column[:-1] / c, c)
    lifted = np.maximum(second, 0.0) + s
    scale = 1 / np.sqrt(lifted)
    shrunk = np.maximum(second, 0.0) / lifted
    along = scale * mean
    length = float(np.linalg.norm(along))
    if length == 0:
        return Geometry(
            scale,
            np.zeros((p, 0)),
            np.zeros(0),
            float(np.mean(shrunk)),
            np.zeros(0),
            s,
            s * float(np.mean(scale**2)),
            mean,
        )
    size = length**2
    rest = max(float(np.sum(shrunk)) - size, 0.05 * p) / max(p - 1, 1)
    unit = float(np.median(s * scale**2))
    return Geometry(scale, (along / length)[:, None], np.array([size]), rest, np.array([size]), s, unit, mean)


def _falling(count: int, mean: float, largest: float) -> Array:
    """Return a geometric sequence of this mean that begins with ``largest``; a constant one if that is no larger."""
    if largest <= mean * (1 + 1e-9):
        return np.full(count, mean)
    rank = np.arange(count) / count
    low, high = 0.0, 40.0
    for _ in range(40):
        rate = 0.5 * (low + high)
        if np.mean(np.exp(-rate * rank)) * largest > mean:
            low = rate
        else:
            high = rate
    fan = np.exp(-high * rank)
    return np.asarray(fan * mean / np.mean(fan))


def _increasing(values: Array) -> Array:
    """Closest increasing sequence (pool adjacent violators)."""
    levels: list[float] = []
    counts: list[int] = []
    for value in values:
        levels.append(float(value))
        counts.append(1)
        while len(levels) > 1 and levels[-2] > levels[-1]:
            count = counts[-1] + counts[-2]
            levels[-2:] = [(levels[-1] * counts[-1] + levels[-2] * counts[-2]) / count]
            counts[-2:] = [count]
    return np.repeat(levels, counts)
