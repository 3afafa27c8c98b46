"""Accuracy on rows of a file: every method tuned on one half of the rows, scored on the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsco.research.compare.estimates import mean
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.lineup import ON_A_FILE, with_rounds
from dpsco.research.compare.points import point
from dpsco.research.compare.pool import Pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.settings import Rows, Setting, rows_for
from dpsco.research.compare.study import Study

__all__ = ["measure", "studies"]


def studies(scale: Scale, data: FileData) -> list[Study]:
    """Every contender once: the number of rounds is one of its choices."""
    setting = Setting(n=data.training_rows, file=data)
    usable = tuple(rounds for rounds in scale.file_rounds if rounds <= setting.n)
    return [Study(with_rounds(who, usable), setting, usable[0], scale.effort) for who in ON_A_FILE]


def measure(pool: Pool, scale: Scale, data: FileData) -> dict[str, Any]:
    """Accuracy and loss of every contender, and of the same model without privacy."""
    wanted = studies(scale, data)
    lines = []
    for study, tuned in zip(wanted, pool.study(wanted), strict=True):
        line = {"name": study.contender.name, "kind": study.contender.kind, **point(tuned)}
        if tuned.works:
            line["accuracy"] = mean([o.accuracy or 0.0 for o in tuned.outcomes]).to_list()
        lines.append(line)
    setting = wanted[0].setting
    splits = [rows_for(setting, "scoring", i) for i in range(min(2, scale.effort.scoring))]
    plain = [without_privacy(rows, setting) for rows in splits]
    majority = [float(np.bincount(rows.labels).max()) / len(rows.labels) for rows in splits]
    return {
        "file": data.path.name,
        "n": setting.n,
        "features": setting.problem.dimension,
        "classes": data.classes,
        "rounds": [rounds for rounds in scale.file_rounds if rounds <= setting.n],
        "epsilon": setting.epsilon,
        "delta": setting.budget.delta,
        "without_privacy": float(np.mean([reached["accuracy"] for reached in plain])),
        "majority": float(np.mean(majority)),
        "lines": lines,
    }


def without_privacy(rows: Rows, setting: Setting) -> dict[str, float]:
    """The same model on the same rows by L-BFGS, with no noise and no clip."""
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
    return rows.measure(found.x)
