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
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
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
from dpsco.research.compare.behind_survey import behind_survey
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.kept_regimes import keep_regime, kept_regimes, regime_digest
from dpsco.research.compare.map_contenders import LIMITS, OURS, Contender, bracketed, contenders, kind, left_out, scaled
from dpsco.research.compare.process_pool import initialise_worker
from dpsco.research.compare.simulated_rows import Rows, simulated_rows
from dpsco.rows.stream import stream
from dpsco.run import Model, train

__all__ = ["CELLS", "LIMITS", "Cell", "cells_of", "measure_cell", "measure_map", "runs_of", "standings"]

RADIUS = 5_000.0
"""Radius of the ball of models: every regime has its minimiser inside."""
_TUNING, _ALMOST_ALIKE = 2, 1e7
"""Runs per value that tuning tries: one alone chooses steps that are unstable on other rows. One, where a data set has
more numbers than this: they are then almost alike."""
_FLOOR = 1e-6
"""Least excess on a file, whose own best model is not known."""


@dataclass(frozen=True)
class Cell:
    """One regime."""

    n: int
    p: int
    epsilon: float
    badly_scaled: bool = False
    table: str = ""
    """Name of the file that the rows come from; empty for simulated rows."""

    @property
    def numbers(self) -> float:
        """Numbers in a data set, n p."""
        return float(self.n) * self.p


def _cells(most_work: float, most_numbers: float) -> tuple[Cell, ...]:
    """Return the regimes of up to so many numbers in a data set; of more multiply-adds per pass, epsilon 1 alone."""
    grid = product((False, True), (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000), (0.1, 1.0, 4.0))
    cells = (Cell(n, p, epsilon, bad) for bad, n, p, epsilon in grid)
    within = (cell for cell in cells if cell.numbers <= most_numbers)
    return tuple(cell for cell in within if cell.epsilon == 1.0 or cell.numbers * cell.p <= most_work)


CELLS = {
    "quick": tuple(
        Cell(n, p, epsilon, bad)
        for bad, (n, p), epsilon in product((False, True), ((1_000, 10), (10_000, 50), (100_000, 10)), (0.1, 1.0, 4.0))
    ),
    "medium": tuple(cell for cell in _cells(1e6, 1e6) if cell.n > cell.p),
    "full": _cells(math.inf, 1e9),
}
"""Regimes by scale."""


def cells_of(scale: str, data: FileData | None = None) -> tuple[Cell, ...]:
    """Return the simulated regimes of a scale and, with a file, its own."""
    if data is None:
        return CELLS[scale]
    own = (Cell(data.training_rows, data.problem.parameters, e, table=data.path.stem) for e in (0.1, 1.0, 4.0))
    return (*CELLS[scale], *own)


def runs_of(cell: Cell, keys: int) -> int:
    """Return the scoring runs per method: ``keys`` up to 1e5 numbers in a data set, fewer in larger ones."""
    return max(1, keys >> max(0, math.ceil(math.log10(cell.numbers)) - 5))


def measure_cell(
    cell: Cell,
    keys: int,
    scale: str,
    data: FileData | None = None,
    *,
    tuned: Mapping[tuple[str, str], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return one line per limit and method: mean excess, its standard error, tuning, seconds and released bytes.

    ``tuned`` has lines of an earlier run, by limit and method, to keep for methods that are tuned.
    """
    if data is None:
        problem, rows = (
            Problem(Logistic(), L2Ball(RADIUS), cell.p),
            lambda role, key: simulated_rows(cell.n, cell.p, cell.badly_scaled, role, key),
        )
    else:
        problem, rows = data.problem, lambda role, key: _of_file(data, role, key)
    tuning = _TUNING if cell.numbers <= _ALMOST_ALIKE else 1
    lines = []
    for contender in contenders(problem, cell.n, cell.epsilon, scale=scale):
        known = (tuned or {}).get((contender.limit, contender.name)) if contender.tuned else None
        if known is not None:
            lines.append(known)
            continue
        try:
            lines.append(_line(contender, rows, runs_of(cell, keys), tuning))
        except DpscoError:  # a plan that this regime does not allow
            continue
    return lines


def _line(contender: Contender, rows: Callable[[str, int], Rows], keys: int, tuning: int) -> dict[str, Any]:
    planned, inside, factor = contender.plan(), True, 1.0

    def excess(factor: float, role: str, key: int) -> tuple[float, float, int]:
        """Excess, seconds and released bytes of a run."""
        data, secret = rows(role, key), bytes([key, role == "tuning"] * 16)
        began = time.perf_counter()
        if contender.behind:
            model, later = behind_survey(planned, contender.behind, *data.arrays(), key=secret, factor=factor)
            released = 8 * planned.schedule.sum_length + _released(later)
        else:
            made = scaled(planned, factor) if contender.tuned else planned
            source = data.stream() if made.method.single_epoch else stream(*data.arrays())
            model, released = train(made, source, key=secret).model, _released(made)
        return data.excess(model), time.perf_counter() - began, released

    if contender.tuned:

        def tried(factor: float) -> float:
            try:
                return float(np.mean([excess(factor, "tuning", key)[0] for key in range(tuning)]))
            except DpscoError:
                return math.inf

        factor, inside = bracketed(tried)
    found, seconds, released = zip(*(excess(factor, "scoring", key) for key in range(keys)), strict=True)
    return {
        "limit": contender.limit,
        "method": contender.name,
        "kind": kind(contender.name, planned),
        "excess": float(np.mean(found)),
        "error": float(np.std(found) / math.sqrt(keys)) if keys > 1 else 0.0,
        "factor": factor,
        "bracketed": inside,
        "seconds": round(float(np.mean(seconds)), 3),
        "bytes": released[0],
    }


def _released(planned: Plan) -> int:
    """Bytes that a run releases."""
    schedule = planned.schedule
    later = planned.problem.parameters * (planned.rounds - 1) if isinstance(planned.method, Surveyed) else 0
    return 8 * (schedule.sum_length * schedule.rounds + later)


@lru_cache(maxsize=12)
def _of_file(data: FileData, role: str, key: int) -> Rows:
    features, labels, measure = data.split(role, key)
    problem = data.problem
    exact = Plan(problem, len(labels), Budget(math.inf, 1e-6), ObjectivePerturbation(clip=math.inf, ridge=1.0))

    def loss(model: Model) -> float:
        parts = np.hstack([np.atleast_2d(model.coef), np.reshape(model.intercept, (-1, 1))])
        return measure(parts.ravel())["score"]

    labels = labels.astype(np.float64)
    least = loss(train(exact, stream(features, labels)).model)
    kept = features, labels
    return Rows(lambda: iter([kept]), lambda model: max(_FLOOR, loss(model) - least), kept)


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
    missing = left_out(scale, ((cell.n, cell.p) for cell in cells))
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
            first = ranked[0]
            others = (
                line["excess"]
                for line in ranked
                if not (_ours(first) and _ours(line)) and line["kind"] != first["kind"]
            )
            found[limit] = first, next(others, math.inf) / first["excess"]
    return found


def _ours(line: Mapping[str, Any]) -> bool:
    return line["method"] in OURS
