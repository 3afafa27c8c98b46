"""The distance between float64 noise and Gaussian noise, and the dither that keeps it small on fine grids.

A float64 normal has finitely many values. A grid cell much narrower than the noise contains few of them, and their
number differs between cells. Over a million coordinates these differences can reveal more about a row than a small mu
allows. So a released sum is

    D + round_grid(w~) + U,      U uniform on the multiples of the grid in a window of width s = 2^k grid,

where w~ is the float64 version of the Gaussian noise w.

Statement
    Let eta_t bound |w~_t - w_t|, let p be the dimension and T the number of rounds, and let zeta be a number of
    standard deviations that no Gaussian of the run exceeds, except with probability l/4. Then the released values have
    a law that is the exact Gaussian mechanism's up to a factor e^(+-kappa), and up to a change of probability l, where

        kappa = a sqrt(2 p ln(8 / l)) + p a^2,
        a = sum over t of 2.05 (eta_t / s) (1 + (zeta + sensitivity s / sigma) sensitivity s / sigma).

    ``Budget.log_float_loss`` is log l. With kappa paid in mu, a change by l of either neighbour adds (1 + e^epsilon) l
    to delta(epsilon). ``Budget.mu`` leaves room for it: the total is at most delta.

Proof
    1. D is on the grid, so D + round(w) + U = round(D + w) + U: post-processing of D + w. With the exact w the release
       is as private as the Gaussian mechanism. Call its noise law Q, and P the law with w~.
    2. Of one coordinate, Q(n_0 .. n_(T-1)) is s'^-T times the probability that w lies in a box with sides s, where
       s' = s / grid; P is the same with w~. Exchange w_t for w~_t one round after the other. In step k, rounds before k
       ask about w~, rounds after k about w.
    3. Let v be column k of C. It is 0 in the rows drawn before round k, and the increments of B v are the unit vector
       of round k. So along a line Z + x v, which moves w_k by x, all that the other rounds ask about stays the same:
       w~_t before k does not change, nor does w_t after k. The log-density has slope -(Z + x v).v / sigma^2 on the
       line. At Z it is Gaussian with standard deviation |v| / sigma <= sensitivity / sigma; along a side s it changes
       by at most s |v|^2 / sigma^2. So on a line with a point in the box where the slope is at most
       zeta sensitivity / sigma, it is at most b = (zeta + sensitivity s / sigma) sensitivity / sigma in all of the box.
       The set {w~_k in the box} lies between the sides s - 2 eta_k and s + 2 eta_k. Strips of width eta_k at both ends
       have at most 2 (eta_k / s) (1 + b s) e^(b eta_k) of the integral over the side. Other lines have a probability of
       at most twice that of a slope beyond zeta, in all boxes together.
    4. Steps 0 .. T - 1 together: |log P/Q| <= a per coordinate, up to a change of probability, T p times that of a
       Gaussian beyond zeta. The noise of different coordinates is independent, also with adaptive sums: for fixed data,
       noise and releases determine each other. Hoeffding's inequality bounds the sum of p terms in [-a, a], each with
       mean at most a^2, up to probability l/4. Draws beyond ``NOISE_SUPPORT`` have the last l/2 (check_support).
    5. If Q is m-GDP and P is within e^(+-kappa) of it, either error of a test changes by at most
       (e^kappa - 1) min(error, 1 - error). In normal quantiles that is at most sqrt(pi / 2) kappa (Mills' ratio at 0),
       so P is (m + 2.6 kappa)-GDP for kappa <= 0.02: 2 sqrt(pi / 2) = 2.507. This is paid for each record: a group of k
       records pays k times.

The bound eta
    ``COUPLING`` bounds the distance between a float64 normal and the exact normal with the same quantile, also in the
    tails up to ``NOISE_SUPPORT`` (noise.py; tests compute it from the tables of the sampler). ``Mechanism.increments``
    counts the roundings of sums, and the standard deviation of those sums is at most that of an increment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.errors import InvalidArgument
from dpsco.release.mechanisms.protocol import ROUNDINGS, Increments

__all__ = ["COUPLING", "GDP_COST", "LARGEST_LOSS", "Smoothing", "smoothing"]

COUPLING = 2.0**-46
"""Largest distance between a float64 normal and the exact normal with the same quantile."""

GDP_COST = 2.6
"""A distribution within e^(+-kappa) of an m-GDP one is (m + GDP_COST kappa)-GDP."""

LARGEST_LOSS = 0.02
"""Largest kappa for which ``GDP_COST`` holds."""

_ROUNDOFF = 2.0**-53
_MOST = 0.25  # of mu: a plan with a larger cost is refused
_WIDEST = 0.5  # of sigma
_ONE_DRAW = Increments(1.0, 1.0 + ROUNDINGS)


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
    log_loss: float,
    sigma: float,
    grid: float,
    dimension: int,
    rounds: int,
    sensitivity: float = 1.0,
    increments: Increments = _ONE_DRAW,
    boxes: int | None = None,
) -> Smoothing:
    """Find the window of least cost: its share of mu plus its share of the noise's variance.

    Parameters
    ----------
    mu : float
        The guarantee for one record.
    log_loss : float
        Logarithm of l, ``Budget.log_float_loss``.
    sigma, grid : float
        Standard deviation and grid of the noise.
    dimension, rounds : int
        Numbers p of coordinates and T of rounds.
    sensitivity : float
        Sensitivity of the mechanism.
    increments : Increments
        How the mechanism computes an increment; one draw by default.
    boxes : int, optional
        Number of rounds that share draws: all of them by default, 1 if rounds are independent.

    Returns
    -------
    Smoothing

    Raises
    ------
    InvalidArgument
        If no window brings kappa below a quarter of what mu allows.
    """
    together = rounds if boxes is None else boxes
    coordinates = dimension * rounds // together
    far = math.sqrt(2.0 * (math.log(16.0 * dimension * rounds * (rounds + 2)) - log_loss))
    eta = increments.absolute * COUPLING + increments.rounded * _ROUNDOFF * far

    def loss(width: float) -> float:
        side = sensitivity * width
        each = together * 2.05 * (eta / width) * (1.0 + (far + side) * side)
        return each * math.sqrt(2.0 * coordinates * (math.log(8.0) - log_loss)) + coordinates * each * each

    most, least, best, window = min(LARGEST_LOSS, _MOST * mu / GDP_COST), math.inf, math.inf, grid
    width = grid / sigma
    while width <= _WIDEST or width == grid / sigma:
        found = loss(width)
        cost = GDP_COST * found / mu + (together * width * width / 24.0 if width > grid / sigma else 0.0)
        if found <= most and cost < least:
            best, least, window = found, cost, width * sigma
        width *= 2.0
    if math.isinf(best):
        raise InvalidArgument(
            f"Float64 noise is not close enough to Gaussian noise for {dimension:,} coordinates in {rounds:,} rounds "
            f"at mu={mu:.3g}. Use a larger epsilon, fewer rounds or a smaller model."
        )
    return Smoothing(math.ldexp(1.0, round(math.log2(window))), best)
