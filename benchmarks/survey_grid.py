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

SHARES, RIDGES, ROUNDS, BETAS, CLIPS = (0.05, 0.1, 0.2), (0.1, 0.4, 1.5), (4, 7, 13), (0.8, 1.25), (0.8, 1.15)
FINALISTS = 4
"""Best points of the grid that are run again before the best of them is taken."""
REFERENCES = ((15_000, 30, 1.0, 71), (40_000, 80, 0.5, 72), (8_000, 15, 2.0, 73), (25_000, 40, 3.0, 74))
"""Rows, columns, epsilon and seed."""
TABLES = (
    Table(201, 15_000, (5, 8), 15, 0.3, 2.0, 1.0),
    Table(202, 40_000, (12, 20), 30, 0.1, 2.0, 2.0),
    Table(203, 25_000, (10, 5, 3), 20, 0.5, 1.0, 0.5),
    Table(204, 10_000, (6,), 10, 0.2, 1.5, 3.0),
)


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
    for n, p, epsilon, seed in REFERENCES:
        data = reference_problem(n, p, fresh=40_000, seed=seed)
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), p)
        plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(epsilon, n**-1.1))
        yield f"reference n {n:,} p {p}", plan, data.features, data.labels, lambda m, d=data: d.excess_risk(m.coef)
    for table in TABLES:
        rows = draw(table)
        width = rows.features.shape[1]
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e3), width, feature_norm=rows.norm, intercept=True)
        plan = dpsco.plan(problem, n=table.n, budget=dpsco.Budget(table.epsilon, table.n**-1.1))
        name = f"table n {table.n:,} p {width + 1}"
        yield name, plan, rows.features, rows.labels, lambda m, r=rows: r.risk(m) - r.least_risk


def _runs(features: Any, labels: Any, excess: Any, plan: dpsco.Plan, first: int, keys: int) -> tuple[float, Any]:
    """Mean excess over ``keys`` keys, and the last result."""
    runs = [dpsco.train(plan, dpsco.stream(features, labels), key=bytes([first + k]) * 32) for k in range(keys)]
    return float(np.mean([excess(run.model) for run in runs])), runs[-1]


def grid(keys: int, *, quick: bool = False) -> None:
    """Print the excess of the plan over the best of the grid; the best is run again with the plan's keys."""
    ratios, predicted = [], []
    for name, plan, features, labels, excess in problems():
        run = partial(_runs, features, labels, excess)
        knobs = list(itertools.islice(itertools.product(SHARES, RIDGES, ROUNDS, BETAS, CLIPS), 2 if quick else None))

        def tried(knob: tuple[float, ...], first: int, count: int, plan: Any = plan, run: Any = run) -> float:
            share, ridge, rounds, beta, clip = knob
            other = replace(plan, method=replace(plan.method, rows=int(share * plan.n), rounds=16))
            with forced(ridge, int(rounds), beta, clip):
                return float(run(other, first, count)[0])

        once = {knob: tried(knob, 50, 1) for knob in knobs}
        finalists = sorted(once, key=lambda knob: once[knob])[:FINALISTS]
        knob = min(finalists, key=lambda knob: tried(knob, 60, 1 if quick else 3))
        best = tried(knob, 0, keys)
        ours, result = run(plan, 0, keys)
        ratios.append(ours / best)
        predicted.append(result.prediction.total / ours)
        print(
            f"  {name}: plan {ours:.5f}, grid {best:.5f} at {knob}: x{ratios[-1]:.2f}; predicted x{predicted[-1]:.2f}",
            flush=True,
        )
        if quick:
            break
    off = float(np.exp(np.median(np.abs(np.log(predicted)))))
    print(
        f"  plan over grid search: median {np.median(ratios):.2f} (mark 1.15), worst {max(ratios):.2f} (mark 1.6); "
        f"prediction off by a factor of {off:.2f} in the median (mark 1.5)"
    )
