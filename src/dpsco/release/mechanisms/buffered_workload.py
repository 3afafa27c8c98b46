"""The workload mechanism with two or three p-vectors of memory, for long horizons and large models.

Statement
    C = L D^{-1}: L is buffered linear Toeplitz (blt.py), D the norms of its columns. Every column then has norm 1,
    also the late ones, which are short in L. This freedom gives most of the gain of the dense optimum (workload.py).
    The decays are fitted to the same prior, with a ridge and the same guard on the prefix errors:

        minimise  noise(C)  +  ridge * mean square prefix error(C),        both relative to square-root Toeplitz,

    noise under a given prior, or for "robust" the 16-norm over all curvatures, which is close to the largest.
Sensitivity
    1: every column has norm 1.
Error
    Excess noise relative to square-root Toeplitz, worst curvature in (0, beta], halved / listed z-step:
    0.73 / 0.76 at T = 64, 0.66 / 0.70 at T = 512, 0.65 / 0.69 at T = 4096. This is 3 % to 11 % above the dense
    optimum, and no worse than it for typical spectra. A known spectrum as the prior gains less here (M/i at T = 64:
    0.59 against 0.46), because a few decays cannot follow it.
Pseudo-code
    u_t = z_t - sum_i omega_i S_i;    S_i <- theta_i S_i + u_t;    w_t = D_t u_t
Cost
    a fit of 0.02 s at T = 64 and 2 s at T = 4096; 2 or 3 p-vectors of memory at any T.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dpsco.algorithm_1 import Z_STEPS, response
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.blt import Buffered, Decays, starting_point, unpack
from dpsco.release.mechanisms.prior import Prior, curvature_grid, prior_for, square_root_noise
from dpsco.release.mechanisms.toeplitz import SquareRoot
from dpsco.release.mechanisms.workload import PREFIX_LIMIT

__all__ = ["BufferedWorkload"]

RIDGE = 0.01
"""Share of the prefix workload. The dense form needs more, because its intermediate errors are larger."""

NORM = 16.0
"""Exponent of the norm over all curvatures: smooth enough to minimise, close enough to the maximum."""

PREFIX_SAMPLES = 8
"""Number of prefix sums that represent all of them in the fit; the guard checks every one."""


class BufferedWorkload(Buffered):
    """Workload noise with ``buffers`` p-vectors of memory.

    Parameters
    ----------
    horizon : int
        Number of rounds T.
    z_step : {"halved", "listed"}
    prior : str or pair of arrays
        See ``prior_for``.
    ridge : float
        Share of the plain prefix sums in the workload.
    buffers : int, optional
        2 up to T = 128, then 3.
    """

    name = "workload"
    most_rounds = 1 << 16  # a fit of seconds, and about 400 bytes per round

    def __init__(
        self,
        horizon: int,
        z_step: str = "halved",
        prior: Any = "robust",
        ridge: float = RIDGE,
        buffers: int | None = None,
    ) -> None:
        super().__init__(horizon)
        self.z_step = one_of("z_step", z_step, Z_STEPS)
        self.ridge = positive("ridge", ridge, "It is the share of the plain prefix sums in the workload.")
        if buffers is None:
            buffers = 2 if self.horizon <= 128 else 3
        self.buffers = positive_integer("buffers", buffers, "It is the number of p-vectors kept between rounds.")
        self.robust = isinstance(prior, str) and prior == "robust"
        if self.robust:
            self.prior = _every_curvature(self.horizon, self.z_step)
        else:
            self.prior = prior_for(prior, self.horizon, self.z_step)

    def fit(self) -> Decays:
        """Fit the decays to the prior; results are cached."""
        ratios, shares = (tuple(part.tolist()) for part in self.prior)
        norm = NORM if self.robust else 1.0
        return _fitted(self.horizon, self.z_step, ratios, shares, norm, self.ridge, self.buffers)

    @cached_property
    def scale(self) -> Array:
        """Column norms of L."""
        return _column_norms(self.decays, self.horizon)

    @cached_property
    def sensitivity(self) -> float:
        """1."""
        return 1.0

    @cached_property
    def errors(self) -> Array:
        """Prefix errors in O(T) time and memory."""
        return _prefix_errors(self.decays, self.horizon)


def _every_curvature(horizon: int, z_step: str) -> Prior:
    """Return a grid of (0, beta], each curvature relative to the noise of square-root Toeplitz there."""
    ratios = curvature_grid(horizon, per_octave=2 if horizon <= 512 else 1)
    return Prior(ratios, 1.0 / square_root_noise(ratios, horizon, z_step))


def _column_norms(decays: Decays, horizon: int) -> Array:
    return np.asarray(np.sqrt(np.cumsum(decays.coefficients(horizon) ** 2))[::-1])


def _prefix_errors(decays: Decays, horizon: int) -> Array:
    """Compute errors from the covariance of (S, prefix sum): a small product per round, no T x T matrix."""
    scale = _column_norms(decays, horizon)
    size = len(decays.theta)
    covariance, errors = np.zeros((size + 1, size + 1)), np.empty(horizon)
    for t in range(horizon):
        # u = z - omega . S enters each S_i once and the prefix sum scale_t times.
        entry = np.append(np.ones(size), scale[t])
        step = np.diag(np.append(decays.theta, 1.0)) - np.outer(entry, np.append(decays.omega, 0.0))
        covariance = step @ covariance @ step.T + np.outer(entry, entry)
        errors[t] = np.sqrt(covariance[size, size])
    return errors


@lru_cache(maxsize=64)
def _fitted(
    horizon: int,
    z_step: str,
    ratios: tuple[float, ...],
    shares: tuple[float, ...],
    norm: float,
    ridge: float,
    buffers: int,
) -> Decays:
    from scipy.optimize import minimize
    from scipy.signal import lfilter

    root = SquareRoot(horizon)
    curvatures = np.array(ratios)
    sums = np.cumsum(response(curvatures, horizon, z_step).gains[:, ::-1], axis=1)[:, ::-1]  # v'A
    own = np.sqrt(shares)[:, None] * sums
    samples = np.unique(np.linspace(0, horizon - 1, PREFIX_SAMPLES).astype(int))
    plain = (np.arange(horizon) <= samples[:, None]) / (np.sqrt(len(samples)) * root.mean_error)
    backwards = np.vstack([own, plain])[:, ::-1]  # rows times L^{-1} run from the last round to the first
    of_root = np.array(shares) * square_root_noise(curvatures, horizon, z_step)

    def noise(parameters: Array) -> tuple[float, float]:
        """Noise under the prior and mean square prefix error, both relative to square-root Toeplitz."""
        decays = unpack(parameters)
        gaps, _ = decays.modes()
        if gaps[-1] >= 2.0:  # C^{-1} is unstable
            return 1e40, 1e40
        scaled = backwards * _column_norms(decays, horizon)[::-1]
        squares = np.sum(lfilter(np.poly(decays.theta), np.poly(1.0 - gaps), scaled, axis=1) ** 2, axis=1)
        prior_part = np.sum(squares[: len(ratios)] ** norm) ** (1.0 / norm)
        return float(prior_part / np.sum(of_root**norm) ** (1.0 / norm)), float(np.sum(squares[len(ratios) :]))

    def objective(parameters: Array, ridge: float) -> float:
        prior_part, prefix_part = noise(parameters)
        return float(np.log(prior_part + ridge * prefix_part))

    point = starting_point(horizon, buffers)
    while ridge < 1e3:
        point = minimize(objective, point, args=(ridge,), method="BFGS", options={"gtol": 1e-4, "maxiter": 100}).x
        if np.max(_prefix_errors(unpack(point), horizon)) <= PREFIX_LIMIT * root.max_error:
            break
        ridge *= 2.0
    if noise(point)[0] > 1.0 + 1e-6:
        raise InvalidArgument(
            f"buffers={buffers} are too few for horizon={horizon}: the noise would be larger than with "
            "square-root Toeplitz. Increase buffers, or use mechanism='blt'."
        )
    return unpack(point)
