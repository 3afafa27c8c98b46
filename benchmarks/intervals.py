"""Intervals: how often those of 95 % hold the population minimiser, and how wide they are beside the spread of runs.

    python -m benchmarks intervals                       every cell, 400 runs each: hours
    python -m benchmarks intervals --runs 60 --n 3e4     fewer runs, one size
    python -m benchmarks intervals --loss huber --p 10 --epsilon 1 4 --true 1
    python -m benchmarks intervals --p 50 --epsilon 0.25 --hidden 9   what intervals would be where they are refused
    python -m benchmarks intervals --jobs 2 --record runs.jsonl       in two processes; runs on record are not run again
    python -m benchmarks intervals --quick               one cell, a few runs

Rows: Gaussian columns of correlation 0.5 from one to the next; every third one is cut to 0/1, every third one clamped;
rows longer than 1.4 sqrt(p) are shortened. Well specified: labels follow the model of the loss (Huber: Student noise of
three degrees of freedom). Misspecified: the mean bends, two columns interact, the noise depends on a column, and for
Huber it is skewed; the target is then the population minimiser, found on one or forty million other rows. Each seed
draws new rows, on which every cell draws its own labels and noise. A run is the library's own: dpsco.plan(...,
survey="intervals"), train, confidence_intervals.

Columns: coverage averaged over the coefficients and of the worst one; the median over coefficients of the median width
over 2 x 1.96 times the root mean square error of the runs; the coverage of the naive interval, which ignores privacy
noise; runs whose intervals were refused. Marks: 93 to 97 %, worst at least 90 % (of 400 runs), width at most 1.15.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpsco
from dpsco.inference import doubts
from dpsco.query import Array

LOSSES: dict[str, Any] = {"logistic": dpsco.Logistic(), "squared": dpsco.Squared(1.0), "huber": dpsco.Huber(0.3)}
FEW, MANY, CHUNK = 1_000_000, 40_000_000, 100_000
"""Rows behind a population minimiser; ``MANY`` for one last step, where runs have more than a tenth of ``FEW``."""


def rows_of(rng: np.random.Generator, n: int, p: int) -> Array:
    """Draw ``n`` rows."""
    apart = np.arange(p)[:, None] - np.arange(p)
    rows = rng.standard_normal((n, p)) @ np.linalg.cholesky(0.5 ** np.abs(apart)).T
    rows[:, 1::3] = rows[:, 1::3] > 0.5
    rows[:, 2::3] = np.clip(rows[:, 2::3], -1.5, 1.5)
    rows *= np.minimum(1.0, 1.4 * p**0.5 / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
    return rows


def labels_of(rng: np.random.Generator, rows: Array, loss: str, *, true: bool) -> Array:
    """Draw the labels of ``rows``, from the model or from another one."""
    direction = direction_of(rows.shape[1])
    product_of_two, size = rows[:, 0] * rows[:, 2], np.abs(rows[:, 0])
    if loss == "logistic":
        scores = rows @ (1.2 * direction) - 0.5
        scores = scores if true else scores + 0.4 * (scores**2 - 1) + 0.8 * product_of_two
        return (rng.random(len(rows)) < 1 / (1 + np.exp(-scores))).astype(float)
    scores = rows @ (0.25 * direction) + 0.1
    errors = 0.2 * rng.standard_normal(len(rows)) if loss == "squared" else 0.12 * rng.standard_t(3, len(rows))
    if not true:
        scores = scores + 0.4 * scores**2 + 0.1 * np.tanh(product_of_two)
        errors = (
            errors * (0.4 + 0.6 * size)
            if loss == "squared"
            else 0.18 * rng.exponential(size=len(rows)) * (0.5 + 0.5 * size)
        )
    return np.clip(scores + errors, -1.0, 1.0) if loss == "squared" else np.clip(scores + errors, -3.0, 3.0)


def direction_of(p: int) -> Array:
    """Draw the direction of the true coefficients."""
    direction = np.random.default_rng(7).standard_normal(p)
    return np.asarray(direction / np.linalg.norm(direction))


def minimiser(p: int, loss: str, *, true: bool, n: int) -> Array:
    """Minimise the population loss: the truth where it is known, else Newton steps (for Huber with secant weights)."""
    if true and loss != "squared":  # whose labels are clamped
        size, intercept = (1.2, -0.5) if loss == "logistic" else (0.25, 0.1)
        return np.append(size * direction_of(p), intercept)
    x, kind, last = np.zeros(p + 1), LOSSES[loss], False
    for _ in range(26):
        rows_used = MANY if last and n > FEW // 10 else FEW
        hessian, gradient = np.zeros((p + 1, p + 1)), np.zeros(p + 1)
        for chunk in range(rows_used // CHUNK):
            rows = _chunk(p, chunk) if chunk < FEW // CHUNK else _drawn(p, chunk)
            labels = labels_of(np.random.default_rng([98, chunk]), rows[:, :p], loss, true=true)
            scores = rows @ x
            weights = np.ones(CHUNK)
            if loss == "logistic":
                weights = 0.25 / np.cosh(0.5 * scores) ** 2
            elif loss == "huber" and last:  # close to the minimum a Newton step lands on it
                weights = (np.abs(scores - labels) < kind.width).astype(float)
            elif loss == "huber":
                weights = np.minimum(1.0, kind.width / np.maximum(np.abs(scores - labels), 1e-9))
            gradient += rows.T @ kind.slope(scores, labels)
            hessian += (rows * weights[:, None]).T @ rows
        x = x - np.linalg.solve(hessian, gradient)
        if last:
            break
        last = bool(np.linalg.norm(gradient) < 1e-5 * FEW) or loss == "squared"
    return x


def _drawn(p: int, chunk: int) -> Array:
    """Rows of the population, with the column of the intercept."""
    return np.column_stack([rows_of(np.random.default_rng([99, chunk]), CHUNK, p), np.ones(CHUNK)])


_chunk = lru_cache(maxsize=FEW // CHUNK)(_drawn)


class Cell(NamedTuple):
    """One line of the table."""

    loss: str
    true: bool
    n: int
    p: int
    epsilon: float


@lru_cache
def plan_of(n: int, p: int, epsilon: float, loss: str, survey: str) -> dpsco.Plan:
    """Return the library's own plan of a cell."""
    problem = dpsco.Problem(LOSSES[loss], dpsco.L2Ball(1e3), dimension=p, feature_norm=1.4 * p**0.5, intercept=True)
    return dpsco.plan(problem, n=n, budget=dpsco.Budget(epsilon, min(1e-5, n**-1.1)), survey=survey)


