"""Lower bounds on privacy loss from guesses about canaries.

A mu-GDP run lets nobody guess a fair coin, in or out, more often than Phi(mu / 2). So from c right guesses of m:

independent guesses   mu >= 2 Phi^-1(lower end of Clopper and Pearson's interval at confidence 1 - alpha)
no assumption         the law of the number of right guesses of any mu-GDP run, by the recursion below

The recursion (Mahloujifar, Melis, Chaudhuri 2024). With p_j the probability of j right guesses and
r_i = sum_{j >= i} j p_j / m, h_i = sum_{j >= i} (m - j) p_j / m, flipping one canary's coin turns "wrong here, at least
i right elsewhere" into "right here, at least i + 1 right", so r_{i+1} <= Phi(Phi^-1(h_i) + mu); and
r_i - r_{i+1} = (h_i - h_{i+1}) i / (m - i). If P(at least c right) were alpha or more, r_0 + h_0 could not be 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["independent_bound", "power_at_half_noise", "universal_bound", "wanted_canaries"]

_POWER = 2.5  # standard errors of power: 99 %


def independent_bound(right: int, canaries: int, alpha: float) -> float:
    """Largest mu refuted at level ``alpha`` if guesses are independent; 0 if none is."""
    from scipy.special import ndtri
    from scipy.stats import beta

    if right == 0:
        return 0.0
    low = float(beta.ppf(alpha, right, canaries - right + 1))
    return max(0.0, 2.0 * float(ndtri(low)))


def universal_bound(right: int, canaries: int, alpha: float) -> float:
    """Largest mu refuted at level ``alpha`` for any mu-GDP run, however guesses depend on one another; 0 if none is.

    >>> universal_bound(600, 1000, 1e-6) < independent_bound(600, 1000, 1e-6)
    True
    """
    return _largest(lambda mu: _refuted(mu, right, canaries, alpha))


def _refuted(mu: float, right: int, canaries: int, alpha: float) -> bool:
    from scipy.special import ndtr, ndtri

    r, h = alpha * right / canaries, alpha * (canaries - right) / canaries
    for i in range(right - 1, -1, -1):
        least = max(h, float(ndtr(ndtri(r) - mu)))
        r += (least - h) * i / (canaries - i)
        h = least
        if r + h >= 1.0:
            return True
    return False


def _largest(refuted: Callable[[float], bool]) -> float:
    low, high = 0.0, 8.0
    if not refuted(low):
        return 0.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def wanted_canaries(mu: float, alpha: float, right: float | None = None) -> int:
    """Canaries that catch half the noise in 99 % of audits, if guesses are independent.

    ``right`` is as in ``power_at_half_noise``; where canaries are so weak that no number is enough, 2^30.
    """
    from scipy.special import ndtr, ndtri

    honest, weak = float(ndtr(mu / 2)), float(ndtr(mu)) if right is None else right
    if weak <= honest:
        return 1 << 30
    spread = -float(ndtri(alpha)) * math.sqrt(honest * (1 - honest)) + _POWER * math.sqrt(weak * (1 - weak))
    return min(1 << 30, math.ceil((spread / (weak - honest)) ** 2))


def power_at_half_noise(mu: float, canaries: int, alpha: float, right: float | None = None) -> float:
    """Probability of catching half the noise with so many canaries, if guesses are independent.

    Parameters
    ----------
    mu : float
        The claim.
    canaries : int
        Coins in all.
    alpha : float
        Rate of false alarms.
    right : float, optional
        Share of coins that are told right at half the noise; that of canaries as strong as the claim unless given.
    """
    from scipy.special import ndtr, ndtri

    honest, weak = float(ndtr(mu / 2)), min(float(ndtr(mu)) if right is None else right, 1.0 - 1e-12)
    needed = honest - float(ndtri(alpha)) * math.sqrt(honest * (1 - honest) / canaries)
    return float(ndtr((weak - needed) / math.sqrt(weak * (1 - weak) / canaries)))
