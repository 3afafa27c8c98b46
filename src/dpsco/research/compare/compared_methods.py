"""The methods that are compared, and which section measures which of them.

A `ComparedMethod` is a method with fixed options and the settings that tuning may choose. Tuning always scales the
method's own knobs (``knobs``). ``choices`` are further settings; they count against the same number of configurations.
The clip is the Lipschitz constant for every method: the one public value at which no gradient is cut.

One-pass methods run as their papers specify them: last or average iterate, no momentum. Variants with momentum or a
tail average are curves of their own. Other methods with correlated noise use the square-root factorisation, which has
less error than the binary tree of their papers. Accelerated-DP-SRGD uses the mechanism computed for it; its results
with square-root noise and with the binary tree are shown too. Where Phased-ERM is tuned it uses its accelerated
solver, the faster of the two. The table of costs has both.

Plans of ``dpsco.plan`` run beside them, untuned: the default plan, and rivals in the geometry of its survey, where the
released survey sets their step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from dpsco.methods import METHODS
from dpsco.research.compare.comparison_size import fourth_root, square_root
from dpsco.research.compare.evaluation_data import Setting
from dpsco.research.compare.pattern_search import GridPoint
from dpsco.research.compare.single_run import PLANNED, Fields, SingleRun

__all__ = [
    "ANY_ROUNDS",
    "BY_SIZE",
    "FURTHER",
    "NEED_ACCOUNTANT",
    "NOT_TUNED",
    "ONE_PASS",
    "ON_FILE",
    "OURS",
    "OWN_ROUNDS",
    "PLANNED_ONE_PASS",
    "PLANNED_ROUNDS",
    "REST",
    "ComparedMethod",
    "accelerated_gd",
    "accountant_installed",
    "poisson_dp_sgd",
    "tuned_rounds",
]


@dataclass(frozen=True)
class ComparedMethod:
    """A method as it enters the comparison.

    Parameters
    ----------
    name
        The name on pages and plots.
    method
        The name of the method in dpsco, or "planned" for what ``dpsco.plan`` chooses.
    kind
        "ours", "ours, other noise", "default plan", "one pass", "one pass, more tuned", "one pass, surveyed" or "many
        passes". Plots group by it.
    options
        Hyperparameters of the method that are fixed, or arguments of ``dpsco.plan``.
    choices
        Hyperparameters with the values to try.
    own_rounds
        Whether the method, which could choose its rounds itself, is told their number.
    """

    name: str
    method: str
    kind: str
    options: Fields = ()
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    own_rounds: bool = False

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of the hyperparameters that tuning scales."""
        return () if self.method == PLANNED else METHODS[self.method].tunable

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """The number of values of each choice."""
        return tuple(len(values) for _, values in self.choices)

    def single_run(self, setting: Setting, rounds: int, point: GridPoint, role: str, replicate: int) -> SingleRun:
        """Return the run of one configuration on the data of one replicate."""
        chosen = self._chosen(point)
        rounds = chosen.pop("rounds", rounds)
        own = (("rounds", rounds),) if self.own_rounds else ()
        return SingleRun(
            setting=setting,
            method=self.method,
            rounds=rounds,
            role=role,
            replicate=replicate,
            options=self.options + own + tuple(chosen.items()),
            scales=tuple((name, 2.0**k) for name, k in zip(self.knobs, point.exponents, strict=True)),
        )

    def describe(self, point: GridPoint) -> dict[str, Any]:
        """Return a configuration as names with values."""
        scales = {f"{name} x": round(2.0**k, 4) for name, k in zip(self.knobs, point.exponents, strict=True)}
        return {**scales, **self._chosen(point)}

    def _chosen(self, point: GridPoint) -> dict[str, Any]:
        return {name: values[place] for (name, values), place in zip(self.choices, point.places, strict=True)}


Z_STEPS = ("z_step", ("halved", "listed"))
ITERATES = ("iterate", ("average", "last"))
SQRT: Fields = (("mechanism", "sqrt"),)
TREE: Fields = (("mechanism", "tree"),)
WORKLOAD: Fields = (("mechanism", "workload"),)

OURS = ComparedMethod("Accelerated-DP-SRGD", "accelerated-srgd", "ours", options=WORKLOAD, choices=(Z_STEPS,))
UNACCELERATED = ComparedMethod("unaccelerated DP-SRGD", "unaccelerated-srgd", "one pass", options=SQRT)
INDEPENDENT = ComparedMethod("accelerated, independent gradients", "accelerated-sgd", "one pass", choices=(Z_STEPS,))
DP_SGD = ComparedMethod("DP-SGD", "dp-sgd", "one pass", choices=(ITERATES,))
DP_FTRL = ComparedMethod("DP-FTRL", "dp-ftrl", "one pass", options=SQRT, choices=(ITERATES,))
FTRL_TAIL = replace(
    DP_FTRL, name="DP-FTRL, tail average", kind="one pass, more tuned", choices=(("iterate", ("tail",)),)
)
FTRL_MOMENTUM = ComparedMethod(
    "DP-FTRL, momentum 0.9, tail average",
    "dp-ftrl",
    "one pass, more tuned",
    options=(("momentum", 0.9), ("iterate", "tail"), *SQRT),
)
ONLINE = ComparedMethod("online-to-batch", "online-to-batch", "one pass", options=SQRT)
SNOWBALL = ComparedMethod("Snowball-SGD", "snowball-sgd", "one pass", own_rounds=True)
PHASED_SGD = ComparedMethod("Phased-SGD", "phased-sgd", "one pass")
PHASED_ERM = ComparedMethod("Phased-ERM", "phased-erm", "many passes", options=(("solver", "accelerated"),))
LOCALIZED = ComparedMethod("localized accelerated, not tuned", "localized-accelerated", "many passes")

