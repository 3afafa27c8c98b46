"""Buffered linear Toeplitz (Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024; McMahan, Xu, Zhang 2024).

Statement
    C is lower-triangular Toeplitz with c_0 = 1 and c_k = sum_i omega_i theta_i^(k-1), a sum of a few geometric
    sequences; B = A C^{-1}. Applying C^{-1} needs one buffer per sequence.
Sensitivity
    All c_k >= 0, so column 0 is the longest: sqrt(sum_{k<T} c_k^2).
Error
    sensitivity * sqrt(sum_{k<=t} b_k^2), b the first column of B. With F = diag(theta) - 1 omega' (similar to the
    symmetric diag(theta) - s s', s = sqrt(omega), eigenpairs lambda_i, r_i),
        b_k = 1 - sum_i g_i (1 - lambda_i^k) / (1 - lambda_i),        g_i = (s . r_i)^2,
    so the max error is a closed form in theta, omega and T. It is minimised at run time with 1, 2, .. buffers until it
    is within 0.1 % of square-root Toeplitz: 2 buffers at T = 16, 3 at T = 256, 4 at T = 4096.
Pseudo-code
    u_t = z_t - sum_i omega_i S_i;    S_i <- theta_i S_i + u_t;    w_t = u_t
Cost
    a fit of about 0.1 s at any T; 4 buffers p multiply-adds per round, and one p-vector per buffer, at any T.
"""

from __future__ import annotations

import abc
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsco.lazy import cached_property
from dpsco.query import Array
from dpsco.release.mechanisms.protocol import Draw, Mechanism, NoiseBuffers
from dpsco.release.mechanisms.toeplitz import SquareRoot, lower_toeplitz

__all__ = ["Buffered", "BufferedToeplitz", "Decays", "starting_point", "unpack"]

BLOCK = 8192
"""Entries processed at a time, so that each buffer is read from memory once per round."""

CLOSE_ENOUGH = 1.001
"""Max error relative to square-root Toeplitz at which no further buffer is added."""

MOST_BUFFERS = 8


class Decays(NamedTuple):
    """The decays of ``c_k = sum_i omega_i theta_i^(k-1)``."""

    theta: Array
    omega: Array

    def coefficients(self, horizon: int) -> Array:
        """Return the first column of the Toeplitz matrix L."""
        k = np.arange(horizon - 1.0)
        return np.concatenate([[1.0], np.sum(self.omega * self.theta ** k[:, None], axis=1)])

    def inverse_coefficients(self, horizon: int) -> Array:
        """Return the first column of L^{-1}, by the recursion that streaming uses."""
        state, u = np.zeros_like(self.theta), np.empty(horizon)
        for t in range(horizon):
            u[t] = (t == 0) - self.omega @ state
            state = self.theta * state + u[t]
        return u

    def modes(self) -> tuple[Array, Array]:
        """Return ``1 - lambda_i`` and ``g_i`` of the statement."""
        s = np.sqrt(self.omega)
        gaps, vectors = np.linalg.eigh(np.diag(1.0 - self.theta) + np.outer(s, s))
        return gaps, (s @ vectors) ** 2


class Buffered(Mechanism):
    """``C = L D^{-1}``: L is a sum of geometric sequences, D a diagonal that rescales its columns."""

    @abc.abstractmethod
    def fit(self) -> Decays:
        """Return the decays of L."""

    @cached_property
    def decays(self) -> Decays:
        """The fitted decays of L."""
        return self.fit()

    @cached_property
    def scale(self) -> Array:
        """Diagonal of D."""
        return np.ones(self.horizon)

    def strategy(self) -> Array:
        """C = L D^{-1}."""
        return lower_toeplitz(self.decays.coefficients(self.horizon)) / self.scale

    def decoder(self) -> Array:
        """B = A D L^{-1}."""
        inverse = lower_toeplitz(self.decays.inverse_coefficients(self.horizon))
        return np.cumsum(self.scale[:, None] * inverse, axis=0)

    @property
    def memory(self) -> int:
        """One buffer per decay."""
        return len(self.decays.theta)

    def increment(self, buffers: NoiseBuffers, step: int, draw: Draw) -> tuple[Array, NoiseBuffers]:
        """Follow the pseudo-code above, block by block, in the buffers themselves."""
        self._in_horizon(step)
        noise = draw(step)
        if not buffers:
            buffers = tuple(np.zeros_like(noise) for _ in self.decays.theta)
        for start in range(0, noise.size, BLOCK):
            part = slice(start, start + BLOCK)
            for omega, buffer in zip(self.decays.omega, buffers, strict=True):
                noise[part] -= omega * buffer[part]
            for theta, buffer in zip(self.decays.theta, buffers, strict=True):
                buffer[part] *= theta
                buffer[part] += noise[part]
            noise[part] *= self.scale[step]
        return noise, buffers


