"""Coefficients of a model as lines of a plot: estimate, standard error, interval. All released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsco.errors import IntervalError
from dpsco.inference import Inference
from dpsco.problem import CustomLoss, Softmax
from dpsco.query import Array
from dpsco.run.result import Result

__all__ = ["Coefficients", "coefficients_of"]

_MOST_LINES = 30
_MOST_CLASSES = 12
_MOST_PARAMETERS = 1_000
"""Parameters from which intervals are left out: their cost is cubic."""
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients for a page, in the units that its reader knows.

    Parameters
    ----------
    values : array of shape (outputs, features)
        The coefficients; softmax has one output per class.
    intercepts : array of shape (outputs,)
        The intercepts.
    errors, intervals : arrays of shape (outputs, parameters[, 2]), optional
        Standard errors and intervals of (coefficients, intercept).
    why : str
        Why there are no intervals.
    notes : tuple of str
        What a reader of the intervals should know.
    """

    values: Array
    intercepts: Array
    errors: Array | None = None
    intervals: Array | None = None
    why: str = ""
    notes: tuple[str, ...] = ()

    def with_intervals(self, inference: Callable[[], Inference]) -> Coefficients:
        """Return the same with standard errors and intervals, or with the reason why there are none."""
        if self.values.size > _MOST_PARAMETERS:
            return replace(self, why=f"Intervals are computed for at most {_MOST_PARAMETERS:,} coefficients.")
        try:
            found = inference()
        except IntervalError as reason:
            return replace(self, why=str(reason).split("\n")[0].replace("`", ""))
        outputs = len(self.values)
        errors = found.standard_errors().reshape(outputs, -1)
        ends = found.confidence_intervals(LEVEL).reshape(outputs, -1, 2)
        middle, width = ends.mean(axis=2), self.values.shape[1]
        return replace(
            self,
            values=middle[:, :width],
            intercepts=middle[:, -1] if middle.shape[1] > width else self.intercepts,
            errors=errors,
            intervals=ends,
            notes=found.notes,
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
        }

    def _clearness(self) -> Array:
        width = self.values.shape[1]
        errors = np.ones_like(self.values) if self.errors is None else self.errors[:, :width]
        return np.asarray(np.max(np.abs(self.values) / np.maximum(errors, 1e-300), axis=0))

    def _ends(self, kept: Any, outputs: int) -> tuple[float, float]:
        shown = (self.values if self.intervals is None else self.intervals)[:outputs, kept]
        low, high = min(0.0, float(shown.min())), max(0.0, float(shown.max()))
        return (low, high) if high > low else (-1.0, 1.0)


def coefficients_of(result: Result, feature: float = 1.0, score: float = 1.0) -> Coefficients | None:
    """Return the coefficients of a run, times ``feature``, and its intercept, times ``score``: two public numbers.

    None for a model that is not linear.
    """
    model = result.model
    if isinstance(model.loss, CustomLoss) or model.coef.size == 0:
        return None
    coef = feature * np.atleast_2d(model.coef)
    centred = coef - coef.mean(axis=0) if isinstance(model.loss, Softmax) else coef
    plain = Coefficients(centred, score * np.atleast_1d(model.intercept))
    return plain.with_intervals(lambda: result.inference.in_units(feature, score))
