"""The survey: the default plan on the reference problem, Adult, MNIST and simulated tables, beside rivals and marks.

    python -m benchmarks survey                                everything but the real tables
    python -m benchmarks survey --data FOLDER                  and these: adult.npz and mnist.npz (or DPSCO_DATA=FOLDER)
    python -m benchmarks survey --only tables --keys 2         one part: reference, adult, mnist, tables, grid
    python -m benchmarks survey --quick                        every part at a small size: shows that they run

Every run is the library's own: dpsco.plan and dpsco.train, nothing tuned. Features are scaled by public constants; rows
of Adult have norm at most 3.5, those of MNIST are shortened to 1.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from benchmarks.adult import load as load_adult
from benchmarks.survey_grid import grid
from benchmarks.survey_tables import TABLES, tables
from dpsco.datasets import reference_problem

REFERENCE = (
    (200_000, 1.0, 8, 0.00017),
    (200_000, 1.0, 4, 0.00021),
    (200_000, 0.1, 8, 0.0009),
    (30_000, 1.0, 8, 0.00115),
)
"""Rows, epsilon, rounds, mark."""
ADULT = ((1.0, 8, 0.0060), (1.0, None, 0.0052), (0.2, None, 0.026))
"""epsilon, rounds, mark."""
MNIST = ((8, 0.893), (None, 0.900))
"""Rounds, mark."""


def line(name: str, measure: str, values: list[float], mark: float, result: Any, seconds: float) -> None:
    """Print one row of the table."""
    kept = np.mean(values) <= mark if measure != "accuracy" else np.mean(values) >= mark
    print(
        f"  {name:<38} {measure} {np.mean(values):.6f} (sd {np.std(values):.6f}, keys {len(values)}); mark {mark:g}: "
        f"{'met' if kept else 'MISSED'}; rounds {result.report.rounds}, {seconds:.1f} s per run",
        flush=True,
    )


def key(number: int) -> bytes:
    return bytes([number]) * 32


def reference(keys: int, *, quick: bool = False) -> None:
    """Excess risk on the reference problem."""
    for n, epsilon, rounds, mark in REFERENCE[-1:] if quick else REFERENCE:
        data = reference_problem(n)
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=50)
        budget = dpsco.Budget(epsilon, n**-1.1)
        plan = dpsco.plan(problem, n=n, budget=budget, rounds=rounds)
        began, found = time.perf_counter(), []
        for number in range(keys):
            result = dpsco.train(plan, dpsco.stream(data.features, data.labels), key=key(number))
            found.append(data.excess_risk(result.model.coef))
        seconds = (time.perf_counter() - began) / keys
        line(f"reference n={n} epsilon={epsilon} T<={rounds}", "excess", found, mark, result, seconds)


def adult(path: Path, keys: int) -> None:
    """Test log loss above logistic regression without privacy, and accuracy."""
    from sklearn.linear_model import LogisticRegression

    rows, labels, test_rows, test_labels = load_adult(path)
    free = LogisticRegression(C=100.0, max_iter=5_000).fit(rows, labels)
    least = log_loss(test_rows @ free.coef_[0] + free.intercept_[0], test_labels)
    problem = dpsco.Problem(
        dpsco.Logistic(), dpsco.L2Ball(1e3), dimension=rows.shape[1], feature_norm=3.5, intercept=True
    )
    for epsilon, rounds, mark in ADULT:
        budget = dpsco.Budget(epsilon, 1e-5)
        plan = dpsco.plan(problem, n=len(labels), budget=budget, rounds=rounds)
        began, gaps, right = time.perf_counter(), [], []
        for number in range(keys):
            order = np.random.default_rng(500 + number).permutation(len(labels))
            result = dpsco.train(plan, dpsco.stream(rows[order], labels[order]), key=key(number))
            gaps.append(log_loss(result.model.scores(test_rows), test_labels) - least)
            right.append(float(np.mean(result.model.predict(test_rows) == test_labels)))
        seconds = (time.perf_counter() - began) / keys
        name = f"Adult epsilon={epsilon} T<={plan.rounds} accuracy {np.mean(right):.4f}"
        line(name, "log-loss gap", gaps, mark, result, seconds)


def mnist(path: Path, keys: int) -> None:
    """Test accuracy of softmax regression."""
    archive = np.load(path, allow_pickle=False)
    rows, test = (archive[name].astype(np.float32) / 255 for name in ("X_train", "X_test"))
    labels, test_labels = archive["y_train"].astype(np.int64), archive["y_test"]
    test = test / np.maximum(np.linalg.norm(test, axis=1), 1.0)[:, None]
    problem = dpsco.Problem(dpsco.Softmax(10), dpsco.L2Ball(1e3), dimension=784, intercept=True)
    for rounds, mark in MNIST:
        plan = dpsco.plan(problem, n=60_000, budget=dpsco.Budget(1.0, 1e-5), rounds=rounds)
        began, found = time.perf_counter(), []
        for number in range(keys):
            order = np.random.default_rng(500 + number).permutation(60_000)
            result = dpsco.train(plan, dpsco.stream(rows[order], labels[order]), key=key(number))
            found.append(float(np.mean(result.model.predict(test) == test_labels)))
        seconds = (time.perf_counter() - began) / keys
        line(f"MNIST epsilon=1 T<={plan.rounds}", "accuracy", found, mark, result, seconds)


def log_loss(scores: Any, labels: Any) -> float:
    return float(np.mean(np.logaddexp(0.0, scores) - labels * scores))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks survey")
    parser.add_argument(
        "--keys", type=int, default=20, help="runs per figure; at most 3 of MNIST and tables, 5 of the grid"
    )
    parser.add_argument("--data", default=os.environ.get("DPSCO_DATA"), help="folder of adult.npz and mnist.npz")
    parser.add_argument("--only", choices=("reference", "adult", "mnist", "tables", "grid"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    keys, few = (1, 1) if given.quick else (given.keys, min(given.keys, 3))
    if given.only in (None, "reference"):
        reference(keys, quick=given.quick)
    for name, run, count in (("adult", adult, keys), ("mnist", mnist, few)):
        if given.only in (None, name):
            path = None if given.data is None else Path(given.data) / f"{name}.npz"
            if path is None or not path.exists():
                print(f"  {name} skipped: give the folder of {name}.npz, --data FOLDER or DPSCO_DATA")
            else:
                run(path, count)
    if given.only in (None, "tables"):
        tables(few, TABLES[:2] if given.quick else TABLES)
    if given.only in (None, "grid"):
        grid(1 if given.quick else min(given.keys, 5), quick=given.quick)


if __name__ == "__main__":
    main()
