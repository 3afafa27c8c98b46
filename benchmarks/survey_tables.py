"""Ten simulated tables: the default plan beside the plain plan and objective perturbation with its best ridge.

Groups of 0/1 columns; numbers of scales 1e-3 to 1e3, divided by declared ranges that are 2 to 30 times wider than
their spread, some of them skewed, one duplicated, one constant; labels as rare as 2 %. Nothing is read off the rows but
the rows. A gap is the log loss on fresh rows, in expectation over their labels, above that of the minimiser without
privacy of the same rows. A prediction is of the excess, the same above the law of the labels.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpsco

Array = np.ndarray[Any, Any]
FRESH = 40_000
RIDGES = (1.15, 2.0, 5.0, 15.0, 50.0)
"""Ridges of objective perturbation over the least that epsilon allows: the best on the fresh rows is kept."""


@dataclass(frozen=True)
class Table:
    """Size of one table."""

    seed: int
    n: int
    groups: tuple[int, ...]
    numbers: int
    rate: float
    signal: float
    epsilon: float


TABLES = (
    Table(101, 1_000, (3, 2), 4, 0.3, 1.5, 2.0),
    Table(102, 4_000, (5, 4), 12, 0.5, 2.0, 1.0),
    Table(103, 12_000, (7, 9, 3), 25, 0.2, 2.0, 1.0),
    Table(104, 20_000, (30, 12, 4), 8, 0.02, 2.0, 4.0),
    Table(105, 30_000, (15, 20, 10, 6), 60, 0.3, 2.0, 0.5),
    Table(106, 50_000, (80, 60), 160, 0.4, 1.5, 1.0),
    Table(107, 40_000, (200, 250, 100), 50, 0.15, 2.5, 2.0),
    Table(108, 150_000, (10, 10, 10), 20, 0.5, 1.0, 0.1),
    Table(109, 300_000, (6, 12), 40, 0.02, 1.5, 0.3),
    Table(110, 1_000_000, (4,), 10, 0.25, 2.0, 0.1),
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table in declared units, and fresh ones with the probability of label 1."""

    features: Array
    labels: Array
    fresh: Array
    chance: Array
    norm: float

    def risk(self, model: Any) -> float:
        """Expected log loss on the fresh rows."""
        scores = model.scores(self.fresh)
        return float(np.mean(np.logaddexp(0.0, scores) - self.chance * scores))

    @property
    def least_risk(self) -> float:
        """Expected log loss of the chances themselves: scores are linear in the columns, so some model has it."""
        chance = np.clip(self.chance, 1e-12, 1 - 1e-12)
        return -float(np.mean(chance * np.log(chance) + (1 - chance) * np.log1p(-chance)))


