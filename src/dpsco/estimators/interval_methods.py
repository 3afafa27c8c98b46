"""Methods of the estimators that say how sure a model is: standard errors, intervals, the table."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsco.inference import Inference
from dpsco.query import Array
from dpsco.rows.public_columns import PublicColumns
from dpsco.run import Result
from dpsco.run.parameter_table import inference_of_table

__all__ = ["IntervalMethods"]

_SHRUNK = "The estimates and intervals are those of the model before {}; coef_ is shrunk."


class IntervalMethods:
    """Standard errors and intervals in the units of the table, from released values alone; they need a survey.

    Behind ``PublicColumns``, as an argument or as the step before in a pipeline, these are the units of the raw
    columns: ranges are undone, log columns are per unit of the logarithm in their name, dates per day, 0/1 features
    as they are. ``coef_`` and ``intercept_`` remain those of the features.
    """

    _result: Result
    _inference: Inference | None
    _encoder: PublicColumns | None
    _norm: float
    _unit: float
    _shrinkage: str

    def _feature_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _scaled(self, X: Any) -> Any:
        raise NotImplementedError

    @property
    def inference_(self) -> Inference:
        """All of it.

        Raises
        ------
        IntervalError
            If the released values do not support intervals; without a survey, for instance.
        """
        check_is_fitted(self)
        if self._inference is None:
            found = inference_of_table(self._result, **self._table_units())
            if self._shrinkage:
                found = dataclasses.replace(found, notes=(*found.notes, _SHRUNK.format(self._shrinkage)))
            self._inference = found
        return self._inference

    def _table_units(self) -> dict[str, Any]:
        """Return what turns the run's parameters into those of the table."""
        return {
            "feature_norm": self._norm,
            "unit": self._unit,
            "columns": self._encoder,
            "names": self._feature_names(),
            "classes": tuple(map(str, getattr(self, "classes_", ()))),
        }

    def covariance(self, part: str = "total") -> Array:
        """Return the covariance of (coefficients, intercept), or its part "sampling", "privacy" or "optimisation"."""
        return self.inference_.covariance(part)

    def standard_errors(self, part: str = "total") -> Array:
        """Return the standard errors of (coefficients, intercept)."""
        return self.inference_.standard_errors(part)

    def confidence_intervals(self, level: float = 0.95) -> Array:
        """Return the intervals of (coefficients, intercept), lower and upper end along the last axis."""
        return self.inference_.confidence_intervals(level)

    def predict_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the interval of each row's predicted probability (of the second class, or of each) or mean target."""
        rows = self._scaled(X)
        run = self._result.inference
        ends = run.predict_interval(rows.toarray() if hasattr(rows, "toarray") else rows, level)
        return np.asarray(ends * self._unit)

    def summary(self, level: float = 0.95) -> str:
        """Return the table of the parameters: estimate, standard error and its parts, z, p-value, interval, notes.

        ``inference_.table(level)`` has the same numbers, for ``pandas.DataFrame``.
        """
        return self.inference_.summary(level)
