"""Table 1 of the paper as data: gradients, batch steps, single epoch, convexity for privacy.

Exponents are of n, logarithms left out ("Theta tilde"). Where a system of the table has several parts that are public
under names of their own, each part is measured as a row of its own and compared with the same line.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LINES", "Line"]


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    system: str
    gradients: str
    steps: str
    gradient_exponent: float
    step_exponent: float
    single_epoch: bool
    convexity: bool


LINES = {
    "ours-inside": Line("Accelerated-DP-SRGD, minimiser in the set", "2n", "n^(1/4) polylog", 1.0, 0.25, True, False),
    "ours": Line("Accelerated-DP-SRGD, no assumption", "2n", "sqrt(n)", 1.0, 0.5, True, False),
    "feldman": Line("Feldman, Koren, Talwar 2020", "n", "n polylog", 1.0, 1.0, True, True),
    "online": Line("Zhang, Tran, Cutkosky 2022", "2n", "n", 1.0, 1.0, True, False),
    "bring": Line("Zhang, Thekumparampil, Oh, He 2022", "n polylog", "sqrt(n) polylog", 1.0, 0.5, False, True),
    "gao": Line("Gao, Lowy, Zhou, Wright 2024", "n^(9/8) polylog", "n^(1/4) polylog", 1.125, 0.25, False, False),
}

RESQUE = (
    "ReSQue (Carmon et al. 2023), which the paper discusses outside its table, is left out: it is made for losses that "
    "are not smooth, its estimator holds in a small ball around a moving centre, and no implementation of its outer "
    "loop with line search is public. A version of our own making would be a strawman."
)
