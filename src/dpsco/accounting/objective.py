"""Privacy of objective perturbation: the minimiser of a convex sum with Gaussian noise on its linear term.

    theta* = argmin  sum_i f(theta, d_i) + r(theta) + (lam / 2) |theta - theta_0|^2 + <b, theta>,   b ~ N(0, sigma^2 I)

f is the convex loss of a linear model with a Lipschitz gradient, r is convex with a Lipschitz gradient and public, and
lam > 0. A point x with |x - theta*| <= tau is released as x + N(0, s^2 I); nu = 2 tau / s.

Statement
    Whatever theta is, the gradient of one row lies in a polytope of that row. Let V be the vertices of the polytope of
    the difference of two neighbours, and alpha the bound on the determinants below. For epsilon >= alpha

        delta(epsilon) = sum over v in V of HS(epsilon - alpha, sqrt(|v|^2 / sigma^2 + nu^2)),

    HS(e, m) the delta at e of m-Gaussian DP (gaussian.py). ``SHAPES`` lists V; all vertices are multiples of L.

        shape        gradients of a row        V: one row zeroed, added, removed    V: one row replaced
        one sign     c u, 0 <= c <= L          0, L                                 0, L twice, 2 L
        two signs    c u, -L <= c <= L         L twice                              2 L twice, sqrt 2 L twice
        k classes    (q - e_y) x a             0, L (k - 1) times                   0, L 2(k - 1), 2 L (k - 1)^2 times

    Logistic and hinge have one sign, that of the label. Huber and squared, its slope clamped, have two. For softmax the
    vertices are (e_j - e_y) x a. alpha = log(1 + M / lam) with M the largest f'' |a|^2, and for softmax
    (k - 1) log(1 + |a|^2 / (k lam)).

Proof
    1. b_D(theta) = -(sum_i grad f + grad r + lam (theta - theta_0)) is strongly monotone and Lipschitz: a bijection,
       differentiable almost everywhere, and it and its inverse map null sets to null sets. So theta* has the density
       phi(b_D(theta)) |det J_D(theta)|, J_D = sum of Hessians + Hess r + lam I.
    2. Neighbours D, D' differ by w(theta) = b_D'(theta) - b_D(theta). The privacy loss at theta, drawn from D, is
           log det J_D / det J_D' + (|w|^2 + 2 <b, w>) / (2 sigma^2),   b = b_D(theta) ~ N(0, sigma^2 I).
    3. J_D = K + X with K >= lam I shared with D' and X the Hessian of the row that D has and D' has not. So the first
       term is at most log det(I + X / lam). X has rank one and norm M: log(1 + M / lam). For softmax X = (diag q - qq')
       x aa'; its k - 1 eigenvalues sum to at most |a|^2 (1 - 1/k), and log(1 + .) is concave: all are |a|^2 / k.
    4. The second term is convex in w, and w, which depends on theta, lies in the polytope, which does not. So it is at
       most max_v l_v, l_v = (|v|^2 + 2 <b, v>) / (2 sigma^2): the privacy loss of a Gaussian mechanism that moves by v.
    5. theta* and D determine b, hence x - theta*, a vector of norm up to tau. Given theta*, the release of
       x - theta* + N(0, s^2 I) is nu-GDP, and x + N(0, s^2 I) is a function of both. With l' the loss of the second,
       E(1 - exp(epsilon - loss - l'))_+ <= sum_v E(1 - exp(epsilon - alpha - l_v - l'))_+: the integrand grows with the
       loss, and that of a maximum is at most the sum. l_v + l' is the loss of a Gaussian mechanism with
       m^2 = |v|^2 / sigma^2 + nu^2.
    6. Two signs under replacement: the vertices +-L u +-L u' have squared norms 2 L^2 (1 +- <u, u'>). Two are at most
       2 L long, and the other two then at most sqrt 2 L.

    7. Two signs and one row zeroed, added or removed: max_v l_v = h + m |Z| with m = L / sigma, h = m^2 / 2, Z standard
       normal. With l' it is at most h' + m' |Z'|, m'^2 = m^2 + nu^2: m |Z| + nu Z'' <= |m |Z| + nu Z''| ~ m' |Z'|.
       For e0 = epsilon - alpha - h' < 0 every outcome counts, and the expectation is 1 - exp(e0) (1 - 2 HS(h', m')).

Redberg, Koskela and Wang (2023) have the formula of step 7 for zeroed, added or removed rows of every loss with one
score, and -log(1 - M / lam) for alpha ("paper"). Steps 3 and 4 are sharper.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dpsco.accounting.gaussian import delta_of
from dpsco.errors import InvalidArgument, one_of

__all__ = ["RESIDUAL", "SHAPES", "alpha_of", "noise_for", "objective_delta", "vertices"]

SHAPES = ("one sign", "two signs", "classes")
"""Forms of the set of gradients that one row can have."""

RESIDUAL = 1.0 / 32.0
"""nu in units of L / sigma: what the solver's error may spend. It costs 0.05 % of the noise."""


