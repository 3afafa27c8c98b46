"""Accuracy on the rows of a file: every method is tuned on one half of the rows and scored on the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpsco.research.compare.compared_methods import ON_FILE, PLANNED_ONE_PASS, REST, tuned_rounds
from dpsco.research.compare.comparison_size import ComparisonSize
from dpsco.research.compare.estimates import mean
from dpsco.research.compare.evaluation_data import Rows, Setting, rows_for
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.process_pool import RunPool
from dpsco.research.compare.result_curves import mean_of, point
from dpsco.research.compare.tuning import TuningTask

__all__ = ["measure", "tasks"]


def tasks(size: ComparisonSize, data: FileData) -> list[TuningTask]:
    """Return one task per method; the number of rounds is one of its choices. Plans are not tuned."""
    setting = Setting(n=data.training_rows, file=data)
    rounds = _rounds(size, setting)
    once = replace(size.budget, configurations=1, tuning=0)
    planned = [TuningTask(method, setting, rounds[0], once) for method in (PLANNED_ONE_PASS, REST[0])]
    return planned + [TuningTask(tuned_rounds(method, rounds), setting, rounds[0], size.budget) for method in ON_FILE]


def measure(pool: RunPool, size: ComparisonSize, data: FileData) -> dict[str, Any]:
    """Return accuracy and loss of every method, and the accuracy of the same model without privacy."""
    wanted = tasks(size, data)
    setting, lines = wanted[0].setting, []
    for tuned in pool.tune(wanted):
        method = tuned.task.method
        line = {"name": method.name, "kind": method.kind, **point(tuned)}
        if tuned.accepted:
            line["accuracy"] = mean([outcome.accuracy or 0.0 for outcome in tuned.outcomes]).to_list()
        lines.append(line)
    splits = [rows_for(setting, "scoring", i) for i in range(min(2, size.budget.scoring))]
    return {
        "file": data.path.name,
        "n": setting.n,
        "features": setting.problem.dimension,
        "classes": data.classes,
        "rounds": list(_rounds(size, setting)),
        "epsilon": setting.epsilon,
        "delta": setting.budget.delta,
        "without_privacy": mean_of([_accuracy_without_privacy(rows, setting) for rows in splits]),
        "majority": mean_of([float(np.bincount(rows.labels).max()) / len(rows.labels) for rows in splits]),
        "lines": lines,
    }


def _rounds(size: ComparisonSize, setting: Setting) -> tuple[int, ...]:
    return tuple(rounds for rounds in size.file_rounds if rounds <= setting.n)


def _accuracy_without_privacy(rows: Rows, setting: Setting) -> float:
    """Return the test accuracy of the same model trained by L-BFGS on the same rows, without noise and clip."""
    from scipy.optimize import minimize

    problem = setting.problem
    features = np.hstack([rows.features, np.ones((len(rows.labels), 1))])
    outputs = problem.loss.outputs

    def risk(x: Any) -> tuple[float, Any]:
        scores = features @ x.reshape(outputs, -1).T
        scores = scores[:, 0] if outputs == 1 else scores
        slope = problem.loss.slope(scores, rows.labels)
        value = float(np.mean(problem.loss.value(scores, rows.labels)))
        return value, (np.reshape(slope, (len(rows.labels), outputs)).T @ features / len(rows.labels)).ravel()

    options = {"maxiter": 1_000}
    found = minimize(risk, np.zeros(problem.parameters), jac=True, method="L-BFGS-B", options=options)
    return rows.measure(found.x)["accuracy"]
