"""Theorems 1 and 2 of the paper, to the letter: what they set, what they need, and when that is out of reach.

log is base 2 and ln natural, as in the paper; R is its ||C||, the radius of the domain; c_M = M R / L.

Theorem 1 (x^dagger in C), eq. assum:parameters:

    c_DP = 4 sqrt(2) log^(3/2)(n) sqrt(ln(2n/delta)) ln(2.5/delta)
    beta = c_DP^2 L max(1, sqrt(p) / (epsilon sqrt(n))) / R,   T = c_DP n^(1/4),   B = n / T,   clip c_DP L

Theorem 2 (no such assumption), B <= sqrt(n):

    T = n / B,   beta = (16 c_M + 8) L n^(3/2) / (R B^2),   clip (8 c_M + 4) L

The printed sigma (noise on a tree node of the Delta_i / beta) is reported and never used: Theorem 1's is too small by
sqrt(2 (1 + ceil log2 T) / log2 T), and the conversion behind both is loose below epsilon = 10 and unsound above.
A plan always has its noise from the mechanism's sensitivity and the exact curve.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.methods import AcceleratedSRGD
from dpsco.problem import Problem

__all__ = ["Condition", "TheoremSettings", "c_dp", "rows_needed", "theorem_1", "theorem_2"]


@dataclass(frozen=True)
class Condition:
    """Something a theorem asks for."""

    text: str
    holds: bool


@dataclass(frozen=True)
class TheoremSettings:
    """What a theorem sets for a problem; obtainable even where no plan can follow from it."""

    theorem: int
    problem: Problem
    n: int
    budget: Budget
    c_dp: float | None
    """c_DP of Theorem 1."""
    beta: float
    rounds: float
    """T as the formula gives it, not rounded."""
    batch_size: float
    """B as the formula gives it; below 1, no row is left for a round."""
    clip: float
    printed_sigma: float
    """Node noise as printed, on the scale of b_t."""
    needed_sigma: float
    """Node noise that (epsilon, delta) takes with the binary tree and the exact curve, on the same scale."""
    conditions: tuple[Condition, ...]

    @property
    def trainable(self) -> bool:
        """Whether every round gets a row."""
        return 1 <= self.rounds <= self.n and self.batch_size >= 1

    def method(self, mechanism: str = "tree") -> AcceleratedSRGD:
        """Algorithm 1 with these settings: T rounded up, B down; refused when no row is left for a round."""
        rounds = math.ceil(self.rounds * (1 - 1e-12))
        if not self.trainable or rounds > self.n:
            raise InvalidArgument(f"{self.explain()}\nUse rule='response', which works at any n.")
        return AcceleratedSRGD(rounds=rounds, beta=self.beta, clip=self.clip, z_step="halved", mechanism=mechanism)

    def explain(self) -> str:
        """Return the settings in words, with what is vacuous in them and what it would take."""
        lines = [
            f"Theorem {self.theorem} at n = {self.n:,}: T = {self.rounds:.6g} rounds of B = {self.batch_size:.4g} "
            f"rows, beta = {self.beta:.4g}, clip = {self.clip:.4g}"
            + ("." if self.c_dp is None else f", from c_DP = {self.c_dp:.4g}."),
            f"Printed sigma {self.printed_sigma:.3g}, needed {self.needed_sigma:.3g} (binary tree, exact curve): a "
            "plan uses its own calibration.",
        ]
        lines += [f"{'Holds' if c.holds else 'Fails'}: {c.text}." for c in self.conditions]
        if not self.trainable:
            lines.append(self._vacuous())
        return "\n".join(textwrap.fill(line, 110, subsequent_indent="  ") for line in lines)

    def _vacuous(self) -> str:
        if self.theorem == 1:
            one, few = (rows_needed(self.budget, self.n, power) for power in (1.0, 0.5))
            return (
                f"Vacuous: T exceeds n, so B < 1 and no row is left for a round. With delta = {self.budget.delta:.3g} "
                f"scaled as this power of n, B >= 1 takes n of about {one:.0e} and T < sqrt(n) about {few:.0e}."
            )
        return "Vacuous: a round would have no row. Use rounds between sqrt(n) and n."


def c_dp(n: float, delta: float) -> float:
    """c_DP = 4 sqrt(2) log2(n)^(3/2) sqrt(ln(2n/delta)) ln(2.5/delta).

    >>> round(c_dp(60_000, 1 / 60_000))
    20312
    """
    return 4 * math.sqrt(2) * math.log2(n) ** 1.5 * math.sqrt(math.log(2 * n / delta)) * math.log(2.5 / delta)


def rows_needed(budget: Budget, n: int, power: float) -> float:
    """Smallest n at which Theorem 1's T falls to n^power, delta shrinking with n as it does now (delta = n^-a)."""
    exponent = max(1.0, -math.log(budget.delta) / math.log(max(n, 2)))
    low, high = 1.0, 200.0  # log2 n; T / n^power falls once n is large
    for _ in range(200):
        middle = (low + high) / 2
        rows = 2.0**middle
        if middle < 12 or c_dp(rows, rows**-exponent) * rows**0.25 > rows**power:
            low = middle
        else:
            high = middle
    return 2.0**high


