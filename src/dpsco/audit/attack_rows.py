"""Made-up rows to attack with: long, tiny, garbled, mirrored; each with a name that a finding can quote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsco.problem import CustomLoss, Huber, Problem, Squared
from dpsco.query import Array, Moment

__all__ = ["OddRow", "far_from", "odd_rows", "ordinary_rows"]


@dataclass(frozen=True)
class OddRow:
    """A synthetic row."""

    name: str
    features: Array
    label: float


def ordinary_rows(problem: Problem, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of norm around the problem's, with labels its loss takes."""
    rows = rng.standard_normal((count, problem.dimension)) / np.sqrt(problem.dimension)
    return rows * problem.feature_norm, _labels(problem, count, rng)


def odd_rows(problem: Problem, rng: np.random.Generator) -> list[OddRow]:
    """Rows that have broken oracles before."""
    p, valid = problem.dimension, _labels(problem, 64, rng)
    low, high = float(np.min(valid)), float(np.max(valid))
    direction = rng.standard_normal(p)
    direction /= np.linalg.norm(direction)
    first = np.eye(1, p)[0]
    found = [
        OddRow("ordinary", direction * problem.feature_norm, high),
        OddRow("ordinary, other label", direction * problem.feature_norm, low),
        OddRow("mirrored", -direction * problem.feature_norm, high),
        OddRow("100 times too long", 100 * problem.feature_norm * direction, high),
        OddRow("100 times too long, mirrored", -100 * problem.feature_norm * direction, high),
        OddRow("100 times too long, other label", 100 * problem.feature_norm * direction, low),
        OddRow("one feature of 1e4", 1e4 * first, high),
        OddRow("one feature of 1e4, other label", 1e4 * first, low),
        OddRow("length 1e149", 1e149 * direction, high),
        OddRow("length beyond float64", np.full(p, 1.7e308), low),
        OddRow("length 1e-310", 1e-310 * direction, high),
        OddRow("lengths 1e140 and 1e-140 mixed", np.where(np.arange(p) % 2 == 0, 1e140, 1e-140), low),
        OddRow("NaN in a feature", np.where(np.arange(p) == 0, np.nan, direction), high),
        OddRow("infinite feature", np.where(np.arange(p) == p - 1, np.inf, direction), low),
        OddRow("NaN label", direction, np.nan),
        OddRow("infinite label", direction, -np.inf),
        OddRow("label 77", direction, 77.0),
        OddRow("label 1e300", direction, 1e300),
    ]
    if isinstance(problem.loss, CustomLoss):
        found.append(OddRow("label -1", direction, -1.0))
    return found


def far_from(row: OddRow, problem: Problem, moment: Moment | None) -> OddRow:
    """Return the row that changes a sum most if it replaces ``row``.

    A gradient changes most with the sign of a row. A second moment does not change with it: among rows of the other
    label, that with the inner product a.b = kappa^2 rho^2 / 2 is furthest (clipping/survey.py).
    """
    size = float(np.max(np.abs(row.features), initial=0.0))
    if moment is None or not 0.0 < size < np.inf:
        return OddRow(row.name, -row.features, row.label)
    a = row.features / size
    a = a / np.linalg.norm(a)
    across = np.eye(len(a))[int(np.argmin(np.abs(a)))]
    across = across - (across @ a) * a
    square = 1.0 + moment.constant**2
    along = min(1.0, max(-1.0, moment.gradient**2 * square / 2 - moment.constant**2))
    length = float(np.linalg.norm(across))
    turned = a if length == 0.0 else along * a + math.sqrt(1.0 - along**2) * across / length
    other = -row.label if isinstance(problem.loss, (Huber, Squared)) else float(row.label == 0.0)
    with np.errstate(all="ignore"):
        return OddRow(row.name, turned * np.linalg.norm(row.features / size) * size, other)


def _labels(problem: Problem, count: int, rng: np.random.Generator) -> Array:
    loss: Any = problem.loss
    if loss.class_count:
        return rng.integers(0, loss.class_count, count).astype(np.float64)
    bound = getattr(loss, "label_bound", None)
    if bound is not None or loss.kind == "huber":
        return rng.uniform(-1.0, 1.0, count) * min(1.0, bound or 1.0)
    return rng.integers(0, 2, count).astype(np.float64)
