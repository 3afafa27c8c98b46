"""Priors over curvature: public knowledge, before training, for which a workload mechanism is optimised.

A prior is a list of curvature ratios q = h / beta in [0, 1] with one share each. Under it a mechanism causes the noise

    sum_k share_k || v(q_k)' B ||^2 sensitivity^2,        v the response of the final iterate (algorithm_1.py).

A spectrum h_1 .. h_p is the prior with share q_i at q_i. The sum is then the excess risk caused by noise, up to a
constant of the problem.

The default, "robust", assumes only 0 < h <= beta. The ratio of two sums is at most the largest ratio of their terms,
so the worst spectrum for "noise relative to square-root Toeplitz" is a single curvature, and

    min over C of max over q in [0, 1] of || v(q)' B ||^2 sensitivity^2 / (the same of square-root Toeplitz)

bounds every spectrum. Multiplicative weights find its least favourable prior (scripts/fit_worst_case_prior.py). The
package ships it in data/worst_case_prior.json for horizons 2^k, on a grid of q T^2 (the scale on which the response
changes; q = 0 represents directions too flat to be trained in T rounds), and interpolates between horizons. Each
weight is spread over the curvatures around its node: the response rotates by about sqrt(q) per round, and a strategy
fitted only to the nodes is poor between them. The robust prior adds a log-uniform part: at T = 64 it raises the worst
ratio from 0.70 to 0.71 and lowers the ratio of typical spectra by 6 %.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from dpsco.algorithm_1 import response
from dpsco.errors import InvalidArgument
from dpsco.query import Array
from dpsco.release.mechanisms.toeplitz import SquareRoot

__all__ = [
    "PRIORS",
    "Prior",
    "curvature_grid",
    "noise_of_gains",
    "prior_for",
    "robust_prior",
    "spreading",
    "square_root_noise",
]

PRIORS = ("robust", "log-uniform", "isotropic", "harmonic", "flat")
"""Names of priors. All but the first are spectra whose largest curvature is beta."""

LOG_UNIFORM_SHARE = 0.4
"""Share of the log-uniform part in the robust prior."""

FINE = 12
"""Curvatures per octave on the fine grid."""


class Prior(NamedTuple):
    """Curvature ratios and the share of each in the noise to be minimised."""

    ratios: Array
    shares: Array


def prior_for(prior: Any, horizon: int, z_step: str) -> Prior:
    """Return a prior by name, or from a pair (curvature ratios, weights).

    Parameters
    ----------
    prior : str or pair of arrays
        One of ``PRIORS``, or ratios h / beta in (0, 1] with the number of directions of each as weights.
    horizon : int
        Number of rounds T.
    z_step : {"halved", "listed"}
        The method's z-step.

    Raises
    ------
    InvalidArgument
        If the name is unknown or the pair is not valid.
    """
    if isinstance(prior, str):
        if prior == "robust":
            return robust_prior(horizon, z_step)
        if prior in PRIORS:
            ratios = _spectrum(prior)
            return Prior(ratios, ratios / np.sum(ratios))
        raise InvalidArgument(
            f"Unknown prior={prior!r}. Choose one of: {', '.join(PRIORS)}; or give a pair (curvature ratios, weights)."
        )
    try:
        ratios, weights = (np.atleast_1d(np.asarray(part, dtype=np.float64)) for part in prior)
    except (TypeError, ValueError):
        ratios = weights = np.empty(0)
    sound = ratios.ndim == 1 and ratios.size > 0 and ratios.shape == weights.shape
    if not (sound and np.all((ratios > 0) & (ratios <= 1) & (weights >= 0)) and 0 < np.sum(weights) < math.inf):
        raise InvalidArgument(
            "Expected prior to be a name or a pair (curvature ratios, weights) of equal length, with ratios h / beta "
            "in (0, 1] and weights >= 0, not all 0. The noise is optimised for these curvatures."
        )
    shares = ratios * weights
    return Prior(ratios, shares / np.sum(shares))


@lru_cache(maxsize=64)
def robust_prior(horizon: int, z_step: str) -> Prior:
    """Mix the least favourable prior with a log-uniform one, each curvature relative to square-root Toeplitz noise."""
    table = _shipped()[z_step]
    nodes = len(curvature_grid(horizon))
    # Weights are shipped at T = 2^k and interpolated in log T; beyond the last T, the last weights apply.
    exponent = min(math.log2(horizon), len(table) - 1.0)
    below, beyond = int(exponent), exponent % 1.0
    near, far = table[below], table[min(below + 1, len(table) - 1)]
    size = max(nodes, len(near), len(far))
    weights = (1.0 - beyond) * np.pad(near, (0, size - len(near))) + beyond * np.pad(far, (0, size - len(far)))
    weights = np.append(weights[: nodes - 1], np.sum(weights[nodes - 1 :]))  # weights beyond q = 1 count at q = 1
    ratios = curvature_grid(horizon, FINE)
    least_favourable = spreading(horizon) @ weights
    log_uniform = (ratios > 0.0) / (len(ratios) - 1.0)
    part = LOG_UNIFORM_SHARE if horizon > 2 else 0.0  # with two rounds, a gain at one curvature is a loss at another
    shares = (1.0 - part) * least_favourable / np.sum(weights) + part * log_uniform
    return Prior(ratios, shares / square_root_noise(ratios, horizon, z_step))


def curvature_grid(horizon: int, per_octave: int = 2) -> Array:
    """Return q = 0, then q T^2 = 4, 4 r, 4 r^2, .. below T^2 with r = 2^(1 / per_octave), then q = 1."""
    squared = float(horizon) ** 2
    count = max(0, math.ceil(per_octave * math.log2(max(squared / 4.0, 1.0)) - 1e-9))
    return np.array([0.0, *(4.0 * 2.0 ** (np.arange(count) / per_octave) / squared), 1.0])


def spreading(horizon: int) -> Array:
    """Return the matrix that spreads ``curvature_grid(horizon)`` over the fine grid: hat functions in log q.

    The node q = 0 keeps its weight.
    """
    nodes, fine = curvature_grid(horizon), curvature_grid(horizon, FINE)
    hats = np.zeros((len(fine), len(nodes)))
    hats[0, 0] = 1.0
    for k, unit in enumerate(np.eye(len(nodes) - 1), start=1):
        hats[1:, k] = np.interp(np.log(fine[1:]), np.log(nodes[1:]), unit)
    return np.asarray(hats / np.sum(hats, axis=0))


def square_root_noise(ratios: Array, horizon: int, z_step: str) -> Array:
    """Compute ``|| v(q)' B ||^2 sensitivity^2`` of square-root Toeplitz for each ratio; O(H T log T)."""
    return noise_of_gains(response(ratios, horizon, z_step).gains)


def noise_of_gains(gains: Array) -> Array:
    """Compute ``|| v' B ||^2 sensitivity^2`` of square-root Toeplitz for each row v of ``gains``; O(H T log T).

    v'B is a correlation with the Toeplitz coefficients, done by FFT.
    """
    root = SquareRoot(gains.shape[1])
    size = 2 * root.horizon
    answers = np.fft.irfft(np.fft.rfft(gains[:, ::-1], size) * np.fft.rfft(root.coefficients, size), size)
    return np.asarray(np.sum(answers[:, : root.horizon] ** 2, axis=1) * root.sensitivity**2)


def _spectrum(name: str) -> Array:
    i = np.arange(1.0, 51.0)
    spectra = {
        "isotropic": np.ones(1),
        "harmonic": 1.0 / i,
        "flat": i / 50.0,
        "log-uniform": np.geomspace(1e-3, 1.0, 60),
    }
    return spectra[name]


@lru_cache(maxsize=1)
def _shipped() -> dict[str, list[list[float]]]:
    text = (
        resources.files("dpsco.release.mechanisms").joinpath("data/worst_case_prior.json").read_text(encoding="utf-8")
    )
    return dict(json.loads(text)["weights"])