_UP = 1 + 2.0**-48


def vertices(shape: str, classes: int, replace: bool) -> tuple[tuple[int, float], ...]:
    """Return V as (how many, length in units of L)."""
    one_of("shape", shape, SHAPES)
    if shape == "two signs":
        return ((2, 2.0), (2, math.sqrt(2.0))) if replace else ((2, 1.0),)
    others = 1 if shape == "one sign" else classes - 1
    return ((others**2, 2.0), (2 * others, 1.0), (1, 0.0)) if replace else ((others, 1.0), (1, 0.0))


def alpha_of(shape: str, ridge: float, smoothness: float, classes: int = 2, *, paper: bool = False) -> float:
    """Return alpha, rounded up; inf if there is none. ``smoothness`` is M, for classes the largest |a|^2."""
    if paper:
        alpha = -math.log1p(-smoothness / ridge) if ridge > smoothness else math.inf
    elif shape == "classes":
        alpha = (classes - 1) * math.log1p(smoothness / (classes * ridge))
    else:
        alpha = math.log1p(smoothness / ridge)
    return alpha * (1 + 2.0**-50)


def objective_delta(
    epsilon: float,
    *,
    noise: float,
    alpha: float,
    shape: str,
    classes: int = 2,
    replace: bool = False,
    residual: float = RESIDUAL,
) -> float:
    """Return delta(epsilon) of the statement, rounded up; 1 where it says nothing.

    Parameters
    ----------
    epsilon : float
        Privacy loss.
    noise : float
        sigma / L.
    alpha : float
        Bound on the determinants, from ``alpha_of``.
    shape, classes
        Gradients that a row can have.
    replace : bool
        Whether neighbours replace a row.
    residual : float
        nu, in units of L / sigma.

    Examples
    --------
    >>> f"{objective_delta(1.0, noise=4.0, alpha=0.06, shape='one sign'):.3e}"
    '8.075e-06'
    """
    left = math.nextafter(epsilon - alpha, -math.inf)
    spread = [
        (count, math.hypot(length, residual) / noise * _UP) for count, length in vertices(shape, classes, replace)
    ]
    if shape == "two signs" and not replace and math.isfinite(alpha):
        m = spread[0][1]
        e0 = left - m * m / 2 * _UP
        if e0 < 0:
            return min(1.0, (-math.expm1(e0) + 2 * math.exp(e0) * delta_of(m, m * m / 2)) * _UP)
    if not left >= 0:
        return 1.0
    return min(1.0, math.fsum(count * delta_of(m, left) for count, m in spread if m) * _UP)


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float, delta: float, *, alpha: float, shape: str, classes: int = 2, replace: bool = False
) -> float:
    """Return the least sigma / L with delta(epsilon) <= delta, rounded up by at most 1e-7.

    Raises
    ------
    InvalidArgument
        If alpha is at least epsilon: no noise is enough.
    """
    if alpha >= epsilon:
        raise InvalidArgument(
            f"The ridge is too small for epsilon={epsilon:.6g}: curvature alone costs {alpha:.3g}. Use a larger ridge."
        )

    def enough(noise: float) -> bool:
        return (
            objective_delta(epsilon, noise=noise, alpha=alpha, shape=shape, classes=classes, replace=replace) <= delta
        )

    low = high = 1.0
    while not enough(high):
        low, high = high, 2.0 * high
    while enough(low):
        low, high = low / 2.0, low
    while high / low > 1.0 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
