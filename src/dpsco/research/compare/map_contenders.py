"""Who competes on the map of regimes, under which limit, and how a rival is tuned.

Ours are planned from public numbers and never tuned: "default" is what ``dpsco.plan`` chooses in so many rounds, in any
number of them, and with ``solver="auto"`` where passes are free; "no survey" is the same without a survey. Every rival
has its step size, beta, ridge or damping tuned on other rows (``bracketed``), and runs in the survey's geometry too
("survey + ..."). Behind a survey the released numbers set the step of one-pass rivals; methods of many passes are tuned
there as well (behind_survey.py).

    rounds limited   DP-FTRL, the unaccelerated variant; a full map has DP-SGD and independent gradients as well
    passes free      objective perturbation, damped Newton steps; a medium map has accelerated DP-GD as well, a full map
                     Poisson samples
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from dpsco.accounting.budget import Budget
from dpsco.methods import Surveyed, SurveyedObjective
from dpsco.planning.choose import plan
from dpsco.planning.plan import Plan
from dpsco.planning.table_problem import table_plan
from dpsco.problem import Problem
from dpsco.research.compare.behind_survey import ROUNDS

__all__ = ["LIMITS", "OURS", "Contender", "bracketed", "contenders", "kind", "left_out", "scaled"]

LIMITS = ("4 rounds", "8 rounds", "16 rounds", "32 rounds", "one pass", "passes free")
OURS = ("default", "no survey")
KINDS = {"accelerated-srgd": "SRGD", "unaccelerated-srgd": "SRGD", "objective-perturbation": "objective"}
"""What a plan of ours is, by its method."""

MOST_WORK, MOST_MAPPED, MOST_NUMBERS = 2e10, 2e8, 2e6
"""Multiply-adds of a pass, n p^2, up to which objective perturbation and Newton steps compete, and many passes behind a
survey; numbers in a data set up to which accelerated DP-GD competes on a map that is not full. Tuning makes hundreds of
passes."""

_FARTHEST = 12
"""Doublings of a formula's value that tuning tries at most."""


@dataclass(frozen=True)
class Contender:
    """A method under a limit."""

    limit: str
    name: str
    plan: Callable[[], Plan]
    behind: str = ""
    """A method of many passes that runs behind the survey of the plan."""

    @property
    def tuned(self) -> bool:
        """Whether its hyperparameter is tuned."""
        return bool(self.behind) or (self.name not in OURS and not self.name.startswith("survey"))


def kind(name: str, planned: Plan) -> str:
    """Return the method behind a name: ours is called by what was planned."""
    if name not in OURS:
        return name
    if isinstance(planned.method, SurveyedObjective):
        return "survey + objective"
    return "survey + SRGD" if isinstance(planned.method, Surveyed) else KINDS[planned.method.name]


def contenders(problem: Problem, n: int, epsilon: float, *, scale: str) -> Iterator[Contender]:
    """Yield who competes on a map of ``scale`` "quick", "medium" or "full"; a looser limit admits the tighter ones'."""
    given: dict[str, Any] = {"n": n, "budget": Budget(epsilon, min(1e-5, n**-1.1))}
    made, work = partial(plan, problem, **given), n * float(problem.parameters) ** 2
    rivals = {"DP-FTRL": "dp-ftrl", "unaccelerated": "unaccelerated-srgd"}
    if scale == "full":
        rivals |= {"DP-SGD": "dp-sgd", "independent": "accelerated-sgd"}
    for rounds in (4, 8, 16, 32):
        limit = f"{rounds} rounds"
        yield Contender(limit, "default", partial(made, rounds=rounds))
        yield Contender(limit, "no survey", partial(made, rounds=rounds, survey="none", method="accelerated-srgd"))
        for name, method in rivals.items() if scale != "quick" or rounds != 16 else ():
            yield Contender(limit, name, partial(made, method=method, rounds=rounds))
            if name != "independent":
                surveyed = partial(made, method=method, survey="full", rounds=rounds)
                yield Contender(limit, f"survey + {name}", surveyed)
    table = partial(table_plan, problem.loss, problem.dimension, **given, intercept=problem.intercept)
    yield Contender("one pass", "default", table)
    yield Contender("one pass", "no survey", partial(made, survey="none"))
    yield Contender("passes free", "default", partial(table, solver="auto"))
    many = {"objective": "objective-perturbation", "Newton": "dp-newton"} if work <= MOST_WORK else {}
    if scale == "full" or (scale == "medium" and n * problem.parameters <= MOST_NUMBERS):
        many["DP-GD"] = "accelerated-gd"
    if scale == "full" and find_spec("dp_accounting") is not None:
        many["Poisson"] = "dp-sgd-poisson"
    for name, method in many.items():
        options = {"rounds": ROUNDS} if name == "DP-GD" else {}
        yield Contender("passes free", name, partial(made, method=method, **options))
        if scale != "quick" and name != "Poisson" and work <= MOST_MAPPED:
            yield Contender("passes free", f"survey + {name}", partial(made, survey="full"), behind=method)


def left_out(scale: str, sizes: Iterable[tuple[int, int]]) -> list[str]:
    """Return a line for every method that does not run, or not in all of the regimes of n rows and p columns."""
    given = tuple(sizes)
    wide = [n * float(p) ** 2 for n, p in given]
    lines = []
    if scale == "full" and find_spec("dp_accounting") is None:
        lines.append("DP-SGD on Poisson samples (needs dpsco[accounting])")
    if beyond := sum(work > MOST_WORK for work in wide):
        lines.append(f"objective perturbation and Newton steps in {beyond} regimes with n p^2 > {MOST_WORK:.0e}")
    if beyond := sum(work > MOST_MAPPED for work in wide) if scale != "quick" else 0:
        lines.append(f"many passes behind a survey in {beyond} regimes with n p^2 > {MOST_MAPPED:.0e}")
    if beyond := sum(n * p > MOST_NUMBERS for n, p in given) if scale == "medium" else 0:
        lines.append(f"accelerated DP-GD in {beyond} regimes with n p > {MOST_NUMBERS:.0e}")
    return lines


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
