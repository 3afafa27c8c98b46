"""Plans for any method, from the numbers of one plan."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np

import dpsco
from dpsco.methods import METHODS


def under(plan: dpsco.Plan, method: Any, **options: Any) -> dpsco.Plan:
    """``plan`` with another method (a name, a class or a partial of one) that takes over the numbers it knows."""
    if isinstance(method, partial):
        method, options = method.func, {**method.keywords, **options}
    kind = METHODS[method] if isinstance(method, str) else method
    known = {field.name for field in dataclasses.fields(kind)}
    shared = {name: getattr(plan.method, name) for name in ("clip", "rounds", "mechanism", "z_step")}
    if kind is dpsco.SnowballSGD:
        shared.pop("rounds")  # its batches decide unless a test does
    if kind in (dpsco.SufficientStatistics, dpsco.DPNewton):
        shared.pop("clip")  # its weight decides
    if kind is dpsco.SufficientStatistics:
        plan = dataclasses.replace(plan, problem=dataclasses.replace(plan.problem, loss=dpsco.Squared(1.0)))
    return dataclasses.replace(plan, method=kind(**{k: v for k, v in shared.items() if k in known} | options))


def named(method: Any) -> str:
    """An id for a parametrised test."""
    if isinstance(method, partial):
        return "-".join([method.func.name, *(f"{name}={value}" for name, value in method.keywords.items())])
    return method if isinstance(method, str) else str(method.name)


def replaying(plan: dpsco.Plan, values: Any) -> Any:
    """``release(query)`` that gives out ``values``, one per round, whatever the sum."""
    from dpsco.query import Clipped
    from dpsco.release.ledger import MemoryLedger
    from dpsco.release.releaser import Releaser

    schedule, size = plan.schedule, plan.problem.parameters
    releaser = Releaser(schedule.calibration, schedule.mechanism, size, MemoryLedger(bytes(32)), replay=values)
    return lambda query: releaser.release(query, Clipped(np.zeros(size), 0))


def algorithm_1_plan(*, problem: dpsco.Problem, n: int, budget: dpsco.Budget, **hyperparameters: Any) -> dpsco.Plan:
    """A plan of Algorithm 1 from one set of keywords."""
    return dpsco.Plan(problem, n, budget, dpsco.AcceleratedSRGD(**hyperparameters))
