"""A map of regimes: which method has the least excess risk, with how many rounds and passes, and by how much.

Rows are those of the reference problem (datasets.py) in any number and dimension, with a known minimiser; badly scaled
rows have columns that differ up to a hundredfold in size. Every method is planned from public numbers, none is tuned:
what a user gets. SRGD is Algorithm 1, "independent" its form with independent gradients, "planned" what ``dpsco.plan``
chooses, "objective" objective perturbation, DP-GD accelerated on full passes. Methods compete under each limit:

    4, 8, 16, 32 rounds     one pass in at most so many adaptive rounds
    one pass                any number of rounds
    passes free             rows at rest; objective perturbation and many passes join
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import DpscoError
from dpsco.planning.choose import plan
from dpsco.planning.plan import Plan
from dpsco.planning.table_problem import table_plan
from dpsco.problem import L2Ball, Logistic, Problem
from dpsco.query import Array
from dpsco.research.compare.process_pool import initialise_worker
from dpsco.rows.stream import stream
from dpsco.run import train

__all__ = ["CELLS", "LIMITS", "Cell", "measure_map", "standings"]

LIMITS = ("4 rounds", "8 rounds", "16 rounds", "32 rounds", "one pass", "passes free")
FRESH = 40_000
RADIUS = 50.0


@dataclass(frozen=True)
class Cell:
    """One regime."""

    n: int
    p: int
    epsilon: float
    badly_scaled: bool


def _cells(sizes: Sequence[int], dimensions: Sequence[int], most: float) -> tuple[Cell, ...]:
    grid = ((n, p, e, bad) for bad in (False, True) for n in sizes for p in dimensions for e in (0.1, 1.0, 4.0))
    return tuple(Cell(*each) for each in grid if each[0] * each[1] <= most)


CELLS = {
    "quick": _cells((1_000, 30_000), (10, 100), 3e6),
    "full": _cells((1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000), 1e8),
}
"""Regimes by scale."""


def contenders(cell: Cell, *, full: bool) -> Iterator[tuple[str, str, Callable[[], Plan]]]:
    """Yield (limit, method, its plan) for a regime; full comparisons have more methods."""
    problem = Problem(Logistic(), L2Ball(RADIUS), cell.p)
    given: dict[str, Any] = {"n": cell.n, "budget": Budget(cell.epsilon, min(1e-5, cell.n**-1.1))}
    others = {"DP-FTRL": "dp-ftrl", "unaccelerated": "unaccelerated-srgd"}
    if full:
        others |= {"DP-SGD": "dp-sgd", "independent": "accelerated-sgd"}
    made = partial(plan, problem, **given)
    for rounds in (4, 8, 16, 32):
        limit = f"{rounds} rounds"
        yield limit, "survey + SRGD", partial(made, rounds=rounds)
        yield limit, "SRGD", partial(made, rounds=rounds, survey="none")
        for name, method in others.items():
            yield limit, name, partial(made, method=method, rounds=rounds)
        if full:
            yield limit, "survey + DP-FTRL", partial(made, method="dp-ftrl", survey="full", rounds=rounds)
    yield "one pass", "planned", partial(table_plan, Logistic(), cell.p, **given, intercept=False)
    yield "one pass", "no survey", partial(made, survey="none")
    yield "passes free", "objective", partial(made, method="objective-perturbation")
    if full:
        yield "passes free", "DP-GD", partial(made, method="accelerated-gd", rounds=32)
        if find_spec("dp_accounting") is not None:
            yield "passes free", "Poisson", partial(made, method="dp-sgd-poisson")


def measure_cell(cell: Cell, keys: int, full: bool) -> list[dict[str, Any]]:
    """Return one line per limit and method: mean excess risk, its standard error, seconds and released numbers."""
    features, labels, truth, fresh = _rows(cell)
    scores = fresh @ truth
    chance = 0.5 * (1 + np.tanh(scores / 2))
    least = np.logaddexp(0.0, scores) - chance * scores
    lines = []
    for limit, name, planned in contenders(cell, full=full):
        began, runs, released = time.perf_counter(), [], 0
        try:
            made = planned()
            for key in range(keys):
                result = train(made, stream(features, labels), key=bytes([key + 1]) * 32)
                other = fresh @ np.ravel(result.model.coef)
                runs.append(float(np.mean(np.logaddexp(0.0, other) - chance * other - least)))
                released = 8 * cell.p * result.report.rounds
        except DpscoError:  # a plan that this regime does not allow
            continue
        error = float(np.std(runs) / math.sqrt(keys)) if keys > 1 else 0.0
        seconds = round((time.perf_counter() - began) / keys, 3)
        lines.append({"limit": limit, "method": name, "excess": float(np.mean(runs)), "error": error,
                      "seconds": seconds, "bytes": released})  # fmt: skip
    return lines


def _rows(cell: Cell) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng([cell.n, cell.p, cell.badly_scaled])
    scale = np.arange(1.0, cell.p + 1) ** -0.5
    scale /= np.linalg.norm(scale)
    if cell.badly_scaled:
        scale *= 10.0 ** rng.uniform(-2.0, 0.0, cell.p)
    truth = rng.standard_normal(cell.p) * 1.5 / (scale * math.sqrt(cell.p))
    rows = rng.standard_normal((cell.n + FRESH, cell.p)) * scale
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    train_rows, fresh = rows[: cell.n], rows[cell.n :]
    labels = (rng.random(cell.n) < 0.5 * (1 + np.tanh(train_rows @ truth / 2))).astype(np.float64)
    return train_rows, labels, truth, fresh


def measure_map(scale: str, *, processes: int, keys: int, advance: Callable[[int], None]) -> dict[str, Any]:
    """Measure every regime of ``scale``; results do not depend on the number of processes."""
    cells, full = CELLS[scale], scale == "full"
    began = time.perf_counter()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=initialise_worker) as pool:
        jobs = [pool.submit(measure_cell, cell, keys, full) for cell in cells]
        lines = []
        for done, (cell, job) in enumerate(zip(cells, jobs, strict=True), start=1):
            lines.append({**asdict(cell), "lines": job.result()})
            advance(done)
    missing = [] if not full or find_spec("dp_accounting") is not None else ["dp-sgd-poisson (needs dp-accounting)"]
    seconds = round(time.perf_counter() - began, 1)
    return {"scale": scale, "keys": keys, "cells": lines, "left_out": missing, "seconds": seconds}


def standings(cell: Mapping[str, Any]) -> dict[str, tuple[str, float, float]]:
    """Return, for each limit, the best method, its excess, and the excess of the next one over it.

    A looser limit admits the methods of the tighter ones.
    """
    found: dict[str, tuple[str, float, float]] = {}
    admitted: list[Mapping[str, Any]] = []
    for limit in LIMITS:
        admitted += [line for line in cell["lines"] if line["limit"] == limit]
        ranked = sorted({line["method"]: line for line in sorted(admitted, key=lambda line: -line["excess"])}.values(),
                        key=lambda line: line["excess"])  # fmt: skip
        if ranked:
            second = ranked[1]["excess"] if len(ranked) > 1 else math.inf
            found[limit] = ranked[0]["method"], ranked[0]["excess"], second / ranked[0]["excess"]
    return found
