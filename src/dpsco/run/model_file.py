"""A trained model as one file: plain JSON under a checksum, with its plan, its privacy report and its columns inside.

The file holds what may be published and nothing else: no key, no row, no count that is not in the report. Reading is
strict: a flipped byte, a missing or extra field, or another version is refused, and nothing in it is executed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import CheckpointError, InvalidArgument
from dpsco.json_files import read_sealed, write_sealed
from dpsco.lazy import cached_property
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.problem import Logistic, Softmax
from dpsco.query import Array
from dpsco.rows.file_stream import Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.parameter_table import ParameterTable, parameter_table
from dpsco.run.report import PrivacyReport
from dpsco.run.result import Model, Result, Round

__all__ = ["SavedModel"]

FORMAT = 3
"""2 had no table of coefficients."""
_FIELDS = {"format", "geometry", "parameters", "plan", "report", "trace", "label", "columns", "feature_norm"}


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A result and how files become rows for it.

    ``columns`` is the schema of a table, or the number of features of a matrix; ``labels`` says what a score means.
    """

    result: Result
    labels: Labels
    columns: PublicColumns | int
    feature_norm: float
    _stored: ParameterTable | None = None
    """The table in the file that this was read from: what it says of intervals cannot be computed again."""

    def __post_init__(self) -> None:
        problem = self.result.plan.problem
        width = self.columns.width if isinstance(self.columns, PublicColumns) else self.columns
        classes = None if self.labels.classes is None else len(self.labels.classes)
        if width != problem.dimension or (classes is not None and classes != problem.loss.class_count):
            raise InvalidArgument("The columns or classes are not those of the plan.")

    @cached_property
    def table(self) -> ParameterTable | None:
        """Coefficients in the units of the table, with standard errors and intervals or the reason why there are none.

        None for a model of more than 1,000 parameters.
        """
        if self._stored is not None:
            return self._stored
        return parameter_table(
            self.result,
            feature_norm=self.feature_norm,
            unit=self.labels.bound or 1.0,
            columns=self.columns if isinstance(self.columns, PublicColumns) else None,
            classes=self.labels.classes or (),
        )

    # --- use ----------------------------------------------------------------------------------------

    def scores(self, features: Any) -> Array:
        """Return <a, coef> + intercept for rows as ``FileRows`` gives them; shape (rows,) or (rows, classes)."""
        model = self.result.model
        return np.asarray(features @ model.coef.T + model.intercept)

    def predict(self, features: Any) -> NDArray[Any]:
        """Return the predicted class of each row, or its target in the unit of the label."""
        predicted = self.result.model.loss.predict(self.scores(features))
        if self.labels.classes is not None:
            return np.array(self.labels.classes)[predicted]
        return np.asarray(predicted * (self.labels.bound or 1.0))

    @property
    def probability_classes(self) -> tuple[str, ...]:
        """Classes that have a probability: all of them, or none if the loss gives none."""
        return self.labels.classes or () if isinstance(self.result.model.loss, (Logistic, Softmax)) else ()

    def probabilities(self, features: Any) -> Array | None:
        """Probability of each class, in the order of the classes; None for losses that give none."""
        if not self.probability_classes:
            return None
        scores = self.scores(features)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    # --- files --------------------------------------------------------------------------------------

    def write(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        result, labels, columns = self.result, self.labels, self.columns
        payload = {
            "format": FORMAT,
            "parameters": _flat(result.model, with_intercept=result.plan.problem.intercept),
            "plan": result.plan.to_dict(),
            "geometry": None if result.geometry is None else result.geometry.to_dict(),
            "report": json.loads(result.report.to_json()),
            "trace": [[r.step, r.gradient_norm, r.move] for r in result.trace],
            "label": {
                "column": labels.column,
                "classes": None if labels.classes is None else list(labels.classes),
                "bound": labels.bound,
            },
            "columns": columns.to_dict() if isinstance(columns, PublicColumns) else columns,
            "feature_norm": self.feature_norm,
            "coefficients": None if self.table is None else self.table.to_dict(),
        }
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(target, payload)
        return target

    @classmethod
    def read(cls, path: str | Path) -> SavedModel:
        """Read what ``write`` wrote, or refuse it."""
        path = Path(path)
        data = read_sealed(path, "model file", _FIELDS, optional={"coefficients"})
        try:
            if data["format"] != (FORMAT if "coefficients" in data else 2) or set(data["label"]) != {
                "column",
                "classes",
                "bound",
            }:
                raise ValueError
            plan = Plan.from_dict(data["plan"])
            x = np.array([_finite(value) for value in data["parameters"]])
            if x.shape != (plan.problem.parameters,):
                raise ValueError
            report = PrivacyReport.from_json(json.dumps(data["report"]))
            _check_report(report, plan)
            trace = tuple(Round(int(step), _finite(norm), _finite(move)) for step, norm, move in data["trace"])
            result = Result(
                model=Model.from_parameters(x, plan.problem),
                report=report,
                trace=trace,
                plan=plan,
                geometry=None if data["geometry"] is None else Geometry.from_dict(data["geometry"]),
            )
            classes = data["label"]["classes"]
            labels = Labels(
                data["label"]["column"], None if classes is None else tuple(classes), data["label"]["bound"]
            )
            columns = data["columns"] if isinstance(data["columns"], int) else PublicColumns.from_dict(data["columns"])
            stored = data.get("coefficients")
            table = None if stored is None else ParameterTable.from_dict(stored)
            outputs = plan.problem.loss.outputs
            if table is not None and len(table.rows) not in (len(x), outputs * (plan.problem.dimension + 1)):
                raise ValueError
            return cls(result, labels, columns, _finite(data["feature_norm"]), table)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # InvalidArgument is a ValueError
            raise CheckpointError(
                f"The model file {path.name!r} is intact but not a model of format {FORMAT}. Write it anew with this "
                "version."
            ) from None


def _check_report(report: PrivacyReport, plan: Plan) -> None:
    """Raise ValueError if the report is of another plan, or states a stronger guarantee than the plan paid for."""
    same = (report.method, report.adjacency, report.records) == (
        plan.method.name,
        plan.budget.adjacency,
        plan.budget.records,
    )
    if not same or report.rows_planned > plan.n or report.mu < plan.budget.mu * (1 - 1e-6):
        raise ValueError


def _flat(model: Model, *, with_intercept: bool) -> list[float]:
    """Return the vector x that ``Model.from_parameters`` takes apart."""
    rows = np.atleast_2d(model.coef)
    if with_intercept:
        rows = np.concatenate([rows, np.atleast_1d(model.intercept)[:, None]], axis=1)
    return [float(value) for value in rows.ravel()]


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError
    return float(value)