def theorem_1(problem: Problem, n: int, budget: Budget, *, rounds: int | None = None) -> TheoremSettings:
    """Return the settings of Theorem 1; ``rounds`` is refused, T is part of the theorem."""
    L, radius, p, epsilon = _public(problem, n, budget)
    if rounds is not None:
        raise InvalidArgument(
            "Theorem 1 sets T = c_DP n^(1/4) itself. Leave rounds out, or use rule='response' with rounds=."
        )
    c = c_dp(n, budget.delta)
    T = c * n**0.25
    B = n / T
    beta = c**2 * L * max(1.0, math.sqrt(p) / (epsilon * math.sqrt(n))) / radius
    noise = c * L * math.sqrt(max(math.log2(T), 0.0) * math.log(2.5 / budget.delta)) / (epsilon * B * beta)
    bound = L * radius * (1 / math.sqrt(n) + math.sqrt(p) / (epsilon * n))
    conditions = (
        Condition(f"delta <= 1/n (delta = {budget.delta:.3g}, 1/n = {1 / n:.3g})", budget.delta <= 1 / n),
        Condition(
            f"delta above 2^-o(n^(1/6)) (log2(1/delta) = {-math.log2(budget.delta):.3g}, n^(1/6) = {n ** (1 / 6):.3g})",
            -math.log2(budget.delta) <= n ** (1 / 6),
        ),
        Condition(f"p <= epsilon^2 n^2 (p = {p:,}, bound {epsilon**2 * n**2:.3g})", p <= epsilon**2 * n**2),
        Condition(f"beta >= M ({beta:.3g} against {problem.smoothness:.3g})", beta >= problem.smoothness),
        Condition(
            f"the rate times c_DP^2 is below L R = {L * radius:.3g} (it is {c**2 * bound:.3g})",
            c**2 * bound < L * radius,
        ),
    )
    needed = _needed_sigma(c * L, T, B * beta, budget)
    return TheoremSettings(1, problem, n, budget, c, beta, T, B, c * L, noise, needed, conditions)


def theorem_2(problem: Problem, n: int, budget: Budget, *, rounds: int | None = None) -> TheoremSettings:
    """Return the settings of Theorem 2, with B = floor(sqrt(n)), the largest batch, unless ``rounds`` asks for more."""
    L, radius, p, epsilon = _public(problem, n, budget)
    if rounds is None:
        B = float(math.isqrt(n))
    else:
        T = positive_integer("rounds", rounds, "It is the number of batch gradient steps T.")
        if n < T or n // T > math.isqrt(n):
            raise InvalidArgument(
                f"Expected rounds={T} between {math.ceil(n / math.isqrt(n)):,} and n={n:,}: Theorem 2 needs batches "
                "of at most sqrt(n) rows. With fewer rounds use rule='response'."
            )
        B = float(n // T)
    T_exact = n / B
    c_M = problem.smoothness * radius / L
    beta = (16 * c_M + 8) * L * n**1.5 / (radius * B**2)
    clip = (8 * c_M + 4) * L
    logs = max(math.log2(T_exact), 0.0)
    printed = (16 * math.sqrt(2) * c_M + 8 * math.sqrt(2)) * L * math.sqrt(logs * math.log(2.5 / budget.delta))
    largest = (B * beta * budget.mu) ** 2 / (16 * problem.smoothness**2 * max(logs, 1.0) ** 3)
    largest /= math.log(2 * max(T_exact, 2.0) / budget.delta)
    bound = L * radius * (1 / math.sqrt(n) + math.sqrt(p) / (epsilon * n))
    conditions = (
        Condition(f"B <= sqrt(n) (B = {B:.0f}, sqrt(n) = {math.sqrt(n):.4g})", math.sqrt(n) >= B),
        Condition(
            f"beta >= 2 M T ({beta:.3g} against {2 * problem.smoothness * T_exact:.3g})",
            beta >= 2 * problem.smoothness * T_exact,
        ),
        Condition(
            f"p <= B^2 beta^2 mu^2 / (16 M^2 log^3(T) ln(2T/delta)) (p = {p:,}, bound {largest:.3g})", p <= largest
        ),
        Condition(f"p <= epsilon^2 n^2 (p = {p:,}, bound {epsilon**2 * n**2:.3g})", p <= epsilon**2 * n**2),
        Condition(
            f"the rate without its logarithms is below L R ({bound:.3g} against {L * radius:.3g})", bound < L * radius
        ),
    )
    needed = _needed_sigma(clip, T_exact, B * beta, budget)
    return TheoremSettings(
        2, problem, n, budget, None, beta, T_exact, B, clip, printed / (epsilon * B * beta), needed, conditions
    )


def _public(problem: Problem, n: int, budget: Budget) -> tuple[float, float, int, float]:
    """L, R, p and epsilon, where the theorems have a meaning."""
    if not math.isfinite(problem.radius):
        raise InvalidArgument("The theorems need a bounded domain such as L2Ball(radius=...). Or use rule='response'.")
    if not budget.private:
        raise InvalidArgument(
            f"The theorems need a finite epsilon, got epsilon={budget.epsilon}. Or use rule='response'."
        )
    if n < 2:
        raise InvalidArgument(f"Expected n={n} >= 2: the theorems' settings are functions of log n.")
    return problem.lipschitz, problem.radius, problem.parameters, budget.epsilon


def _needed_sigma(clip: float, rounds: float, scale: float, budget: Budget) -> float:
    """Return clip S sqrt(1 + floor(log2 T)) / (mu B beta): a row lies in that many nodes of the tree."""
    nodes = 1 + math.floor(math.log2(max(rounds, 1.0)))
    return budget.clips_apart * clip * math.sqrt(nodes) / (budget.mu_per_record * scale)
