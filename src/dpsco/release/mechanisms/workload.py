"""Noise for Algorithm 1: the factorisation that is optimal for the algorithm's own linear response.

Statement
    On a direction of curvature h the final iterate depends on the noise N_t on prefix sum t as
    y_T = .. + sum_t v_t(q) N_t / (B beta), q = h / beta (algorithm_1.py). Under a prior over q (prior.py), the excess
    risk caused by noise is tr(G X^{-1}), X = C'C, with

        G = sum_k share_k A' v(q_k) v(q_k)' A  +  ridge * A'A        (both parts scaled to trace 1),

    and X minimises it under unit diagonal (optimal.py). The ridge is the share of the plain prefix sums in the
    workload. It bounds the noise of the intermediate iterates.
Sensitivity
    Every column of C has norm 1: sensitivity 1.
Error
    With the default prior the excess noise is at most 0.84 / 0.71 / 0.67 / 0.65 of square-root Toeplitz's at
    T = 16 / 64 / 128 / 512 for EVERY spectrum in (0, beta] and either z-step, and about 0.76 / 0.65 / 0.61 for
    typical ones. With the true spectrum M/i as the prior it is 0.72 / 0.46 / 0.37. In exchange the error of
    intermediate prefix sums is up to twice square-root Toeplitz's.
Guards
    While the max prefix error is above 2.2 times square-root Toeplitz's, the ridge doubles. If the noise of a fit
    under its own prior is above square-root Toeplitz's, square-root Toeplitz is used instead.
Pseudo-code
    X = optimum;  C = lower-triangular factor of X;  w_t = row t of C^{-1} Z
Cost
    a fit of about 0.05 s at T = 128 and 1 s at T = 512; t p multiply-adds in round t, T p-vectors of memory.
    For long horizons or large p, buffered_workload.py needs three p-vectors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dpsco.algorithm_1 import Z_STEPS, response
from dpsco.errors import one_of, positive
from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.optimal import decoder_of, optimal_for_gram, triangular_factor
from dpsco.release.mechanisms.prior import Prior, noise_of_gains, prior_for
from dpsco.release.mechanisms.protocol import Mechanism
from dpsco.release.mechanisms.toeplitz import SquareRoot

__all__ = ["PREFIX_LIMIT", "Workload", "default_ridge", "gram"]

PREFIX_LIMIT = 2.2
"""Largest max prefix error that is accepted, relative to square-root Toeplitz."""


def default_ridge(horizon: int) -> float:
    """Return the default share of the prefix workload.

    A third of it would lower the noise by 2 % and raise that of the intermediate iterates by 25 %.
    It grows slowly with T, so the guard on the max prefix error rarely applies.
    """
    return 0.03 * max(1.0, horizon / 64.0) ** (1.0 / 3.0)


class Workload(Mechanism):
    """The strategy of least excess noise for Algorithm 1 under a prior on curvature.

    Parameters
    ----------
    horizon : int
        Number of rounds T.
    z_step : {"halved", "listed"}
    prior : str or pair of arrays
        See ``prior_for``.
    ridge : float, optional
        Share of the plain prefix sums in the workload; ``default_ridge(horizon)`` by default.

    Examples
    --------
    >>> made, root = Workload(64), SquareRoot(64)
    >>> 1.0 < made.max_error / root.max_error < 2.2
    True
    """

    name = "workload"
    most_rounds = 1 << 10  # a fit in O(T^3) time

    def __init__(self, horizon: int, z_step: str = "halved", prior: Any = "robust", ridge: float | None = None) -> None:
        super().__init__(horizon)
        self.z_step = one_of("z_step", z_step, Z_STEPS)
        ridge = default_ridge(self.horizon) if ridge is None else ridge
        self.ridge = positive("ridge", ridge, "It is the share of the plain prefix sums in the workload.")
        self.prior = prior_for(prior, self.horizon, self.z_step)

    def strategy(self) -> Array:
        """Lower-triangular factor of X."""
        return _fitted(*self._settings)[0].copy()

    def decoder(self) -> Array:
        """B = A C^{-1}."""
        return _fitted(*self._settings)[1].copy()

    @cached_property
    def _settings(self) -> tuple[int, str, tuple[float, ...], tuple[float, ...], float]:
        ratios, shares = (tuple(part.tolist()) for part in self.prior)
        return self.horizon, self.z_step, ratios, shares, self.ridge


def gram(workload: Array, shares: Array, ridge: float) -> Array:
    """Compute ``G``: the prior's workload (rows v(q)'A) plus ``ridge`` times the prefix sums, each of trace 1."""
    prefix = np.tri(workload.shape[1])
    own, plain = (workload.T * shares) @ workload, prefix.T @ prefix
    return np.asarray(own / np.trace(own) + ridge * plain / np.trace(plain))


@lru_cache(maxsize=64)
def _fitted(
    horizon: int, z_step: str, ratios: tuple[float, ...], shares: tuple[float, ...], ridge: float
) -> tuple[Array, Array]:
    """Return C and B."""
    prior = Prior(np.array(ratios), np.array(shares))
    gains = response(prior.ratios, horizon, z_step).gains
    root = SquareRoot(horizon)
    root_noise = float(prior.shares @ noise_of_gains(gains))
    while ridge < 1e3:
        c = triangular_factor(optimal_for_gram(gram(gains @ np.tri(horizon), prior.shares, ridge)))
        b = decoder_of(c)
        if np.max(np.linalg.norm(b, axis=1)) <= PREFIX_LIMIT * root.max_error:
            if prior.shares @ np.sum((gains @ b) ** 2, axis=1) <= root_noise:
                return c, b
            break
        ridge *= 2.0
    c = root.strategy() / root.sensitivity
    return c, decoder_of(c)
