"""Linear response of Algorithm 1 on a quadratic: the dependence of y_T on its start and on its noise.

On a direction of curvature h, with q = h / beta and errors measured from the minimiser, one round is

    g_t     = q x_t + n_t / eta_t                      n_t: noise on the prefix sum of round t, over (B beta)
    z_{t+1} = z_t - (eta_t / c) g_t                    c = 1 listed z-step, 2 halved
    y_{t+1} = x_t - g_t
    x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}

so ``y_T = r(q) x_0 + sum_t v_t(q) n_t``. The workload mechanism (workload.py) and the response planner use r and v.
Projections are not part of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsco.query import Array

__all__ = ["Response", "response"]


class Response(NamedTuple):
    """``decay``: r(q), of shape (H,). ``gains``: v_t(q), of shape (H, T)."""

    decay: Array
    gains: Array


def response(ratios: ArrayLike, rounds: int, z_step: str = "halved") -> Response:
    """Compute the response of y_T for each curvature ratio q = h / beta.

    The recursion runs backwards: from d y_T / d x_{t+1} and d y_T / d z_{t+1}, one round gives the
    derivatives in y_{t+1}, z_{t+1} and g_t, hence in n_t, x_t and z_t.

    Parameters
    ----------
    ratios : array of shape (H,)
    rounds : int
        Number of rounds T.
    z_step : {"halved", "listed"}

    Returns
    -------
    Response

    Cost
    ----
    O(H T) time and memory.

    Examples
    --------
    >>> float(response([1.0], 1).decay[0]), float(response([1.0], 1).gains[0, 0])
    (0.0, -1.0)
    """
    q = np.atleast_1d(np.asarray(ratios, dtype=np.float64))
    c = 1.0 if z_step == "listed" else 2.0
    gains = np.empty((rounds, q.size))  # one row per round, so the loop writes contiguously
    in_y, in_z = np.ones_like(q), np.zeros_like(q)  # derivatives of y_T in y_{t+1} and in z_{t+1}
    in_x = in_y
    for t in range(rounds - 1, -1, -1):
        eta = t + 1.0
        if t < rounds - 1:
            tau = 2.0 / (t + 3.0)  # eta_{t+1} / eta_{0:t+1}
            in_y, in_z = (1.0 - tau) * in_x, in_z + tau * in_x
        in_g = -in_y - (eta / c) * in_z
        gains[t] = in_g / eta
        in_x = in_y + q * in_g
    return Response(decay=in_x + in_z, gains=np.ascontiguousarray(gains.T))
