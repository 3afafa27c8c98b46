"""Who takes part in which section, and with what settings.

Plain one-pass rivals run as their papers specify them (last or average iterate, no momentum) and carry the marks; the
same rivals with momentum and tail averages are further curves. Noise: rivals with correlated noise take the square-root
factorisation, so that none is held back by the binary tree of its paper; ours takes the mechanism made for it, and
is also drawn with the rivals' noise and with the paper's tree. Phased-ERM runs with its accelerated solver where it is
tuned, which is the quicker of the two; the table has both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dpsco.methods import ALGORITHMS
from dpsco.research.compare.contenders import Contender
from dpsco.research.compare.scale import quarter, root
from dpsco.research.compare.trial import Fields

__all__ = [
    "BESIDE",
    "NOT_TUNED",
    "ONE_PASS",
    "ON_A_FILE",
    "OURS",
    "OWN_SCHEDULE",
    "ROUND_BASED",
    "SIZED",
    "TABLE",
    "Row",
    "full_batch",
    "poisson",
    "with_rounds",
]

Z_STEPS = ("plan.z_step", ("halved", "listed"))
PLAIN = ("iterate", ("average", "last"))
SQRT: Fields = (("mechanism", "sqrt"),)
TREE: Fields = (("mechanism", "tree"),)

OURS = Contender(
    "Accelerated-DP-SRGD", "accelerated-srgd", "ours", plan=(("mechanism", "workload"),), choices=(Z_STEPS,)
)
UNACCELERATED = Contender("unaccelerated DP-SRGD", "unaccelerated-srgd", "one pass", plan=SQRT)
INDEPENDENT = Contender("accelerated, independent gradients", "accelerated-sgd", "one pass", choices=(Z_STEPS,))
DP_SGD = Contender("DP-SGD", "dp-sgd", "one pass", choices=(PLAIN,))
DP_FTRL = Contender("DP-FTRL", "dp-ftrl", "one pass", plan=SQRT, choices=(PLAIN,))
FTRL_TAIL = replace(
    DP_FTRL, name="DP-FTRL, tail average", kind="one pass, more tuned", choices=(("iterate", ("tail",)),)
)
FTRL_MOMENTUM = Contender(
    "DP-FTRL, momentum 0.9, tail average",
    "dp-ftrl",
    "one pass, more tuned",
    options=(("momentum", 0.9), ("iterate", "tail")),
    plan=SQRT,
)
ONLINE = Contender("online-to-batch", "online-to-batch", "one pass", plan=SQRT)
SNOWBALL = Contender("Snowball-SGD", "snowball-sgd", "one pass", own_rounds=True)
PHASED_SGD = Contender("Phased-SGD", "phased-sgd", "one pass")
PHASED_ERM = Contender("Phased-ERM", "phased-erm", "many passes", options=(("solver", "accelerated"),))
LOCALIZED = Contender("localized accelerated, not tuned", "localized-accelerated", "many passes")
"""Each of its configurations needs an accountant of its own, a minute each: it runs with its formula's settings."""

ROUND_BASED = (OURS, UNACCELERATED, INDEPENDENT, DP_SGD, DP_FTRL, FTRL_TAIL, FTRL_MOMENTUM)
"""Those that take any number of rounds."""

BESIDE = (
    replace(OURS, name="Accelerated-DP-SRGD, square-root noise", kind="ours, other noise", plan=SQRT),
    replace(OURS, name="Accelerated-DP-SRGD, binary tree", kind="ours, other noise", plan=TREE),
    replace(
        DP_SGD, name="DP-SGD, tail average", kind="one pass, more tuned", options=(("iterate", "tail"),), choices=()
    ),
    ONLINE,
    SNOWBALL,
)
"""Further ones, at every other number of rounds."""

OWN_SCHEDULE = (PHASED_SGD, PHASED_ERM)
"""Those that set their rounds themselves."""

NOT_TUNED = (LOCALIZED,)

ONE_PASS = replace(OURS, name="Accelerated-DP-SRGD, one pass")

ON_A_FILE = (OURS, UNACCELERATED, INDEPENDENT, DP_SGD, DP_FTRL, FTRL_MOMENTUM, ONLINE)

