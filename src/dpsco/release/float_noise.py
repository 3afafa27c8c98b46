"""The distance between float64 noise and Gaussian noise, and the dither that keeps it small on fine grids.

A float64 normal has finitely many values. A grid cell much narrower than the noise contains few of them, and their
number differs between cells. Over a million coordinates these differences can reveal more about a row than a small mu
allows. So a released sum is

    D + round_grid(w~) + U,      U uniform on the multiples of the grid in a window of width s = 2^k grid,

where w~ is the float64 version of the Gaussian noise w.

Statement
    Let eta bound |w~ - w|, let p be the dimension and T the number of rounds, and let zeta be a number of standard
    deviations that no Gaussian of the run exceeds, except with probability delta/1000. Then the released values are
    those of the exact Gaussian mechanism up to a factor e^(+-kappa), except with probability delta/500, where

        kappa = a sqrt(2 p ln(2000 / delta)) + p a^2,
        a = T 2.05 (eta / s) (1 + zeta sensitivity s / sigma).

Proof
    1. D is on the grid, so D + round(w) + U = round(D + w) + U: post-processing of D + w. With the exact w the release
       is as private as the Gaussian mechanism. Call its noise law Q, and P the law with w~.
    2. Of one coordinate, Q(n_0 .. n_(T-1)) is s'^-T times the probability that w lies in a box with sides s, where
       s' = s / grid; P is the same with w~. The box for w~ lies between the boxes for w with sides s - 2 eta and
       s + 2 eta.
    3. In direction t the log-density of w has slope (Sigma^-1 w)_t. It is Gaussian with standard deviation at most
       sensitivity / sigma (the column norms of the lower-triangular factor; mechanisms/protocol.py), so the slope is at
       most l = zeta sensitivity / sigma. The integral over two strips of width eta of a function with log-slopes up to
       l is at most 2 (eta / s) (1 + l s) e^(l eta) of its integral over the side. T directions give |log P/Q| <= a per
       coordinate.
    4. The noise of different coordinates is independent, also with adaptive sums: for fixed data, noise and releases
       determine each other. Hoeffding's inequality bounds the sum of p terms in [-a, a], each with mean at most a^2.
    5. If Q is m-GDP and P is within e^(+-kappa) of it, either error of a test changes by at most
       (e^kappa - 1) min(error, 1 - error). In normal quantiles that is at most sqrt(pi / 2) kappa (Mills' ratio at 0),
       so P is (m + 2.6 kappa)-GDP for kappa <= 0.02: 2 sqrt(pi / 2) = 2.507.

The bound eta
    ``COUPLING`` bounds the distance between a float64 normal and the exact normal with the same quantile, also in the
    tails (noise.py; a test computes it from the tables of the sampler). Streaming adds T + 32 roundings of sums whose
    standard deviation is at most that of an increment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.errors import InvalidArgument

__all__ = ["COUPLING", "GDP_COST", "LARGEST_LOSS", "Smoothing", "smoothing"]

COUPLING = 2.0**-46
"""Largest distance between a float64 normal and the exact normal with the same quantile."""

GDP_COST = 2.6
"""A distribution within e^(+-kappa) of an m-GDP one is (m + GDP_COST kappa)-GDP."""

LARGEST_LOSS = 0.02
"""Largest kappa for which ``GDP_COST`` holds."""

_ROUNDOFF = 2.0**-53
_MOST = 0.1  # of mu: a plan with a larger cost is refused
_WIDEST = 0.5  # of sigma


@dataclass(frozen=True)
class Smoothing:
    """A window and its remaining cost."""

    window: float
    """Width s of the dither, a power of two; the grid itself if no dither is needed."""
    loss: float
    """The bound kappa."""


def smoothing(
    *,
    mu: float,
    delta: float,
    sigma: float,
    grid: float,
    dimension: int,
    rounds: int,
    sensitivity: float = 1.0,
    absolute: float = 1.0,
    deviation: float = 1.0,
    boxes: int | None = None,
) -> Smoothing:
    """Find the window of least cost: its share of mu plus its share of the noise's variance.

    Parameters
    ----------
    mu, delta : float
        The guarantee.
    sigma, grid : float
        Standard deviation and grid of the noise.
    dimension, rounds : int
        Numbers p of coordinates and T of rounds.
    sensitivity : float
        Sensitivity of the mechanism.
    absolute, deviation : float
        Bounds on the l1 and l2 norms of the rows that compute an increment from draws.
    boxes : int, optional
        Number of rounds that share draws: all of them by default, 1 if rounds are independent.

    Raises
    ------
    InvalidArgument
        If no window brings kappa below a tenth of what mu allows.
    """
    together = rounds if boxes is None else boxes
    coordinates = dimension * rounds // together
    far = math.sqrt(2.0 * math.log(1000.0 * dimension * rounds * (rounds + 2) / delta))
    eta = absolute * COUPLING + (together + 32) * _ROUNDOFF * deviation * far

    def loss(width: float) -> float:
        each = together * 2.05 * (eta / width) * (1.0 + far * sensitivity * width)
        return each * math.sqrt(2.0 * coordinates * math.log(2000.0 / delta)) + coordinates * each * each

    best, least, window = math.inf, math.inf, grid
    width = grid / sigma
    while True:
        found = loss(width)
        cost = GDP_COST * found / mu + (together * width * width / 24.0 if width > grid / sigma else 0.0)
        if cost >= least:
            break
        best, least, window = found, cost, width * sigma
        width *= 2.0
        if width > _WIDEST:
            break
    if not best <= min(LARGEST_LOSS, _MOST * mu / GDP_COST):
        raise InvalidArgument(
            f"Float64 noise is not close enough to Gaussian noise for {dimension:,} coordinates in {rounds:,} rounds "
            f"at mu={mu:.3g}. Use a larger epsilon, fewer rounds or a smaller model."
        )
    return Smoothing(math.ldexp(1.0, round(math.log2(window))), best)
