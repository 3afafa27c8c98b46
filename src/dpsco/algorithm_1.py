"""Algorithm 1 of the paper: its weights, its update (lines 5-8) and its linear response. Written once, here.

    nabla_t = (sum_{i<=t} Delta_i) / eta_t                                       line 5, by the caller
    z_{t+1} = Proj(z_t - (eta_t / (c beta)) nabla_t)    c = 1 listed, 2 halved   line 6
    y_{t+1} = Proj(x_t - (1 / beta) nabla_t)                                     line 7
    x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}                        line 8

with eta_t = t + 1, eta_{-1} = 0 and tau_t = eta_t / eta_{0:t} = 2 / (t + 2).

On a quadratic the update is linear. On a direction of curvature h, with q = h / beta, errors measured from the
minimiser and n_t the noise on the prefix sum of round t over (B beta), nabla_t / beta = q x_t + n_t / eta_t, so

    y_T = r(q) x_0 + sum_t v_t(q) n_t.

The workload mechanism and the response planner use r and v. Projections are not part of that model.
The unaccelerated variant is line 7 alone, x_{t+1} = y_{t+1}: r(q) = (1 - q)^T, v_t(q) = -(1 - q)^(T-1-t) / eta_t. Here
its name is the z-step "none".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsco.query import Array

__all__ = ["NO_Z", "Z_STEPS", "Response", "Step", "eta", "response", "tau", "update"]

Z_STEPS = {"listed": 1.0, "halved": 2.0}
"""c by name: "listed" moves z by eta_t / beta as Algorithm 1 is printed, "halved" by half of it as its proof does."""

NO_Z = "none"
"""The unaccelerated variant, in place of a z-step."""


def eta(t: int) -> float:
    """eta_t = t + 1; eta_{-1} = 0."""
    return t + 1.0


def tau(t: int) -> float:
    """tau_t = eta_t / eta_{0:t} = 2 / (t + 2)."""
    return 2.0 / (t + 2.0)


class Step(NamedTuple):
    """x_{t+1}, y_{t+1} and z_{t+1}."""

    x: Array
    y: Array
    z: Array


def _unbounded(point: Array) -> Array:
    return point


def update(
    t: int,
    x: Array,
    z: Array,
    nabla: Array,
    *,
    beta: float,
    z_step: str,
    project: Callable[[Array], Array] = _unbounded,
) -> Step:
    """Lines 6-8: the iterates after round ``t``.

    Parameters
    ----------
    t : int
        Round, from 0.
    x, z : array
        x_t and z_t: vectors of p numbers, or tables with one entry per curvature ratio.
    nabla : array
        nabla_t.
    beta : float
        Scaling of the steps.
    z_step : {"listed", "halved"}
        Name of c.
    project : callable
        Projection into the domain; none unless given.

    Returns
    -------
    Step
    """
    # Each difference reuses the memory of its step: for long vectors new memory costs more than the arithmetic.
    z_move = (eta(t) / (Z_STEPS[z_step] * beta)) * nabla
    z = project(np.subtract(z, z_move, out=z_move))
    y_move = nabla / beta
    y = project(np.subtract(x, y_move, out=y_move))
    weight = tau(t + 1)
    return Step((1 - weight) * y + weight * z, y, z)


class Response(NamedTuple):
    """``decay``: r(q), of shape (H,). ``gains``: v_t(q), of shape (H, T)."""

    decay: Array
    gains: Array


def response(ratios: ArrayLike, rounds: int, z_step: str = "halved") -> Response:
    """Compute the response of y_T for each curvature ratio q = h / beta.

    The recursion runs backwards through ``update``: from d y_T / d x_{t+1} and d y_T / d z_{t+1}, one round gives the
    derivatives in y_{t+1}, z_{t+1} and nabla_t, hence in n_t, x_t and z_t.

    Parameters
    ----------
    ratios : array of shape (H,)
        q for each direction.
    rounds : int
        Number of rounds T.
    z_step : {"halved", "listed", "none"}
        Name of c; "none" for the unaccelerated variant.

    Returns
    -------
    Response

    Cost: O(H T) time and memory.

    >>> float(response([1.0], 1).decay[0]), float(response([1.0], 1).gains[0, 0])
    (0.0, -1.0)
    """
    q = np.atleast_1d(np.asarray(ratios, dtype=np.float64))
    if z_step == NO_Z:
        kept = (1.0 - q)[:, None] ** np.arange(rounds - 1.0, -1.0, -1.0)
        return Response(decay=(1.0 - q) ** rounds, gains=-kept / np.arange(1.0, rounds + 1.0))
    gains = np.empty((rounds, q.size))  # one row per round, so the loop writes contiguously
    in_y, in_z = np.ones_like(q), np.zeros_like(q)  # derivatives of y_T in y_{t+1} and in z_{t+1}
    in_x = in_y
    for t in range(rounds - 1, -1, -1):
        if t < rounds - 1:
            in_y, in_z = (1.0 - tau(t + 1)) * in_x, in_z + tau(t + 1) * in_x
        in_nabla = -in_y - (eta(t) / Z_STEPS[z_step]) * in_z
        gains[t] = in_nabla / eta(t)
        in_x = in_y + q * in_nabla
    return Response(decay=in_x + in_z, gains=np.ascontiguousarray(gains.T))
