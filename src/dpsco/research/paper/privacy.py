"""Privacy and the main theorems: the tree lemma, the three corollaries, Theorems 1 and 2 and their simplified form."""

from __future__ import annotations

import math

import numpy as np

from dpsco.accounting.gaussian import delta_of
from dpsco.planning.theorems import c_dp
from dpsco.query import Array
from dpsco.release.mechanisms import mechanism
from dpsco.research.paper import bounds
from dpsco.research.paper.statement import Finding

__all__ = [
    "clip_norm_bound",
    "dp_guarantee",
    "dp_guarantee_2",
    "main_simplified",
    "main_theorem_1",
    "main_theorem_2",
    "tree_lemma",
]


def tree_lemma(seed: int) -> Finding:
    """Check lemma btm: nodes per prefix, nodes per increment, and the error of simulated trees at delta = 0.05."""
    rng = np.random.default_rng(seed)
    for T in range(2, 513):
        levels = math.ceil(math.log2(T))
        most = max(bin(i).count("1") for i in range(1, T + 1))
        if most > levels or math.sqrt(2 * (1 + levels)) * levels > 4 * math.log2(T) ** 1.5:
            return Finding("erratum", f"The node count or the closing inequality fails at T = {T}.", T)
    worst, delta, trees = 0.0, 0.05, 0
    for T in (2, 7, 16, 64, 256):
        for p in (1, 10, 100):
            bound = 4 * math.log2(T) ** 1.5 * math.sqrt(p * math.log(2 * T / delta))  # C = mu = 1
            errors = [_largest_error(rng, T, p) for _ in range(60)]
            worst = max(worst, float(np.quantile(errors, 1 - delta)) / bound)
            trees += 60
    sentence = (
        f"Holds: the 95 % quantile of the largest error of simulated trees was at most {worst:.2f} of the bound; "
        "a prefix of T <= 512 increments needs at most ceil(log2 T) nodes. The index range j <= T/2^k - 1 omits the "
        "root if T is a power of two. That node is needed, and the sensitivity 1 + ceil(log2 T) covers it."
    )
    return Finding("holds" if worst < 1 else "erratum", sentence, trees, {"95 % quantile over bound": worst})


def _largest_error(rng: np.random.Generator, T: int, p: int) -> float:
    """Return the largest ||noise|| on a prefix sum of a binary tree with the node noise of the lemma, C = mu = 1."""
    sigma = math.sqrt(1 + math.ceil(math.log2(T)))
    nodes: dict[tuple[int, int], Array] = {}
    largest = 0.0
    for i in range(1, T + 1):
        noise, start = np.zeros(p), 0
        for level in range(i.bit_length() - 1, -1, -1):
            if i >> level & 1:
                node = (level, start >> level)
                if node not in nodes:
                    nodes[node] = sigma * rng.normal(size=p)
                noise += nodes[node]
                start += 1 << level
        largest = max(largest, float(np.linalg.norm(noise)))
    return largest


def dp_guarantee(seed: int) -> Finding:
    """Check corollary dp-guarantee: the delta of the printed sigma by the exact curve."""
    del seed
    epsilon, delta = 1.0, 1e-5
    reached = {T: _delta_reached(T, epsilon, delta, 1.0) for T in (4, 16, 64, 256)}
    worst = max(reached.values()) / delta
    short = math.sqrt(2 * (1 + 4) / 4)
    sentence = (
        "Privacy bug: the printed sigma has sqrt(log T ln(2.5/delta)) where the tree lemma needs sqrt(2 (1 + ceil "
        f"log2 T) ln(2.5/delta)), {short:.2f} times as much at T = 16. At epsilon = 1, delta = 1e-5 the true delta is "
        f"up to {worst:.0f} times the target. The bound on ||b_t|| holds: less noise makes it easier."
    )
    figures = {f"delta reached over target, T = {T}": value / delta for T, value in reached.items()}
    return Finding("erratum", sentence, len(reached), figures)


def _delta_reached(T: int, epsilon: float, delta: float, multiple: float) -> float:
    """Return delta at epsilon of a tree with node noise ``multiple`` sqrt(log2(T) ln(2.5/delta)) / epsilon clips."""
    sigma = multiple * math.sqrt(math.log2(T) * math.log(2.5 / delta)) / epsilon
    return delta_of(mechanism("tree", horizon=T).sensitivity / sigma, epsilon)


