"""Surveyed plans over a grid search of their knobs: rows of the survey, ridge, rounds, beta and clip.

A grid may look at the excess; the plan may not. Problems are new draws of the reference family without an intercept and
of simulated tables with one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import dpsco
from benchmarks.survey_tables import Table, draw
from dpsco.datasets import reference_problem
from dpsco.planning import rounds_in_geometry
from dpsco.planning.geometry import metric
from dpsco.planning.surveyed_planner import RoundsChoice

SHARES, RIDGES, ROUNDS, BETAS, CLIPS = (0.05, 0.15), (0.1, 0.4, 2.0), (4, 7, 13), (1.0, 1.6), (0.85,)


@contextmanager
def forced(ridge: float, rounds: int, beta: float, clip: float) -> Iterator[None]:
    """Second stages take these knobs, beta and clip in the planner's units."""

    def choice(shape: Any, start: Any, *, slope: float = 1.0, **_: Any) -> RoundsChoice:
        form = metric(shape, ridge)
        sizes = shape.sizes * form.gains**2
        steep = beta * start.curvature * float(np.max(sizes))
        ratios = np.clip(start.curvature * np.sort(sizes) / steep, 1e-4, 1.0)
        longest = clip * slope * math.sqrt(float(np.sum(sizes)))
        return RoundsChoice(ridge, rounds, "halved", steep, longest, 0.0, 0.0, 0.0, ratios)

    planned, rounds_in_geometry.rounds_choice = rounds_in_geometry.rounds_choice, choice  # type: ignore[attr-defined]
    try:
        yield
    finally:
        rounds_in_geometry.rounds_choice = planned  # type: ignore[attr-defined]


def problems() -> Iterator[tuple[str, dpsco.Plan, Any, Any, Any]]:
    """Name, plan, rows, labels and excess of a model."""
    for n, p, epsilon, seed in ((15_000, 30, 1.0, 71), (40_000, 80, 0.5, 72)):
        data = reference_problem(n, p, fresh=40_000, seed=seed)
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), p)
        plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(epsilon, n**-1.1))
        yield f"reference n {n:,} p {p}", plan, data.features, data.labels, lambda m, d=data: d.excess_risk(m.coef)
    for table in (Table(201, 15_000, (5, 8), 15, 0.3, 2.0, 1.0), Table(202, 40_000, (12, 20), 30, 0.1, 2.0, 2.0)):
        rows = draw(table)
        width = rows.features.shape[1]
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e3), width, feature_norm=rows.norm, intercept=True)
        plan = dpsco.plan(problem, n=table.n, budget=dpsco.Budget(table.epsilon, table.n**-1.1))
        free = dpsco.ObjectivePerturbation(clip=math.inf, ridge=1e-2)
        exact = dpsco.Plan(problem, table.n, dpsco.Budget(math.inf, table.n**-1.1), free)
        least = rows.risk(dpsco.train(exact, dpsco.stream(rows.features, rows.labels), key=bytes(32)).model)
        name = f"table n {table.n:,} p {width + 1}"
        yield name, plan, rows.features, rows.labels, lambda m, r=rows, b=least: r.risk(m) - b


def _mean(features: Any, labels: Any, excess: Any, plan: dpsco.Plan, first: int, keys: int) -> float:
    runs = (dpsco.train(plan, dpsco.stream(features, labels), key=bytes([first + k]) * 32) for k in range(keys))
    return float(np.mean([excess(run.model) for run in runs]))


def grid(keys: int, *, quick: bool = False) -> None:
    """Print the excess of the plan over the best of the grid; the best is run again with other keys."""
    ratios = []
    for name, plan, features, labels, excess in problems():
        run = partial(_mean, features, labels, excess)
        found: dict[tuple[float, ...], float] = {}
        knobs = itertools.product(SHARES, RIDGES, ROUNDS, BETAS, CLIPS)
        for share, *rest in itertools.islice(knobs, 2 if quick else None):
            other = replace(plan, method=replace(plan.method, rows=int(share * plan.n), rounds=16))
            with forced(*rest):  # type: ignore[arg-type]
                found[share, *rest] = run(other, 50, 1 if quick else 2)
        share, *rest = min(found, key=lambda knob: found[knob])
        with forced(*rest):  # type: ignore[arg-type]
            best = run(replace(plan, method=replace(plan.method, rows=int(share * plan.n), rounds=16)), 0, keys)
        ours = run(plan, 0, keys)
        ratios.append(ours / best)
        print(f"  {name}: plan {ours:.5f}, grid {best:.5f} at {share, *rest}: x{ratios[-1]:.2f}", flush=True)
        if quick:
            break
    print(f"  plan over grid search: median {np.median(ratios):.2f} (mark 1.15), worst {max(ratios):.2f} (mark 1.6)")
