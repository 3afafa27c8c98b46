"""What estimators and commands decide alike for tables: the ball of models, delta, what a report assumes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dpsco.problem import L2Ball, Loss
from dpsco.run.report import PrivacyReport

__all__ = ["default_delta", "model_ball", "with_assumptions"]

_SEARCH = (
    "hyperparameters were not chosen by looking at these rows: a search (GridSearchCV, say) releases one model for "
    "each candidate and fold, and none but this one is covered"
)


def default_delta(n: int) -> float:
    """min(1e-5, n^-1.1): a function of the public n alone, safely below one row in n."""
    return min(1e-5, float(n) ** -1.1)


def model_ball(radius: float, loss: Loss) -> L2Ball:
    """The ball of models: ``radius``, and more room for more classes, radius sqrt(K / 2) for K of them together."""
    return L2Ball(radius if loss.outputs == 1 else radius * math.sqrt(loss.outputs / 2))


def with_assumptions(
    report: PrivacyReport, *, max_rows_per_unit: int | None = None, not_covered: Sequence[str] = ()
) -> PrivacyReport:
    """``report`` with what rests on the table: no search, whose the rows are, and what was read off them."""
    units = (
        f"all rows of one person carry one id; the first {max_rows_per_unit} of an id count, the others as zero rows"
    )
    added = [_SEARCH]
    if max_rows_per_unit is not None:
        added.append(units)
    added += [f"NOT COVERED: {leak}" for leak in not_covered]
    return dataclasses.replace(report, assumptions=(*report.assumptions, *added))
