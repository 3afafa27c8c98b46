"""Table 1 of the paper as data, and the methods that are measured beside its lines.

Exponents are powers of n without logarithms. A system of the table that consists of several methods has one row per
method; all of them are compared with the same line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpsco.research.compare.compared_methods import TREE
from dpsco.research.compare.comparison_size import fourth_root, square_root
from dpsco.research.compare.single_run import Fields

__all__ = ["LINES", "RESQUE", "ROWS", "PaperLine", "TableRow"]


@dataclass(frozen=True)
class PaperLine:
    """A line of the paper's table."""

    system: str
    gradients: str
    steps: str
    gradient_exponent: float
    step_exponent: float
    single_epoch: bool
    convexity: bool
    """Whether privacy needs a convex loss."""


LINES = {
    "ours-inside": PaperLine(
        "Accelerated-DP-SRGD, minimiser in the set", "2n", "n^(1/4) polylog", 1.0, 0.25, True, False
    ),
    "ours": PaperLine("Accelerated-DP-SRGD, no assumption", "2n", "sqrt(n)", 1.0, 0.5, True, False),
    "feldman": PaperLine("Feldman, Koren, Talwar 2020", "n", "n polylog", 1.0, 1.0, True, True),
    "online": PaperLine("Zhang, Tran, Cutkosky 2022", "2n", "n", 1.0, 1.0, True, False),
    "bring": PaperLine("Zhang, Thekumparampil, Oh, He 2022", "n polylog", "sqrt(n) polylog", 1.0, 0.5, False, True),
    "gao": PaperLine("Gao, Lowy, Zhou, Wright 2024", "n^(9/8) polylog", "n^(1/4) polylog", 1.125, 0.25, False, False),
}

RESQUE = (
    "ReSQue (Carmon et al. 2023) is not in the paper's table and is not measured. It is made for losses that are not "
    "smooth, its estimator holds in a small ball around a moving centre, and no implementation of its outer loop with "
    "line search is public."
)


@dataclass(frozen=True)
class TableRow:
    """A measured method, the line it is compared with, and why counted exponents may differ from that line."""

    name: str
    line: str
    method: str
    rounds: Callable[[int], int]
    options: Fields = ()
    step_reason: str = ""
    gradient_reason: str = ""


def _one_per_row(n: int) -> int:
    return n


ROWS = (
    TableRow(
        "Accelerated-DP-SRGD, T = n^(1/4)",
        "ours-inside",
        "accelerated-srgd",
        fourth_root,
        options=TREE,
        step_reason="T is n^(1/4), rounded. The theorem's factor c_DP is left out: no n here allows it.",
        gradient_reason="The method evaluates 2n - B gradients with B = n^(3/4): the first round needs one gradient "
        "per row. Its share of the rows falls as n grows, so the exponent approaches 1 from above.",
    ),
    TableRow("Accelerated-DP-SRGD, T = sqrt(n)", "ours", "accelerated-srgd", square_root, options=TREE),
    TableRow(
        "Snowball-SGD",
        "feldman",
        "snowball-sgd",
        fourth_root,
        step_reason="Batches stay larger than one row for about p / mu^2 steps: T = n - O(p / mu^2 log n). At small n, "
        "or in high dimension, T is below n and the exponent approaches 1 from above.",
    ),
    TableRow("Phased-SGD", "feldman", "phased-sgd", fourth_root),
    TableRow("online-to-batch, B = 1", "online", "online-to-batch", _one_per_row, options=TREE),
    TableRow(
        "Phased-ERM, SVRG",
        "bring",
        "phased-erm",
        fourth_root,
        options=(("solver", "svrg"),),
        step_reason="Every single-row step of the solver counts. Its inner loops are as long as the condition number "
        "M eta n. The step size eta is of order 1 / sqrt(n + O(p / mu^2)), nearly constant while n is small compared "
        "with p / mu^2, so the condition number grows faster than sqrt(n) there. The certificate adds logarithms.",
        gradient_reason="The passes per phase grow with the logarithms of the condition number and of the accuracy "
        "that the certificate needs.",
    ),
    TableRow(
        "Phased-ERM, accelerated",
        "bring",
        "phased-erm",
        fourth_root,
        options=(("solver", "accelerated"),),
        step_reason="Full-batch acceleration takes the square root of the condition number, n^(1/4) up to logarithms: "
        "fewer steps than the sqrt(n) of the table.",
        gradient_reason="Every step reads the whole phase: n^(5/4) gradients up to logarithms.",
    ),
    TableRow(
        "localized accelerated",
        "gao",
        "localized-accelerated",
        fourth_root,
        step_reason="Each of log(n) / 2 phases has 4 sqrt((M + lam_i) / lam_i) rounds, rounded up. Late phases have a "
        "few rounds at every n, and their number grows with log n.",
        gradient_reason="A phase of R rounds evaluates about n mu sqrt(R) gradients. sqrt(R) is the n^(1/8) of the "
        "table, but delta = n^-1.1 falls as n grows, and mu falls with it: by n^-0.07 over these sizes.",
    ),
)
"""The rows of the measured table."""
