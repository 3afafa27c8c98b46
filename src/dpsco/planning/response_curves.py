"""Tables of the linear response of Algorithm 1 and its unaccelerated variant (algorithm_1.py), by curvature ratio.

For a direction of curvature ratio q = h / beta, T rounds of B rows leave in y_T

    decay(q)     r^2                        share of the squared distance to the optimum that is left
    sampling(q)  || v' A ||^2               from increments of unit variance, independent from round to round
    noise(q)     || v' B ||^2 sensitivity^2 from privacy noise at unit clip and mu = 1

and on the way there each row is asked for the difference u_t = eta_t x_t - eta_{t-1} x_{t-1}. What u_t holds decides
how much rows disagree beyond the noise of their gradients at the optimum:

    drift(q)     mean over t of u_t^2 that the distance 1 at the start causes
    motion(q)    mean over t of Var(u_t) that increments of unit variance cause
    shake(q)     the same of privacy noise at unit clip and mu = 1

Cost: a few milliseconds per horizon, kept for the next plan.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.algorithm_1 import NO_Z, eta, response, update
from dpsco.query import Array
from dpsco.release.mechanisms.prior import noise_of_gains
from dpsco.release.mechanisms.protocol import Mechanism
from dpsco.release.mechanisms.toeplitz import SquareRoot

__all__ = ["LONGEST", "ResponseCurves", "interpolated", "mechanism_noise", "ratio_weights", "response_curves"]

LONGEST = 256
"""No plan of the response rule has more rounds: beyond, rounds cost and buy nothing measurable."""

# Finer where the algorithm turns from stable to unstable, which is above q = 1.
_COARSE = 60
_RATIOS = np.concatenate([np.geomspace(1e-6, 0.05, _COARSE, endpoint=False), np.geomspace(0.05, 4.0, 101)])
_PLACES = np.log(_RATIOS)
_WIDTHS = np.diff(_PLACES)
_HUGE = 1e60


class ResponseCurves(NamedTuple):
    """Each curve at the tabulated ratios."""

    decay: Array
    sampling: Array
    noise: Array
    drift: Array
    motion: Array
    shake: Array


def interpolated(ratios: Array, *tables: Array) -> Array:
    """Each table at any curvature ratios, by linear interpolation in log q; tables first."""
    places = np.clip(np.log(np.maximum(ratios, _RATIOS[0])), _PLACES[0], _PLACES[-1])
    below = _below(places)
    values = np.array(tables)
    slopes = np.diff(values, axis=1) / np.diff(_PLACES)
    return np.asarray(slopes[:, below] * (places - _PLACES[below]) + values[:, below])


def _below(places: Array) -> NDArray[np.intp]:
    """Index of the tabulated ratio below each place: both parts of the table are even in log q, so none is searched."""
    coarse, fine = ((_COARSE - 1) / (_PLACES[_COARSE - 1] - _PLACES[0]), 100.0 / (_PLACES[-1] - _PLACES[_COARSE]))
    above = places - _PLACES[_COARSE]
    above *= fine
    above += _COARSE
    found = places - _PLACES[0]
    found *= coarse
    np.copyto(found, above, where=places >= _PLACES[_COARSE])
    index = found.astype(np.intp)
    return np.clip(index, 0, len(_PLACES) - 2, out=index)  # a place that is NaN has an index too


def ratio_weights(ratios: Array, amounts: Array) -> tuple[slice, Array]:
    """Weights w with  sum_i amounts[i] interpolated(ratios[i], table) = w . table[used]  for every table.

    Parameters
    ----------
    ratios : array of shape (.., directions)
        Curvature ratios.
    amounts : array of shape (k, .., directions)
        What each direction counts, in k ways; leading axes of the ratios may be missing.

    Returns
    -------
    used : slice
        The tabulated ratios that occur.
    weights : array of shape (k, .., used ratios)
    """
    places = np.maximum(ratios, _RATIOS[0])
    np.clip(np.log(places, out=places), _PLACES[0], _PLACES[-1], out=places)
    below = _below(places)
    above = np.subtract(places, _PLACES[below], out=places)
    above /= _WIDTHS[below]
    used = slice(int(np.min(below)), int(np.max(below)) + 2)
    k, lines, width = len(amounts), math.prod(ratios.shape[:-1]), used.stop - used.start
    row = np.arange(lines).reshape(ratios.shape[:-1])[..., None]
    at = np.empty((2, *ratios.shape), np.intp)
    np.add(row * width, below - used.start, out=at[0])
    np.add(at[0], 1, out=at[1])  # no place is the last of its line
    parts = np.empty(at.shape)
    out = np.empty((k, lines * width))
    for one, amount in zip(out, amounts, strict=True):
        np.multiply(amount, above, out=parts[1])
        np.subtract(amount, parts[1], out=parts[0])
        one[:] = np.bincount(at.ravel(), parts.ravel(), one.size)
    return used, out.reshape(k, *ratios.shape[:-1], width)


@lru_cache(maxsize=256)
def response_curves(rounds: int, z_step: str) -> ResponseCurves:
    """Return the curves of ``rounds`` rounds, with the noise of square-root Toeplitz."""
    with np.errstate(over="ignore", invalid="ignore"):
        decay, gains = response(_RATIOS, rounds, z_step)
        sampling = np.sum(np.cumsum(gains[:, ::-1], axis=1) ** 2, axis=1)
        noise = noise_of_gains(gains)
        motions = (table[min(rounds, LONGEST) - 1] for table in _motions(z_step))
        parts = (decay**2, sampling, noise, *motions)
    return ResponseCurves(*(np.nan_to_num(np.minimum(part, _HUGE), nan=_HUGE) for part in parts))


def mechanism_noise(mechanism: Mechanism, z_step: str) -> Array:
    """``noise`` of any mechanism, from its decoder."""
    with np.errstate(over="ignore", invalid="ignore"):
        answers = response(_RATIOS, mechanism.horizon, z_step).gains @ mechanism.decoder()
        return np.asarray(
            np.nan_to_num(np.minimum(np.sum(answers**2, axis=1), _HUGE), nan=_HUGE) * mechanism.sensitivity**2
        )


@lru_cache(maxsize=3)
def _motions(z_step: str) -> tuple[Array, Array, Array]:
    """``drift``, ``motion`` and ``shake`` for every horizon up to LONGEST, shape (LONGEST, ratios).

    Algorithm 1 run forwards on unit inputs: the start, and each draw of the noise. A prefix sum of T independent
    increments is A w, that of square-root Toeplitz B Z; both decoders hold those of shorter horizons.
    """
    root = SquareRoot(LONGEST)
    # Not every ratio: the curves are smooth.
    q = np.unique([*_RATIOS[:60:4], *_RATIOS[60::2]])
    drift = _asked(q, np.zeros((LONGEST, 1)), z_step, start=1.0)
    motion = _asked(q, np.tri(LONGEST), z_step)
    shake = _asked(q, root.decoder(), z_step) * np.cumsum(root.coefficients**2)[:, None]
    return drift, motion, shake


def _asked(q: Array, inputs: Array, z_step: str, start: float = 0.0) -> Array:
    """Mean over the rounds so far of the sum over inputs of u_t^2, at every ratio of the table."""
    rounds, width = inputs.shape
    x, z = np.full((len(q), width), start), np.full((len(q), width), start)
    before = np.zeros_like(x)
    squares = np.empty((rounds, len(q)))
    for t in range(rounds):
        squares[t] = np.sum((eta(t) * x - eta(t - 1) * before) ** 2, axis=1)
        nabla, before = q[:, None] * x + inputs[t] / eta(t), x
        if z_step == NO_Z:
            x = np.clip(x - nabla, -_HUGE, _HUGE)
            continue
        after = update(t, x, z, nabla, beta=1.0, z_step=z_step)
        x, z = np.clip(after.x, -_HUGE, _HUGE), after.z
    means = np.minimum(np.cumsum(squares, axis=0) / np.arange(1.0, rounds + 1)[:, None], _HUGE)
    return np.array([np.exp(np.interp(_PLACES, np.log(q), np.log(row + 1e-300))) for row in means])
