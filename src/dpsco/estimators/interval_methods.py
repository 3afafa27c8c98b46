"""Methods of the estimators that say how sure a model is: standard errors, intervals, the table."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsco.inference import Evidence, Inference, infer
from dpsco.query import Array

__all__ = ["IntervalMethods"]

_SHRUNK = "The estimates and intervals are those of the model before {}; coef_ is shrunk."


class IntervalMethods:
    """Standard errors and intervals in the units of the table, from released values alone; they need a survey."""

    _evidence: Evidence | None
    _inference: Inference | None
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
            found = infer(self._evidence).in_units(self._unit / self._norm, self._unit, self._feature_names())
            if found.loss.outputs > 1:
                found = dataclasses.replace(found, classes=tuple(map(str, self.__dict__["classes_"])))
            if self._shrinkage:
                found = dataclasses.replace(found, notes=(*found.notes, _SHRUNK.format(self._shrinkage)))
            self._inference = found
        return self._inference

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
        of_run = self.inference_.in_units(self._norm / self._unit, 1.0 / self._unit)
        ends = of_run.predict_interval(rows.toarray() if hasattr(rows, "toarray") else rows, level)
        return np.asarray(ends * self._unit)

    def summary(self, level: float = 0.95) -> str:
        """Print the parameters as statisticians know them: estimate, standard error and its parts, interval."""
        return self.inference_.summary(level)
