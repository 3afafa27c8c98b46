"""Noise multiplier of Poisson-sampled rounds, from dp_accounting's privacy-loss distributions.

    round t:  each row is sampled with probability q;  sum of the sampled rows' contributions, each of norm <= C,
              + N(0, (z C)^2 I)

Guarantee: T such rounds with the z of ``multiplier``, also adaptive ones, are (epsilon, delta)-DP by an accountant
that rounds up. The epsilon reached is within 0.1 % of the requested one. It holds at that delta only.
Cost: a few evaluations of 0.02 to 0.2 s each; results are cached.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple

from dpsco.errors import ExtraMissing

__all__ = ["Sampled", "epsilon_of_sampled", "multiplier", "multiplier_by_limit"]

_NEIGHBOURS = {"zero-out": "REPLACE_SPECIAL", "replace": "REPLACE_ONE"}
_OLDEST = (0, 5)
_CLOSE = 1e-3
_LEAST = 0.25
"""The search stops near this z: if delta exceeds the probability of being sampled, no noise is needed."""
_INTERVAL = 1e-3
"""Grid of privacy losses; the accountant rounds up to it. A ten times finer grid lowers epsilon by at most 0.1 %."""


class Sampled(NamedTuple):
    """The noise multiplier z and the epsilon that the accountant returns for it."""

    z: float
    epsilon: float


@lru_cache(maxsize=1024)
def epsilon_of_sampled(z: float, *, delta: float, rate: float, rounds: int, adjacency: str) -> float:
    """Return epsilon at ``delta`` of ``rounds`` Poisson-sampled Gaussian rounds, rounded up by the accountant."""
    accounting: Any = _dp_accounting()
    neighbours = accounting.NeighboringRelation[_NEIGHBOURS[adjacency]]
    interval = _INTERVAL / max(1.0, math.sqrt(rounds) / 16)
    accountant = accounting.pld.PLDAccountant(neighbours, value_discretization_interval=interval)
    one = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(z))
    return float(accountant.compose(one, rounds).get_epsilon(delta))


@lru_cache(maxsize=256)
def multiplier(*, epsilon: float, delta: float, rate: float, rounds: int, adjacency: str, mu: float) -> Sampled:
    """Return the noise multiplier z for the guarantee (epsilon, delta), and the epsilon it reaches.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    rate : float
        Sampling probability q per row and round.
    rounds : int
        Number of rounds T.
    adjacency : {"zero-out", "replace"}
        Which data sets are neighbours.
    mu : float
        The budget's Gaussian-DP parameter; the search starts from its central limit.

    Raises
    ------
    ExtraMissing
        If dp_accounting is not installed.
    """

    def reached(z: float) -> float:
        return epsilon_of_sampled(z, delta=delta, rate=rate, rounds=rounds, adjacency=adjacency)

    apart = 2.0 if adjacency == "replace" else 1.0
    high = max(_LEAST, apart * multiplier_by_limit(mu, rate, rounds))
    at_high = reached(high)
    while at_high > epsilon:
        high *= 1.2
        at_high = reached(high)
    low, at_low = high / 1.2, reached(high / 1.2)
    while at_low <= epsilon:
        high, at_high = low, at_low
        if low < _LEAST:
            return Sampled(high, at_high)
        low /= 1.2
        at_low = reached(low)
    while at_high < (1.0 - _CLOSE) * epsilon and high - low > 1e-9 * high:
        # log epsilon is nearly linear in log z: interpolate, but stay 5 % of the interval away from its ends.
        aim = math.log(at_low / ((1.0 - _CLOSE / 2) * epsilon))
        share = aim / math.log(at_low / at_high) if at_high > 0.0 else 0.5
        z = low * (high / low) ** min(0.95, max(0.05, share))
        at = reached(z)
        if at <= epsilon:
            high, at_high = z, at
        else:
            low, at_low = z, at
    return Sampled(high, at_high)


def multiplier_by_limit(mu: float, rate: float, rounds: int) -> float:
    """Solve the central limit of Dong, Roth and Su for z: mu = q sqrt(T (exp(1/z^2) - 1)). Only a starting point.

    >>> round(multiplier_by_limit(0.5, 1.0, 400), 1)
    40.0
    """
    return 1.0 / math.sqrt(math.log1p((mu / rate) ** 2 / rounds))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
    except ImportError:
        raise ExtraMissing("Poisson-sampled methods need an accountant: install dpsco[accounting].") from None
    found = version("dp-accounting")
    if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
        raise ExtraMissing(
            f"Poisson-sampled methods need dp-accounting 0.5 or newer; {found} raises errors of its own where no bound "
            "is found. Install dpsco[accounting]."
        )
    return dp_accounting