def dp_guarantee_2(seed: int) -> Finding:
    """Check corollary dp-guarantee-2: its sigma, 2 sqrt(2) clips, over epsilon, delta and T."""
    del seed
    worst, fails, count = 0.0, math.inf, 0
    for epsilon in (0.1, 0.5, 1.0, 4.0, 8.0, 12.0, 16.0, 20.0, 30.0, 40.0):
        for delta in (1e-9, 1e-6, 1e-3):
            for T in (2, 3, 16, 100, 1024):
                ratio = _delta_reached(T, epsilon, delta, 2 * math.sqrt(2)) / (delta / 2)
                count += 1
                if epsilon <= 16:
                    worst = max(worst, ratio)
                if ratio > 1:
                    fails = min(fails, epsilon)
    held = worst <= 1
    beyond = (
        "and at every larger epsilon tried"
        if math.isinf(fails)
        else f"and it first fails at epsilon = {fails:g}, where the conversion mu = epsilon/sqrt(2 ln(2.5/delta)) is "
        "not sound"
    )
    sentence = (
        f"Large enough: at epsilon <= 16 the true delta is at most {worst:.1e} of the delta/2 allowed, {beyond}. The "
        "proof's delta/2 for runs without clipping is a probability over the data, not differential privacy: the "
        "library always clips."
    )
    return Finding(
        "holds" if held and math.isinf(fails) else "factor", sentence, count, {"delta reached over delta/2": worst}
    )


def clip_norm_bound(seed: int) -> Finding:
    """Check corollary clipnormbound: b_max at the largest p it allows, by lemma btm and by simulated trees."""
    rng = np.random.default_rng(seed)
    T, delta, mu, M, c_M, L = 64, 0.05, 1.0, 1.0, 1.0, 1.0
    scale = 2000.0  # B beta
    p = int((scale * mu) ** 2 / (16 * M**2 * math.log2(T) ** 3 * math.log(2 * T / delta)))
    C = (8 * c_M + 4) * L / scale
    allowed = (2 * c_M + 1) * L / M
    by_lemma = 4 * C * math.log2(T) ** 1.5 * math.sqrt(p * math.log(2 * T / delta)) / mu
    simulated = max(C * _largest_error(rng, T, p) / mu for _ in range(20))
    sentence = (
        f"The proof omits the factor 4 of Lemma btm, so its condition on p is 16 times too weak: at the "
        f"largest p allowed (T = {T}) the lemma gives b_max = {by_lemma / allowed:.1f} times (2 c_M + 1) L/M. The "
        f"conclusion holds because the lemma is loose: 20 simulated trees reached {simulated / allowed:.2f} times."
    )
    figures = {"b_max by the lemma over allowed": by_lemma / allowed, "simulated over allowed": simulated / allowed}
    return Finding("erratum" if simulated > allowed else "factor", sentence, 20, figures)


def main_theorem_1(seed: int) -> Finding:
    """Check theorem 1: its parameters in the last three terms of its proof, over n, p and epsilon."""
    rng = np.random.default_rng(seed)
    worst, count = 0.0, 400
    for _ in range(count):
        n, epsilon = 10.0 ** rng.uniform(6, 40), 10.0 ** rng.uniform(-2, 1)
        p = 10.0 ** rng.uniform(0, math.log10(max(epsilon**2 * n**2, 1.0)))
        L, R, delta = 10.0 ** rng.uniform(-2, 2), 10.0 ** rng.uniform(-2, 2), n**-1.5
        c = c_dp(n, delta)
        beta = c**2 * L * max(1.0, math.sqrt(p) / (epsilon * math.sqrt(n))) / R
        T = c * n**0.25
        B = n / T
        b_max = c**2 * L * math.sqrt(p) / (epsilon * B * beta)
        rate = L * R * (1 / math.sqrt(n) + math.sqrt(p) / (epsilon * n))
        terms = L * R / math.sqrt(n) + beta * b_max * R / T + beta * R**2 / T**2
        worst = max(worst, terms / (c**2 * rate))
    floor = next(k for k in range(8, 400) if c_dp(2.0**k, 2.0**-k) * 2.0 ** (k / 4) <= 2.0**k)
    sentence = (
        f"The last three terms of its proof are at most {worst:.2f} c_DP^2 times LR (1/sqrt(n) + sqrt(p)/(epsilon n)), "
        "over n = 1e6 to 1e40: the rate, up to polylogarithms. The last display has sqrt(n) instead of 1/sqrt(n). T <= "
        f"n needs n of about {2.0**floor:.0e}, so its constants say nothing at a real n. docs/paper/rates.md measures "
        "the rate itself. Privacy as printed relies on corollary dp-guarantee."
    )
    return Finding("factor" if worst <= 3 else "erratum", sentence, count, {"terms over c_DP^2 rate": worst})