ANY_ROUNDS = (OURS, UNACCELERATED, INDEPENDENT, DP_SGD, DP_FTRL, FTRL_TAIL, FTRL_MOMENTUM)
"""Methods that take any number of rounds."""

FURTHER = (
    replace(OURS, name="Accelerated-DP-SRGD, square-root noise", kind="ours, other noise", options=SQRT),
    replace(OURS, name="Accelerated-DP-SRGD, binary tree", kind="ours, other noise", options=TREE),
    replace(
        DP_SGD, name="DP-SGD, tail average", kind="one pass, more tuned", options=(("iterate", "tail"),), choices=()
    ),
    ONLINE,
    SNOWBALL,
)
"""Methods that are measured at every second number of rounds only."""

OWN_ROUNDS = (PHASED_SGD, PHASED_ERM)
"""Methods that set their number of rounds themselves."""

NOT_TUNED = (LOCALIZED,)
"""Methods with the settings of their formulas: each configuration needs an accountant that takes a minute."""

DEFAULT = ComparedMethod("default plan, not tuned", PLANNED, "default plan")


def _surveyed(name: str, method: str) -> ComparedMethod:
    """Return a rival in the geometry of the survey."""
    options: Fields = (("method", method), ("survey", "full"))
    return ComparedMethod(f"survey, then {name}, not tuned", PLANNED, "one pass, surveyed", options=options)


PLANNED_ROUNDS = (
    DEFAULT,
    _surveyed("unaccelerated DP-SRGD", "unaccelerated-srgd"),
    _surveyed("DP-FTRL", "dp-ftrl"),
    _surveyed("DP-SGD", "dp-sgd"),
)
"""Plans of ``dpsco.plan`` in at most so many rounds."""

PLANNED_ONE_PASS = replace(DEFAULT, options=(("rounds", None),))
"""The default plan in as many rounds as it likes."""


def _planned_at_rest(name: str, method: str) -> ComparedMethod:
    """Return a method for rows at rest as ``dpsco.plan`` plans it."""
    options: Fields = (("rounds", None), ("method", method))
    return ComparedMethod(f"{name}, not tuned", PLANNED, "many passes", options=options)


REST = (
    _planned_at_rest("objective perturbation", "objective-perturbation"),
    ComparedMethod("objective perturbation", "objective-perturbation", "many passes"),
    _planned_at_rest("damped Newton", "dp-newton"),
)
"""Methods for rows at rest that set their passes themselves."""

ONE_PASS = replace(OURS, name="Accelerated-DP-SRGD, one pass")

ON_FILE = (OURS, UNACCELERATED, INDEPENDENT, DP_SGD, DP_FTRL, FTRL_MOMENTUM, ONLINE)
"""Methods that are compared on the rows of a file."""

BY_SIZE: tuple[tuple[ComparedMethod, Callable[[int], int]], ...] = (
    (replace(OURS, name="Accelerated-DP-SRGD, n^(1/4) rounds"), fourth_root),
    (replace(OURS, name="Accelerated-DP-SRGD, sqrt(n) rounds"), square_root),
    (replace(UNACCELERATED, name="unaccelerated DP-SRGD, sqrt(n) rounds"), square_root),
    (replace(INDEPENDENT, name="accelerated, independent gradients, n^(1/4) rounds"), fourth_root),
    (replace(DP_SGD, name="DP-SGD, sqrt(n) rounds"), square_root),
    (replace(DP_FTRL, name="DP-FTRL, sqrt(n) rounds"), square_root),
)
"""Methods that are measured at several n, each with its rule for the number of rounds."""

NEED_ACCOUNTANT = {"dp-sgd-poisson": "DP-SGD with Poisson batches", "localized-accelerated": "localized accelerated"}
"""Methods whose noise needs a numerical accountant: the extra dpsco[accounting]."""


def accountant_installed() -> bool:
    """Return whether the methods of `NEED_ACCOUNTANT` can run."""
    return find_spec("dp_accounting") is not None


def poisson_dp_sgd(epochs: int) -> ComparedMethod:
    """Return DP-SGD with Poisson batches over ``epochs`` expected passes."""
    plural = "epoch" if epochs == 1 else "epochs"
    return replace(
        DP_SGD,
        name=f"DP-SGD, Poisson, {epochs} {plural}",
        method="dp-sgd-poisson",
        kind="many passes",
        options=(("epochs", float(epochs)),),
    )


def accelerated_gd(epochs: int) -> ComparedMethod:
    """Return accelerated full-batch gradient descent with ``epochs`` passes."""
    return replace(INDEPENDENT, name=f"accelerated DP-GD, {epochs} epochs", method="accelerated-gd", kind="many passes")


def tuned_rounds(method: ComparedMethod, rounds: tuple[int, ...]) -> ComparedMethod:
    """Return the method with the number of rounds among its choices."""
    return replace(method, choices=(*method.choices, ("rounds", rounds)))