class BufferedToeplitz(Buffered):
    """Max error within 0.2 % of square-root Toeplitz, with a few p-vectors of memory."""

    name = "blt"
    most_rounds = 1 << 20  # one recursion per round, and a fit that repeats it

    def fit(self) -> Decays:
        """Fit the decays to the max error; results are cached."""
        return _fitted(self.horizon)

    def decoder(self) -> Array:
        """B = A L^{-1}, Toeplitz."""
        return lower_toeplitz(np.cumsum(self.decays.inverse_coefficients(self.horizon)))

    @cached_property
    def sensitivity(self) -> float:
        """Norm of column 0."""
        return float(np.linalg.norm(self.decays.coefficients(self.horizon)))

    @cached_property
    def errors(self) -> Array:
        """Sensitivity times the row norms of B."""
        b = np.cumsum(self.decays.inverse_coefficients(self.horizon))
        return np.asarray(self.sensitivity * np.sqrt(np.cumsum(b**2)))


def starting_point(horizon: int, buffers: int) -> Array:
    """Return parameters (logit of 1 - theta, log omega): a quadrature of c_k = integral of theta^(k-1) d omega(theta).

    For square-root Toeplitz d omega = sqrt(theta / (1 - theta)) / pi d theta, of total mass c_1 = 1/2; nodes are
    spread in log(1 - theta).
    """
    edges = np.geomspace(min(0.3, 0.3 / horizon), 0.95, buffers + 1)
    gaps = np.sqrt(edges[1:] * edges[:-1])
    omega = np.sqrt((1.0 - gaps) / gaps) * np.diff(edges)
    return np.concatenate([np.log(gaps / (1.0 - gaps)), np.log(0.5 * omega / np.sum(omega))])


def unpack(parameters: Array) -> Decays:
    """Map unconstrained parameters to decays with 0 < theta < 1 and omega > 0."""
    bounded = np.clip(parameters, -30.0, 30.0)
    half = len(parameters) // 2
    return Decays(theta=1.0 / (1.0 + np.exp(bounded[:half])), omega=np.exp(bounded[half:]))


def _log_max_error(parameters: Array, horizon: int) -> float:
    """Compute the logarithm of the max error in closed form; 100 where C^{-1} is unstable."""
    decays = unpack(parameters)
    gaps, g = decays.modes()
    if gaps[-1] >= 2.0:
        return 100.0
    columns = 1.0 + decays.omega @ _geometric_sums(1.0 - decays.theta, horizon - 1) @ decays.omega
    # b_k = constant + sum_i beta_i lambda_i^k; the constant is a geometric sequence of ratio 1.
    beta = g / gaps
    weights = np.append(beta, 1.0 - np.sum(beta))
    rows = weights @ _geometric_sums(np.append(gaps, 0.0), horizon) @ weights
    return 0.5 * float(np.log(columns) + np.log(rows))


def _geometric_sums(gaps: Array, terms: int) -> Array:
    """Compute ``sum_{k < terms} (a_i a_j)^k`` with a = 1 - gaps, accurately also for a near 1."""
    gap = np.add.outer(gaps, gaps) - np.outer(gaps, gaps)  # 1 - a_i a_j
    near = gap < 0.5
    lost = np.where(near, -np.expm1(terms * np.log1p(-np.where(near, gap, 0.0))), 1.0 - (1.0 - gap) ** terms)
    return np.asarray(np.where(gap > 0.0, lost / np.where(gap > 0.0, gap, 1.0), float(terms)))


@lru_cache(maxsize=256)
def _fitted(horizon: int) -> Decays:
    from scipy.optimize import minimize

    target = np.log(CLOSE_ENOUGH * SquareRoot(horizon).max_error)
    for buffers in range(1, MOST_BUFFERS + 1):
        fit = minimize(_log_max_error, starting_point(horizon, buffers), args=(horizon,), method="BFGS")
        if fit.fun <= target:
            break
    return unpack(fit.x)