def runs_of(seed: int, n: int, p: int, cells: list[Cell], survey: str, hidden: float | None) -> list[dict[str, Any]]:
    """Draw the rows of a seed, and run every cell on them: labels are new for each model, noise for each run."""
    if hidden is not None:
        doubts.MOST_HIDDEN = hidden
    rows, found = rows_of(np.random.default_rng([seed, n, p]), n, p), []
    for cell in cells:
        model = list(LOSSES).index(cell.loss) * 2 + cell.true
        labels = labels_of(np.random.default_rng([seed, n, p, model]), rows, cell.loss, true=cell.true)
        key = np.random.default_rng([seed, n, p, model, int(1000 * cell.epsilon)]).bytes(32)
        result = dpsco.train(plan_of(n, p, cell.epsilon, cell.loss, survey), dpsco.stream(rows, labels), key=key)
        record: dict[str, Any] = {"cell": list(cell), "seed": seed}
        try:
            ends = result.confidence_intervals()
            record["estimate"] = [*result.model.coef.tolist(), float(result.model.intercept)]
            record["half"] = (0.5 * (ends[:, 1] - ends[:, 0])).tolist()
            record["naive"] = (1.96 * result.standard_errors("sampling")).tolist()
        except dpsco.IntervalError as refused:
            record["refused"] = str(refused).split(":")[0][:48]
        found.append(record)
    return found


def line(cell: Cell, records: list[dict[str, Any]], target: Array) -> str:
    """Return the line of a cell."""
    given = [record for record in records if "half" in record]
    reasons = [record["refused"] for record in records if "refused" in record]
    name = f"{cell.loss:<9} {'true ' if cell.true else 'wrong'} n {cell.n:>7,} p {cell.p:>2} eps {cell.epsilon:<4g}"
    if len(given) < max(2, len(records) // 2):
        return f"{name} refused in {len(reasons)} of {len(records)} runs: {max(set(reasons), key=reasons.count)}"
    found = np.abs(np.array([record["estimate"] for record in given]) - target)
    half, without = (np.array([record[part] for record in given]) for part in ("half", "naive"))
    covered = np.mean(found < half, axis=0)
    width = float(np.median(np.median(half, axis=0) / (1.96 * np.sqrt(np.mean(found**2, axis=0)))))
    met = 0.93 <= np.mean(covered) <= 0.97 and np.min(covered) >= 0.9 and width <= 1.15
    return (
        f"{name} cover {np.mean(covered):.3f} worst {np.min(covered):.3f} width {width:.2f} "
        f"naive {np.mean(found < without):.3f} refused {len(reasons):>2} of {len(records)} {'met' if met else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks intervals")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--n", type=float, nargs="+", default=[3e4, 3e5])
    parser.add_argument("--p", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--true", type=int, nargs="+", choices=(0, 1), default=[1, 0], help="1: well specified")
    parser.add_argument("--survey", default="intervals")
    parser.add_argument("--hidden", type=float, help="survey noise up to which intervals are given: what is refused?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--record", type=Path, help="file of runs: those in it are not run again, new ones are added")
    given = parser.parse_args()
    if given.quick:
        given.runs, given.n, given.p, given.epsilon, given.loss, given.true = 4, [2e4], [5], [4.0], ["squared"], [1]
    seeds = range(given.first_seed, given.first_seed + given.runs)
    for n, p in product(map(int, given.n), given.p):
        models = [(loss, bool(true)) for loss, true in product(given.loss, given.true)]
        cells = [Cell(loss, true, n, p, epsilon) for (loss, true), epsilon in product(models, given.epsilon)]
        records = runs(seeds, cells, given)
        for model in models:
            target = minimiser(p, model[0], true=model[1], n=n)
            for cell in (cell for cell in cells if cell[:2] == model):
                print(line(cell, [record for record in records if record["cell"] == list(cell)], target), flush=True)


def runs(seeds: range, cells: list[Cell], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the cells, all of one n and p, with every seed that is not on record."""
    lines = given.record.read_text().splitlines() if given.record and given.record.exists() else []
    wanted = {(cell, seed) for cell in cells for seed in seeds}
    records = [record for record in map(json.loads, lines) if (Cell(*record["cell"]), record["seed"]) in wanted]
    done = {(Cell(*record["cell"]), record["seed"]) for record in records}
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        tasks = []
        for seed in seeds:
            left = [cell for cell in cells if (cell, seed) not in done]
            if left:
                task = pool.submit(runs_of, seed, left[0].n, left[0].p, left, given.survey, given.hidden)
                tasks.append(task)
        for task in as_completed(tasks):
            found = task.result()
            records += found
            if given.record:
                with given.record.open("a") as file:
                    file.writelines(json.dumps(record) + "\n" for record in found)
    return records


if __name__ == "__main__":
    main()
