"""The parameters of a linear model as a table in the units of its reader: estimates, and how sure they are.

A run knows features that were scaled into a ball and, behind ``PublicColumns``, made of columns by affine maps. Both
are undone here, for estimates and for ``Inference`` alike. So estimators, the command line, model files and pages show
the same table.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsco.errors import IntervalError
from dpsco.inference import Inference
from dpsco.inference.intervals import PARTS, table_text
from dpsco.problem import CustomLoss, Softmax
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.result import Result

__all__ = ["MOST_ROWS", "ParameterTable", "inference_of_table", "parameter_table"]

MOST_ROWS = 1_000
"""Parameters from which no table is made: the cost of intervals is cubic."""
LEVEL = 0.95
_PLAIN = ("estimate",)
_NUMBERS = ("estimate", "standard_error", *PARTS[1:], "z", "p_value", "degrees", "low", "high")
_SHORTENED = (
    "feature_norm={:.4g} is less than the features of a row can have: longer rows were shortened, and the table "
    "describes the shortened ones."
)
_CONSTANT = (
    "The model has no intercept beside its features. In the units of the table there is one: it follows from the "
    "ranges and the coefficients."
)


@dataclass(frozen=True)
class ParameterTable:
    """Rows of ``Inference.table``; with a reason in ``why`` they have names and estimates alone."""

    loss: str
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    why: str = ""
    level: float = LEVEL

    def __str__(self) -> str:
        """Return the table as text."""
        if not self.why:
            return table_text(self.loss, self.rows, self.level, self.notes)
        wide = max((len(_full(row)) for row in self.rows), default=0)
        lines = [f"{_full(row):<{wide}} {row['estimate']:>11.4g}" for row in self.rows]
        return "\n".join([f"{self.loss}: coefficients without standard errors", *lines, f"Note: {self.why}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {
            "level": self.level,
            "loss": self.loss,
            "rows": [{k: v if _is_finite(v) else None for k, v in row.items()} for row in self.rows],
            "notes": list(self.notes),
            "why": self.why,
        }

    @classmethod
    def from_dict(cls, data: Any) -> ParameterTable:
        """Return the table of ``to_dict``; ValueError if it is not one."""
        if set(data) != {"level", "loss", "rows", "notes", "why"} or not 0 < _number(data["level"]) < 1:
            raise ValueError
        texts = (data["loss"], data["why"], *data["notes"])
        if not all(isinstance(text, str) for text in texts):
            raise ValueError
        rows = tuple(_row(row, plain=bool(data["why"])) for row in data["rows"])
        if len({"class" in row for row in rows}) > 1:
            raise ValueError
        return cls(data["loss"], rows, tuple(data["notes"]), data["why"], _number(data["level"]))


def _full(row: Mapping[str, Any]) -> str:
    return f"{row['class']}: {row['name']}" if "class" in row else row["name"]


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _row(row: Any, *, plain: bool) -> dict[str, Any]:
    """Return a row of a file, or raise ValueError if it is not one of a table."""
    texts, numbers = {"name"} | ({"class"} & set(row)), _PLAIN if plain else _NUMBERS
    if set(row) != {*texts, *numbers} or not all(isinstance(row[name], str) for name in texts):
        raise ValueError
    return {**{name: row[name] for name in sorted(texts)}, **{name: _number(row[name]) for name in numbers}}


def _number(value: Any) -> float:
    """Return a number of a file; null stands for an infinite one, which JSON does not have."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise ValueError
    return float(value)


def inference_of_table(
    result: Result,
    *,
    feature_norm: float = 1.0,
    unit: float = 1.0,
    columns: PublicColumns | None = None,
    names: tuple[str, ...] = (),
    classes: Sequence[str] = (),
) -> Inference:
    """Return the inference of a run in the units of its table.

    Parameters
    ----------
    result : Result
        Of a run whose rows were divided by ``feature_norm`` and whose targets by ``unit``.
    feature_norm, unit : float
        These public numbers.
    columns : PublicColumns, optional
        What made the features; their maps are undone.
    names : tuple of str
        Names of the features, without ``columns``.
    classes : sequence of str
        Names of the classes of softmax.

    Raises
    ------
    IntervalError
        If the released values do not support intervals.
    """
    found = result.inference.in_units(unit / feature_norm, unit, names)
    if len(classes) == found.loss.outputs > 1:
        found = dataclasses.replace(found, classes=tuple(map(str, classes)))
    if columns is None:
        return found
    found, notes = found.of_quantities(*columns.units), list(found.notes)
    if columns.row_norm is None or feature_norm < columns.row_norm * (1 - 1e-9):
        notes.append(_SHORTENED.format(feature_norm))
    if found.intercept and not result.plan.problem.intercept:
        notes.append(_CONSTANT)
    return dataclasses.replace(found, notes=tuple(notes))


def parameter_table(result: Result, **units: Any) -> ParameterTable | None:
    """Return the table of a run, with the arguments of ``inference_of_table``; None if there is none to show.

    Where there are no intervals, it holds the estimates and the reason. There is none for a model that is not linear or
    has more than ``MOST_ROWS`` parameters.
    """
    model = result.model
    if isinstance(model.loss, CustomLoss) or not 0 < result.plan.problem.parameters <= MOST_ROWS:
        return None
    try:
        found = inference_of_table(result, **units)
    except IntervalError as reason:
        return _plain(result, str(reason).split("\n")[0], **units)
    return ParameterTable(model.loss.kind, tuple(found.table(LEVEL)), found.notes)


def _plain(
    result: Result,
    why: str,
    feature_norm: float = 1.0,
    unit: float = 1.0,
    columns: PublicColumns | None = None,
    names: tuple[str, ...] = (),
    classes: Sequence[str] = (),
) -> ParameterTable:
    """Return the estimates alone."""
    model = result.model
    coef, intercept = np.atleast_2d(model.coef) * (unit / feature_norm), np.atleast_1d(model.intercept) * unit
    if isinstance(model.loss, Softmax):
        coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
    constant = result.plan.problem.intercept
    shown = list(names) or [f"x{j}" for j in range(coef.shape[1])]
    if columns is not None:
        constant = constant or bool(np.any(columns.units.offsets))
        (coef, intercept), shown = columns.original_units(coef, intercept), list(columns.units.quantities)
    rows: list[dict[str, Any]] = []
    for k in range(len(coef)):
        named = {"class": str(classes[k]) if len(classes) == len(coef) else str(k)} if len(coef) > 1 else {}
        values = [*coef[k], intercept[k]] if constant else coef[k]
        for name, value in zip([*shown, "intercept"], values, strict=False):
            rows.append({**named, "name": name, "estimate": float(value)})
    return ParameterTable(model.loss.kind, tuple(rows), why=why)