def main_theorem_2(seed: int) -> Finding:
    """Check theorem 2: beta >= 2 M T, and the excess-population bound at its settings over the rate, as n grows."""
    rng = np.random.default_rng(seed)
    smallest, count = math.inf, 300
    for _ in range(count):
        n = 10.0 ** rng.uniform(2, 12)
        B = math.sqrt(n) * 10.0 ** rng.uniform(-2, 0)
        L, R, c_M = (10.0 ** rng.uniform(-2, 2) for _ in range(3))
        M = c_M * L / R
        smallest = min(smallest, (16 * c_M + 8) * L * n**1.5 / (R * B**2) / (2 * M * n / max(B, 1.0)))
    sizes = (10**4, 10**6, 10**8, 10**10)
    ratios = {n: _theorem_2_over_rate(n) for n in sizes}
    growth = math.log(ratios[sizes[-1]] / ratios[sizes[0]]) / math.log(sizes[-1] / sizes[0])
    useful = next((n for n in sizes if ratios[n] / math.sqrt(n) < 1), math.inf)
    sentence = (
        f"beta >= 2 M T with a factor {smallest:.0f} to spare. At its settings the bound of excess-population is "
        f"{', '.join(f'{ratios[n]:,.0f}' for n in sizes)} times the rate at n = 1e4, 1e6, 1e8, 1e10: no power of n, as "
        f"claimed. From about n = {useful:.0e} on it is below LR, which every point satisfies. Its choice of B above "
        "sqrt(n) has the wrong dimension: M n^(3/2) epsilon/sqrt(p) is not a number of rows."
    )
    figures = {"beta over 2 M T": smallest, "growth exponent of bound over rate": growth}
    return Finding("factor" if smallest >= 1 and growth < 0.15 else "erratum", sentence, count, figures)


def _theorem_2_over_rate(n: int) -> float:
    """L = R = c_M = 1, p = 10, epsilon = 1, delta = 1/n^2: bound over LR (1/sqrt(n) + sqrt(p)/(epsilon n))."""
    p, epsilon, delta = 10, 1.0, n**-2.0
    B = math.isqrt(n)
    T, beta = n // B, 24 * n**1.5 / B**2
    mu = epsilon / math.sqrt(2 * math.log(2.5 / delta))
    b = 4 * 12 / (B * beta) * math.log2(T) ** 1.5 * math.sqrt(p * math.log(2 * T / delta)) / mu
    bound = bounds.excess_population(
        rounds=T, batch_size=B, beta=beta, Q=24.0, gradient=1.0, noise=b, diameter=2.0, gamma=1 / T**2
    )
    return bound / (1 / math.sqrt(n) + math.sqrt(p) / (epsilon * n))


def main_simplified(seed: int) -> Finding:
    """Check the joint form: T and B of both regimes make one epoch, with the settings of theorems 1 and 2."""
    rng = np.random.default_rng(seed)
    worst, count = 0.0, 200
    for _ in range(count):
        n = 10.0 ** rng.uniform(6, 30)
        c = c_dp(n, n**-1.5)
        T = c * n**0.25
        worst = max(worst, abs(T * (n**0.75 / c) / n - 1))
    sentence = (
        f"B T = n in both regimes (to {worst:.0e}), so one epoch and two gradients per row. It inherits the "
        "printed noise of Theorem 1 and the constants of both theorems. For this algorithm it holds with clipping and "
        "the noise of the tree lemma instead of the printed sigma."
    )
    return Finding("factor" if worst < 1e-9 else "erratum", sentence, count, {"B T / n - 1": worst})
