"""A map of regimes: which method has the least excess risk, with how many rounds and passes, and by how much.

Rows are those of the reference problem (datasets.py) in any number and dimension, with a known minimiser; badly scaled
rows have columns that differ up to a hundredfold in size. A file gives regimes of its own: its rows at each epsilon,
with the loss on its test rows less that of a model without noise on the same rows. Methods (map_contenders.py) compete
under each limit:

    4, 8, 16, 32 rounds     one pass in at most so many adaptive rounds
    one pass                any number of rounds
    passes free             rows at rest; many passes join

Rivals are tuned on rows and keys apart from the scoring ones. Research: (epsilon, delta) does not cover the tuning.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import DpscoError
from dpsco.held_files import locked
from dpsco.methods import ObjectivePerturbation, Surveyed
from dpsco.planning.plan import Plan
from dpsco.problem import L2Ball, Logistic, Problem
from dpsco.query import Array
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.kept_regimes import keep_regime, kept_regimes, regime_digest
from dpsco.research.compare.map_contenders import LIMITS, Contender, bracketed, contenders, scaled
from dpsco.research.compare.process_pool import initialise_worker
from dpsco.rows.stream import stream
from dpsco.run import Model, train

__all__ = ["CELLS", "LIMITS", "Cell", "cells_of", "kind_of", "measure_cell", "measure_map", "standings"]

FRESH = 40_000
RADIUS = 50.0
TUNING = 2
"""Runs per value that tuning tries. One alone chooses steps that are unstable on other rows."""
_FLOOR = 1e-6
"""Least excess on a file, whose own best model is not known."""

Rows = tuple[Any, Any, Callable[[Model], float]]
"""Features, labels, and the excess risk of a model."""


@dataclass(frozen=True)
class Cell:
    """One regime."""

    n: int
    p: int
    epsilon: float
    badly_scaled: bool = False
    table: str = ""
    """Name of the file that the rows come from; empty for simulated rows."""


def _cells(sizes: Sequence[int], dimensions: Sequence[int], most: float) -> tuple[Cell, ...]:
    grid = ((n, p, e, bad) for bad in (False, True) for n in sizes for p in dimensions for e in (0.1, 1.0, 4.0))
    return tuple(Cell(*each) for each in grid if each[0] * each[1] <= most)


CELLS = {
    "quick": (*_cells((1_000, 10_000), (10, 50), 1e6), *(Cell(100_000, 10, 1.0, bad) for bad in (False, True))),
    "medium": _cells((1_000, 10_000), (10, 100), 1e5),
    "full": _cells((1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000), 2e7),
}
"""Regimes by scale."""


def cells_of(scale: str, data: FileData | None = None) -> tuple[Cell, ...]:
    """Return the simulated regimes of a scale and, with a file, its own."""
    if data is None:
        return CELLS[scale]
    own = (Cell(data.training_rows, data.problem.parameters, e, table=data.path.stem) for e in (0.1, 1.0, 4.0))
    return (*CELLS[scale], *own)


def measure_cell(cell: Cell, keys: int, scale: str, data: FileData | None = None) -> list[dict[str, Any]]:
    """Return one line per limit and method: mean excess, its standard error, tuning, seconds and released bytes."""
    if data is None:
        problem, rows = Problem(Logistic(), L2Ball(RADIUS), cell.p), lambda role, key: _simulated(cell, role, key)
    else:
        problem, rows = data.problem, lambda role, key: _of_file(data, role, key)
    lines = []
    for contender in contenders(problem, cell.n, cell.epsilon, scale=scale):
        try:
            lines.append(_line(contender, rows, keys))
        except DpscoError:  # a plan that this regime does not allow
            continue
    return lines


def _line(contender: Contender, rows: Callable[[str, int], Rows], keys: int) -> dict[str, Any]:
    planned, factor, inside = contender.plan(), 1.0, True

    def excess(plan: Plan, role: str, key: int) -> float:
        features, labels, measure = rows(role, key)
        result = train(plan, stream(features, labels), key=bytes([key, role == "tuning"] * 16))
        return measure(result.model)

    if contender.tuned:

        def tried(factor: float) -> float:
            try:
                return float(np.mean([excess(scaled(planned, factor), "tuning", key) for key in range(TUNING)]))
            except DpscoError:
                return math.inf

        factor, inside = bracketed(tried)
        planned = scaled(planned, factor)
    began = time.perf_counter()
    runs = [excess(planned, "scoring", key) for key in range(keys)]
    return {
        "limit": contender.limit,
        "method": contender.name,
        "excess": float(np.mean(runs)),
        "error": float(np.std(runs) / math.sqrt(keys)) if keys > 1 else 0.0,
        "factor": factor,
        "bracketed": inside,
        "seconds": round((time.perf_counter() - began) / keys, 3),
        "bytes": _released(planned),
    }


def _released(planned: Plan) -> int:
    """Bytes that a run releases."""
    schedule = planned.schedule
    later = planned.problem.parameters * (planned.rounds - 1) if isinstance(planned.method, Surveyed) else 0
    return 8 * (schedule.sum_length * schedule.rounds + later)


@lru_cache(maxsize=6)
def _simulated(cell: Cell, role: str, key: int) -> Rows:
    rng = np.random.default_rng([cell.n, cell.p, cell.badly_scaled])
    scale = np.arange(1.0, cell.p + 1) ** -0.5
    scale /= np.linalg.norm(scale)
    if cell.badly_scaled:
        scale *= 10.0 ** rng.uniform(-2.0, 0.0, cell.p)
    truth = rng.standard_normal(cell.p) * 1.5 / (scale * math.sqrt(cell.p))
    rng = np.random.default_rng([cell.n, cell.p, cell.badly_scaled, role == "tuning", key])
    rows = rng.standard_normal((cell.n + FRESH, cell.p)) * scale
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    features, fresh = rows[: cell.n], rows[cell.n :]
    labels = (rng.random(cell.n) < 0.5 * (1 + np.tanh(features @ truth / 2))).astype(np.float64)
    scores = fresh @ truth
    chance = 0.5 * (1 + np.tanh(scores / 2))
    least = float(np.mean(np.logaddexp(0.0, scores) - chance * scores))

    def excess(model: Model) -> float:
        other: Array = fresh @ np.ravel(model.coef)
        return float(np.mean(np.logaddexp(0.0, other) - chance * other)) - least

    return features, labels, excess


@lru_cache(maxsize=8)
def _of_file(data: FileData, role: str, key: int) -> Rows:
    features, labels, measure = data.split(role, key)
    problem = data.problem
    exact = Plan(problem, len(labels), Budget(math.inf, 1e-6), ObjectivePerturbation(clip=math.inf, ridge=1.0))

    def loss(model: Model) -> float:
        parts = np.hstack([np.atleast_2d(model.coef), np.reshape(model.intercept, (-1, 1))])
        return measure(parts.ravel())["score"]

    least = loss(train(exact, stream(features, labels.astype(np.float64))).model)
    return features, labels.astype(np.float64), lambda model: max(_FLOOR, loss(model) - least)


def measure_map(
    scale: str, folder: Path, *, processes: int, keys: int, advance: Callable[[int], None], data: FileData | None = None
) -> dict[str, Any]:
    """Measure the regimes of ``scale`` that ``folder`` lacks; results do not depend on the number of processes."""
    began, cells, path = time.perf_counter(), cells_of(scale, data), folder / "regimes.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "map in this folder"), _pool(processes) as pool:
        known = kept_regimes(path)
        digests = [regime_digest(cell, keys, scale, data.digest if data and cell.table else "") for cell in cells]
        jobs = {
            pool.submit(measure_cell, cell, keys, scale, data if cell.table else None): digest
            for cell, digest in zip(cells, digests, strict=True)
            if digest not in known
        }
        for done, job in enumerate(as_completed(jobs), start=len(cells) - len(jobs) + 1):
            known[jobs[job]] = job.result()
            keep_regime(path, jobs[job], job.result())
            advance(done)
    lines = [{**asdict(cell), "lines": known[digest]} for cell, digest in zip(cells, digests, strict=True)]
    wanting = scale == "full" and find_spec("dp_accounting") is None
    missing = ["dp-sgd-poisson (needs dp-accounting)"] if wanting else []
    seconds = round(time.perf_counter() - began, 1)
    return {"scale": scale, "keys": keys, "cells": lines, "left_out": missing, "seconds": seconds}


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=initialise_worker)


def standings(cell: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], float]]:
    """Return, for each limit, the line of least excess, and the excess of the next method over it.

    A looser limit admits the methods of the tighter ones. Next to one of ours is the best rival.
    """
    found: dict[str, tuple[Mapping[str, Any], float]] = {}
    admitted: list[Mapping[str, Any]] = []
    for limit in LIMITS:
        admitted += [line for line in cell["lines"] if line["limit"] == limit]
        ranked = sorted(admitted, key=lambda line: line["excess"])
        if ranked:
            first, ours = kind_of(ranked[0]), ("survey + SRGD", "SRGD")
            same = ours if first in ours else (first,)
            others = [line["excess"] for line in ranked if kind_of(line) not in same]
            found[limit] = ranked[0], (others[0] if others else math.inf) / ranked[0]["excess"]
    return found


def kind_of(line: Mapping[str, Any]) -> str:
    """Return the method behind a name: the default plan is one of ours in so many rounds."""
    return {"planned": "survey + SRGD", "no survey": "SRGD"}.get(line["method"], str(line["method"]))