SIZED: tuple[tuple[Contender, Callable[[int], int]], ...] = (
    (replace(OURS, name="Accelerated-DP-SRGD, n^(1/4) rounds"), quarter),
    (replace(OURS, name="Accelerated-DP-SRGD, sqrt(n) rounds"), root),
    (replace(UNACCELERATED, name="unaccelerated DP-SRGD, sqrt(n) rounds"), root),
    (replace(INDEPENDENT, name="accelerated, independent gradients, n^(1/4) rounds"), quarter),
    (replace(DP_SGD, name="DP-SGD, sqrt(n) rounds"), root),
    (replace(DP_FTRL, name="DP-FTRL, sqrt(n) rounds"), root),
)
"""Contenders over n, with the rule for their rounds."""


def poisson(epochs: int) -> Contender:
    """DP-SGD over so many expected passes."""
    plural = "epoch" if epochs == 1 else "epochs"
    return replace(
        DP_SGD,
        name=f"DP-SGD, Poisson, {epochs} {plural}",
        algorithm="dp-sgd-poisson",
        kind="many passes",
        options=(("epochs", float(epochs)),),
    )


def full_batch(epochs: int) -> Contender:
    """Accelerated gradient descent with so many passes."""
    return replace(
        INDEPENDENT, name=f"accelerated DP-GD, {epochs} epochs", algorithm="accelerated-gd", kind="many passes"
    )


def with_rounds(who: Contender, rounds: tuple[int, ...]) -> Contender:
    """The contender with the number of rounds among its choices."""
    return replace(who, choices=(*who.choices, ("rounds", rounds)))


@dataclass(frozen=True)
class Row:
    """A line of the measured table: a method, the line of the paper it stands beside, and why they may differ."""

    name: str
    line: str
    algorithm: str
    rounds: Callable[[int], int]
    options: Fields = ()
    plan: Fields = ()
    step_reason: str = ""
    gradient_reason: str = ""

    @property
    def method(self) -> Any:
        return ALGORITHMS[self.algorithm](**dict(self.options))


def _every_row(n: int) -> int:
    return n


TABLE = (
    Row(
        "Accelerated-DP-SRGD, T = n^(1/4)",
        "ours-inside",
        "accelerated-srgd",
        quarter,
        plan=TREE,
        step_reason="T is n^(1/4) rounded to a whole number, without the c_DP of the theorem, which no n here allows.",
        gradient_reason="2n - B gradients with B = n^(3/4): the first round asks for one gradient a row, and its share "
        "of the rows falls as n grows, so that the exponent comes down to 1 from above.",
    ),
    Row("Accelerated-DP-SRGD, T = sqrt(n)", "ours", "accelerated-srgd", root, plan=TREE),
    Row(
        "Snowball-SGD",
        "feldman",
        "snowball-sgd",
        quarter,
        step_reason="its batches stay above one row for about p / mu^2 steps: T = n - O(p / mu^2 log n), so that at "
        "small n, or in high dimension, fewer than n steps are taken and the exponent comes down to 1 from above.",
    ),
    Row("Phased-SGD", "feldman", "phased-sgd", quarter),
    Row("online-to-batch, B = 1", "online", "online-to-batch", _every_row, plan=TREE),
    Row(
        "Phased-ERM, SVRG",
        "bring",
        "phased-erm",
        quarter,
        options=(("solver", "svrg"),),
        step_reason="every single-row step of the solver counts. Its inner loops are as long as the condition number, "
        "M eta n; the step eta is of order 1 / sqrt(n + O(p / mu^2)), flat while n is small beside p / mu^2, so that "
        "the condition number grows faster than sqrt(n) there. Logarithms for the certificate come on top.",
        gradient_reason="the passes of a phase grow with the logarithms of its condition number and of the accuracy "
        "that the certificate asks for.",
    ),
    Row(
        "Phased-ERM, accelerated",
        "bring",
        "phased-erm",
        quarter,
        options=(("solver", "accelerated"),),
        step_reason="full-batch acceleration takes the square root of the condition number, n^(1/4) up to logarithms: "
        "fewer steps than the sqrt(n) of the table.",
        gradient_reason="every step of it sees the whole phase: n^(5/4) gradients up to logarithms, the price of the "
        "fewer steps.",
    ),
    Row(
        "localized accelerated",
        "gao",
        "localized-accelerated",
        quarter,
        step_reason="rounds are 4 sqrt((M + lam_i) / lam_i), rounded up, in each of log(n) / 2 phases: late phases "
        "have a few rounds each whatever n is, and their number grows with log n.",
        gradient_reason="a phase of R rounds evaluates about n mu sqrt(R) gradients: sqrt(R) is the n^(1/8) of the "
        "table, but delta = n^-1.1 falls as n grows and mu with it, by n^-0.07 over these sizes.",
    ),
)
