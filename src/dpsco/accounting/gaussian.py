"""The exact trade-off of mu-Gaussian differential privacy: delta, epsilon and mu, each from the other two.

A mechanism is mu-GDP if telling neighbours apart is no easier than telling N(0, 1) from N(mu, 1).
With a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2 (Dong, Roth, Su 2022; Balle and Wang 2018):

    delta(epsilon) = Phi(-a) - exp(epsilon) Phi(-b)

Guarantee: every function rounds towards privacy. ``mu_of`` is never above the exact value; ``epsilon_of`` and
``delta_of`` are never below it; each is within a few units in the last place. In float64 the difference cancels
(at mu = 1e-8 no digit is left), so it is evaluated with as many digits as it needs.
Cost: less than one millisecond for delta, a few for each of the two inverses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpsco.errors import InvalidArgument, positive, positive_integer

if TYPE_CHECKING:
    from mpmath import mpf

__all__ = ["check_delta", "compose", "delta_of", "epsilon_of", "group", "mu_of"]

_GUARD_DIGITS = 30


def delta_of(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which mu-GDP is (epsilon, delta)-DP, rounded up.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter > 0; may be infinite.
    epsilon : float
        At least 0; may be infinite.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        If a number is out of range.

    Examples
    --------
    >>> round(delta_of(1.0, 0.0), 12)
    0.382924922548
    """
    mu = positive("mu", mu, "It is a Gaussian-DP parameter.", infinite=True)
    if not epsilon >= 0:
        raise InvalidArgument(f"Expected epsilon={epsilon!r} >= 0.")
    if math.isinf(epsilon):
        return 0.0 if math.isfinite(mu) else 1.0
    a = epsilon / mu - mu / 2  # beyond 1e4, Phi(-a) is 0 or 1 to every digit of a double
    if abs(a) > 1e4 or math.isinf(mu):
        return math.nextafter(0.0, 1.0) if a > 0 else 1.0
    with _precision(mu, epsilon):
        return min(1.0, _up(_profile(mu, epsilon)[0]))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP is (epsilon, delta)-DP, rounded up; 0 if delta_of(mu, 0) <= delta.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter > 0; may be infinite.
    delta : float
        Between 0 and 1, exclusive.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        If a number is out of range.

    Examples
    --------
    >>> round(epsilon_of(0.268051, 1e-5), 5)
    1.0
    """
    mu = positive("mu", mu, "It is a Gaussian-DP parameter.", infinite=True)
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # Phi(-s) <= exp(-s^2/2)/2 = delta, so the answer is at most mu^2/2 + mu s. Because log delta is concave
    # in epsilon, Newton's method from there decreases monotonically.
    s = math.sqrt(max(0.0, -2.0 * (math.log(2.0) + math.log(delta))))
    start = mu * mu / 2 + mu * s
    with _precision(mu, start):
        from mpmath import log, mpf

        target = log(mpf(delta))

        def residual(epsilon: mpf) -> tuple[mpf, mpf]:
            value, _, slope = _profile(mu, epsilon)
            return log(value) - target, slope / value

        return _up(_newton(residual, low=mpf(0), high=mpf(start), start=mpf(start), rising=False))


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP is (epsilon, delta)-DP, rounded down.

    Parameters
    ----------
    epsilon : float
        Greater than 0; may be infinite.
    delta : float
        Between 0 and 1, exclusive.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        If a number is out of range.

    Examples
    --------
    >>> round(mu_of(1.0, 1e-5), 6)
    0.268051
    """
    epsilon = positive("epsilon", epsilon, "It is the privacy loss you allow.", infinite=True)
    check_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    # Two lower bounds on mu: from delta <= exp(-a^2/2)/2 (delta < 1/2), and from delta <= mu phi(0).
    s = math.sqrt(max(0.0, -2.0 * math.log(delta)))
    low = max(epsilon / (math.sqrt(s * s + 2 * epsilon) + s), delta)
    high = 2.0 * low
    while delta_of(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    with _precision(low, epsilon):
        from mpmath import exp, log, mpf

        target = log(mpf(delta))

        def residual(u: mpf) -> tuple[mpf, mpf]:
            mu = exp(u)
            value, slope, _ = _profile(mu, epsilon)
            return log(value) - target, mu * slope / value

        root = _newton(residual, low=log(mpf(low)), high=log(mpf(high)), start=log(mpf(low)), rising=True)
        return _down(exp(root))


def compose(*mus: float) -> float:
    """Return the mu of several mu_i-GDP runs on the same rows, also adaptive ones: sqrt(sum mu_i^2), rounded up.

    Parameters
    ----------
    *mus : float
        Gaussian-DP parameters > 0.

    Returns
    -------
    float
        0 without arguments.

    Raises
    ------
    InvalidArgument
        If a parameter is not positive.
    """
    parts = [positive("mu", mu, "It is a Gaussian-DP parameter.", infinite=True) for mu in mus]
    return math.hypot(*parts) if len(parts) < 2 else _two_up(math.hypot(*parts))


def group(mu: float, records: int) -> float:
    """Return the mu of any ``records`` records at once, rounded up: they move the release ``records`` times as far.

    Parameters
    ----------
    mu : float
        Gaussian-DP parameter for one record.
    records : int
        Size of the group.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        If a number is out of range.
    """
    mu = positive("mu", mu, "It is a Gaussian-DP parameter.", infinite=True)
    records = positive_integer("records", records, "It is the size of the group.")
    return mu if records == 1 else math.nextafter(mu * records, math.inf)


def check_delta(delta: float) -> None:
    """Raise InvalidArgument unless 0 < delta < 1."""
    if not 0 < positive("delta", delta, "A Gaussian mechanism needs delta > 0; take it below 1/n.") < 1:
        raise InvalidArgument(
            f"Expected 0 < delta={delta!r} < 1: it is a probability. Take it well below 1/n, for example n ** -1.1."
        )


# --- the profile and its derivatives, at working precision ------------------------------------


def _profile(mu: float | mpf, epsilon: float | mpf) -> tuple[mpf, mpf, mpf]:
    """Return delta, d delta / d mu = phi(a) and d delta / d epsilon = -exp(epsilon) Phi(-b)."""
    from mpmath import erfc, exp, mpf, pi, sqrt

    mu, epsilon = mpf(mu), mpf(epsilon)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = exp(epsilon) * erfc(b / sqrt(mpf(2))) / 2
    return erfc(a / sqrt(mpf(2))) / 2 - tail, exp(-a * a / 2) / sqrt(2 * pi), -tail


def _precision(mu: float, epsilon: float):  # type: ignore[no-untyped-def]
    """Set enough digits for the difference: about log10(max(1, a)/mu) cancel, and exp(a^2/2) costs 2 log10(a)."""
    from mpmath import workdps

    a = epsilon / mu + mu
    lost = 3 * math.log10(max(1.0, a)) + max(0.0, -math.log10(mu))
    return workdps(_GUARD_DIGITS + math.ceil(lost))


def _newton(residual: Callable[[mpf], tuple[mpf, mpf]], low: mpf, high: mpf, start: mpf, rising: bool) -> mpf:
    """Find the root of a monotone function by Newton's method inside a shrinking bracket."""
    x, tolerance = start, 10.0**-22
    for _ in range(400):
        value, slope = residual(x)
        if (value > 0) == rising:
            high = x
        else:
            low = x
        step = x - value / slope if slope else x
        if step == x or abs(step - x) <= tolerance * abs(x) or abs(step - x) <= tolerance * abs(step):
            return step
        x = step if low < step < high else (low + high) / 2
    return x


def _up(value: mpf) -> float:
    return math.nextafter(float(value), math.inf)


def _two_up(value: float) -> float:
    return math.nextafter(math.nextafter(value, math.inf), math.inf)


def _down(value: mpf) -> float:
    return math.nextafter(float(value), 0.0)
