"""Who competes on the map of regimes, under which limit, and how a rival is tuned.

Ours are planned from public numbers and never tuned: "survey + SRGD" and "SRGD" (Algorithm 1 behind a survey, and
without one) in so many rounds, "planned" and "no survey" in as many rounds as ``dpsco.plan`` likes. Every rival has its
step size, beta, ridge or damping tuned on other rows (``bracketed``), and runs in the survey's geometry too where its
rounds can ("survey + ..."; there the released survey sets the step):

    rounds limited   DP-FTRL, the unaccelerated variant; a full map has DP-SGD and independent gradients as well
    passes free      objective perturbation, damped Newton steps; a medium map has accelerated DP-GD as well, a full map
                     Poisson samples
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from dpsco.accounting.budget import Budget
from dpsco.planning.choose import plan
from dpsco.planning.plan import Plan
from dpsco.planning.table_problem import table_plan
from dpsco.problem import Problem

__all__ = ["LIMITS", "OURS", "Contender", "bracketed", "contenders", "scaled"]

LIMITS = ("4 rounds", "8 rounds", "16 rounds", "32 rounds", "one pass", "passes free")
OURS = ("survey + SRGD", "SRGD", "planned", "no survey")

_FARTHEST = 12
"""Doublings of a formula's value that tuning tries at most."""


@dataclass(frozen=True)
class Contender:
    """A method under a limit."""

    limit: str
    name: str
    plan: Callable[[], Plan]

    @property
    def tuned(self) -> bool:
        """Whether its hyperparameter is tuned."""
        return self.name not in OURS and not self.name.startswith("survey")


def contenders(problem: Problem, n: int, epsilon: float, *, scale: str) -> Iterator[Contender]:
    """Yield who competes on a map of ``scale`` "quick", "medium" or "full"; a looser limit admits the tighter ones'."""
    given: dict[str, Any] = {"n": n, "budget": Budget(epsilon, min(1e-5, n**-1.1))}
    made = partial(plan, problem, **given)
    rivals = {"DP-FTRL": "dp-ftrl", "unaccelerated": "unaccelerated-srgd"}
    if scale == "full":
        rivals |= {"DP-SGD": "dp-sgd", "independent": "accelerated-sgd"}
    for rounds in (4, 8, 16, 32):
        limit = f"{rounds} rounds"
        yield Contender(limit, "survey + SRGD", partial(made, rounds=rounds))
        yield Contender(limit, "SRGD", partial(made, rounds=rounds, survey="none", method="accelerated-srgd"))
        for name, method in rivals.items() if scale != "quick" or rounds != 16 else ():
            yield Contender(limit, name, partial(made, method=method, rounds=rounds))
            if name != "independent":
                surveyed = partial(made, method=method, survey="full", rounds=rounds)
                yield Contender(limit, f"survey + {name}", surveyed)
    table = partial(table_plan, problem.loss, problem.dimension, **given, intercept=problem.intercept)
    yield Contender("one pass", "planned", table)
    yield Contender("one pass", "no survey", partial(made, survey="none"))
    yield Contender("passes free", "objective", partial(made, method="objective-perturbation"))
    yield Contender("passes free", "Newton", partial(made, method="dp-newton"))
    if scale != "quick":
        yield Contender("passes free", "DP-GD", partial(made, method="accelerated-gd", rounds=32))
    if scale == "full" and find_spec("dp_accounting") is not None:
        yield Contender("passes free", "Poisson", partial(made, method="dp-sgd-poisson"))


def scaled(planned: Plan, factor: float) -> Plan:
    """Return the plan with its tunable hyperparameters times ``factor``."""
    method = planned.method
    values = {name: factor * getattr(method, name) for name in method.tunable}
    return Plan(planned.problem, planned.n, planned.budget, dataclasses.replace(method, **values), rule="tuned")


def bracketed(measure: Callable[[float], float]) -> tuple[float, bool]:
    """Return the factor 2^k of least ``measure``, and whether both neighbours of it are worse.

    From 1 the search goes downhill, at most ``_FARTHEST`` doublings; a factor that cannot run measures inf.
    """
    seen: dict[int, float] = {}
    best = 0
    while True:
        for k in (best, best - 1, best + 1):
            if k not in seen:
                value = measure(2.0**k)
                seen[k] = value if math.isfinite(value) else math.inf
        least = min(seen, key=lambda k: (seen[k], abs(k)))
        if least == best or abs(least) >= _FARTHEST:
            return 2.0**least, least == best
        best = least