def draw(table: Table) -> Rows:
    """Rows of ``table``; the same for the same table."""
    rng = np.random.default_rng(table.seed)
    total, parts = table.n + FRESH, []
    for size in table.groups:
        often = rng.dirichlet(np.full(size, 0.7)) + 0.2 / size
        parts.append(np.eye(size, dtype=np.float32)[rng.choice(size, total, p=often / np.sum(often))])
    mixed = rng.standard_normal((max(2, table.numbers // 3), table.numbers))
    numbers = rng.standard_normal((total, len(mixed))) @ mixed / math.sqrt(len(mixed))
    numbers = 0.8 * numbers + 0.6 * rng.standard_normal((total, table.numbers))
    skewed = rng.random(table.numbers) < 0.3
    numbers[:, skewed] = np.expm1(0.7 * numbers[:, skewed])
    scale, loose = 10 ** rng.uniform(-3, 3, table.numbers), 10 ** rng.uniform(0.3, 1.5, table.numbers)
    raw = scale * (numbers + loose * rng.uniform(-0.3, 0.3, table.numbers))
    if table.numbers > 4:
        raw[:, 1], raw[:, 3] = raw[:, 0], 0.3 * scale[3]
        scale[1], loose[1] = scale[0], loose[0]
    parts.append(np.clip(raw / (scale * loose), -1, 1).astype(np.float32))  # a declared range is +- scale loose
    features = np.hstack(parts)
    weights = rng.standard_normal(features.shape[1]) / np.maximum(np.std(features[:5_000], axis=0), 1e-2)
    scores = features @ weights
    scores = (scores - np.mean(scores)) * (table.signal / np.std(scores))
    low, high = -20.0, 20.0
    for _ in range(60):
        shift = 0.5 * (low + high)
        low, high = (shift, high) if np.mean(_sigmoid(scores + shift)) < table.rate else (low, shift)
    chance = _sigmoid(scores + low)
    labels = (rng.random(total) < chance).astype(np.int64)
    n = table.n
    return Rows(features[:n], labels[:n], features[n:], chance[n:], math.sqrt(len(table.groups) + table.numbers))


def tables(keys: int, chosen: tuple[Table, ...] = TABLES) -> None:
    """Print a line per table, then the ratios over rivals and of predictions."""
    rows = [_measured(table, keys) for table in chosen]
    large = [line for table, line in zip(chosen, rows, strict=True) if table.n >= 10_000]
    rival, plain, predicted = (np.array([line[k] for line in rows]) for k in range(3))
    worst = max((line[0] for line in large), default=math.nan)
    off = float(np.exp(np.nanmedian(np.abs(np.log(predicted)))))
    print(
        f"  over objective perturbation: median {np.median(rival):.2f} (mark 1.3), worst of n >= 10,000 {worst:.2f} "
        f"(mark 2); over the plain plan: worst {np.max(plain):.2f} (mark 1.1)\n  predicted over measured: median "
        f"{np.nanmedian(predicted):.2f}, off by a factor of {off:.2f} in the median (mark 1.5)",
        flush=True,
    )


def _measured(table: Table, keys: int) -> tuple[float, float, float]:
    began, data = time.perf_counter(), draw(table)
    width = data.features.shape[1]
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e3), width, feature_norm=data.norm, intercept=True)
    budget = dpsco.Budget(table.epsilon, table.n**-1.1)
    free = dpsco.Plan(
        problem,
        table.n,
        dpsco.Budget(math.inf, table.n**-1.1),
        dpsco.ObjectivePerturbation(clip=math.inf, ridge=1e-2),
    )
    least = data.risk(_train(free, data, 0).model)
    default = dpsco.plan(problem, n=table.n, budget=budget)
    runs = [_train(default, data, k) for k in range(keys)]
    risk = float(np.mean([data.risk(run.model) for run in runs]))
    ours = risk - least
    plain = dpsco.plan(
        dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0 / data.norm), width, feature_norm=data.norm, intercept=True),
        n=table.n,
        budget=budget,
        survey="none",
    )
    simple = float(np.mean([data.risk(_train(plain, data, k).model) for k in range(min(keys, 2))])) - least
    smallest = 0.25 * 1.25 * data.norm**2 / -math.expm1(-table.epsilon)
    rivals = []
    for ridge in RIDGES:
        method = dpsco.ObjectivePerturbation(clip=math.inf, ridge=ridge * smallest)
        rivals.append(data.risk(_train(dpsco.Plan(problem, table.n, budget, method), data, 0).model) - least)
    rival = min(rivals)
    known = [run.prediction.total for run in runs if run.prediction is not None]
    predicted = float(np.mean(known)) / (risk - data.least_risk) if known else math.nan
    print(
        f"  n {table.n:>9,} p {width + 1:>3} epsilon {table.epsilon:<3g} rate {table.rate:<4g} gap {ours:.5f} "
        f"({runs[-1].report.rounds} rounds, {default.method.name}); objective perturbation {rival:.5f} "
        f"x{ours / rival:.2f}, ridge {RIDGES[int(np.argmin(rivals))]:g}; plain {simple:.5f} x{ours / simple:.2f}; "
        f"predicted x{predicted:.2f}; {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    return ours / rival, ours / simple, predicted


def _train(plan: dpsco.Plan, data: Rows, key: int) -> Any:
    return dpsco.train(plan, dpsco.stream(data.features, data.labels), key=bytes([key + 1]) * 32)


def _sigmoid(scores: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)))
