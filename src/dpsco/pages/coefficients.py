"""Coefficients of a model as lines of a plot: estimate, standard error, interval. All released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsco.problem import CustomLoss, Softmax
from dpsco.query import Array
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.parameter_table import MOST_ROWS, ParameterTable
from dpsco.run.result import Result

__all__ = ["Coefficients", "coefficients_of"]

_MOST_LINES = 30
_MOST_CLASSES = 12


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients for a page, in the units that its reader knows.

    Parameters
    ----------
    values : array of shape (outputs, features)
        The coefficients; softmax has one output per class.
    intercepts : array of shape (outputs,)
        The intercepts.
    errors, intervals : arrays of shape (outputs, features[, 2]), optional
        Standard errors and intervals of the coefficients.
    why : str
        Why there are no intervals.
    notes : tuple of str
        What a reader of the intervals should know.
    table : ParameterTable, optional
        The same in the units of the table, which the page shows as well.
    columns : bool
        Whether the features are made of declared columns.
    """

    values: Array
    intercepts: Array
    errors: Array | None = None
    intervals: Array | None = None
    why: str = ""
    notes: tuple[str, ...] = ()

    table: ParameterTable | None = None
    columns: bool = False

    def of_table(self, table: ParameterTable | None, columns: PublicColumns | None = None) -> Coefficients:
        """Return the same with a table, and with its standard errors and intervals in the plot."""
        if table is None:
            return replace(self, why=f"Intervals are computed for at most {MOST_ROWS:,} parameters.")
        if table.why:
            return replace(self, why=table.why.replace("`", ""), table=table, columns=columns is not None)
        outputs, width = self.values.shape
        slopes = np.ones(width) if columns is None else columns.units.slopes

        def column(name: str) -> Array:
            cells = np.array([row[name] for row in table.rows]).reshape(outputs, -1)
            return np.asarray(cells[:, :width] / slopes)

        return replace(
            self,
            values=column("estimate"),
            errors=column("standard_error"),
            intervals=np.stack([column("low"), column("high")], axis=2),
            notes=table.notes,
            table=table,
            columns=columns is not None,
        )

    def section(self, names: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
        """Return the plots: for each output its lines, with places in percent of the width."""
        outputs = min(len(self.values), _MOST_CLASSES)
        size = np.abs(self.values).max(axis=0) if self.errors is None else self._clearness()
        kept = np.argsort(-size, kind="stable")[:_MOST_LINES]
        low, high = self._ends(kept, outputs)
        titles = [f"Class {name}" for name in classes] if len(classes) == len(self.values) > 1 else []

        def place(value: float) -> str:
            return f"{4 + 92 * (value - low) / (high - low):.2f}"

        def line(k: int, j: int) -> dict[str, Any]:
            value = float(self.values[k, j])
            shown = {"name": names[j], "value": f"{value:.3g}", "at": place(value), "bar": None}
            if self.errors is None or self.intervals is None:
                return shown
            ends = [place(float(end)) for end in self.intervals[k, j]]
            return {**shown, "value": f"{value:.3g} ± {self.errors[k, j]:.2g}", "bar": ends}

        panels = [
            {
                "title": titles[k] if titles else "",
                "lines": [line(k, int(j)) for j in kept],
                "intercept": f"{self.intercepts[k]:.3g}",
            }
            for k in range(outputs)
        ]
        hidden = self.values.shape[1] - len(kept)
        more = f"The {len(kept)} clearest of {self.values.shape[1]:,} are shown." if hidden else ""
        if outputs < len(self.values):
            more += f" So are the first {outputs} of {len(self.values)} classes."
        return {
            "panels": panels,
            "zero": place(0.0),
            "ticks": [(place(value), f"{value:.3g}") for value in (low, 0.0, high)],
            "errors": self.errors is not None,
            "why": self.why,
            "notes": [note.replace("`", "") for note in self.notes],
            "more": more,
            "columns": self.columns,
            "intervals": self.table is not None and not self.table.why,
            "grids": [] if self.table is None else _grids(self.table),
        }

    def _clearness(self) -> Array:
        errors = np.ones_like(self.values) if self.errors is None else self.errors
        return np.asarray(np.max(np.abs(self.values) / np.maximum(errors, 1e-300), axis=0))

    def _ends(self, kept: Any, outputs: int) -> tuple[float, float]:
        shown = (self.values if self.intervals is None else self.intervals)[:outputs, kept]
        low, high = min(0.0, float(shown.min())), max(0.0, float(shown.max()))
        return (low, high) if high > low else (-1.0, 1.0)


def _grids(table: ParameterTable) -> list[dict[str, Any]]:
    """Return the table, one grid per class."""
    grids: dict[str, dict[str, Any]] = {}
    head = ["", "coefficient"] if table.why else ["", "coefficient", "standard error", "z", "P>|z|", "from", "to"]
    for row in table.rows:
        name = row.get("class", "")
        grid = grids.setdefault(name, {"title": name, "name": "parameters", "columns": head, "lines": []})
        line = [row["name"], f"{row['estimate']:.4g}"]
        if not table.why:
            line += [f"{row['standard_error']:.3g}", f"{row['z']:.2f}", f"{row['p_value']:.3f}"]
            line += [f"{row['low']:.4g}", f"{row['high']:.4g}"]
        grid["lines"].append(line)
    return list(grids.values())


def coefficients_of(
    result: Result,
    feature: float = 1.0,
    score: float = 1.0,
    *,
    table: ParameterTable | None = None,
    columns: PublicColumns | None = None,
) -> Coefficients | None:
    """Return the coefficients of a run, times ``feature``, and its intercept, times ``score``: two public numbers.

    ``table`` is the run's ``parameter_table`` in the units of ``columns``. None for a model that is not linear.
    """
    model = result.model
    if isinstance(model.loss, CustomLoss) or model.coef.size == 0:
        return None
    coef = feature * np.atleast_2d(model.coef)
    centred = coef - coef.mean(axis=0) if isinstance(model.loss, Softmax) else coef
    plain = Coefficients(centred, score * np.atleast_1d(model.intercept))
    return plain.of_table(table, columns)
