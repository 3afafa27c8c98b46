"""The page about an estimator's run: ``report_page``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsco.query import Array
from dpsco.rows.public_columns import PublicColumns
from dpsco.run import Result
from dpsco.run.parameter_table import parameter_table

if TYPE_CHECKING:
    from dpsco.pages.coefficients import Coefficients

__all__ = ["PageMethods", "today"]


def today() -> str:
    """Return the date of today, UTC."""
    return datetime.now(UTC).date().isoformat()


class PageMethods:
    """``report_page`` of the estimators, in the units of the table."""

    coef_: Array
    intercept_: Any
    _shrinkage: str
    _day: str
    _norm: float
    _unit: float
    _result: Result
    _encoder: PublicColumns | None

    def _table_units(self) -> dict[str, Any]:
        raise NotImplementedError

    def _feature_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def report_page(
        self,
        path: str | Path,
        *,
        data: str = "",
        label: str = "",
        date: str | None = None,
        reached: Mapping[str, str] | None = None,
    ) -> Path:
        """Write an HTML page about the run: the guarantee in words, the plan, what was released.

        Parameters
        ----------
        path : path
            The file to write.
        data, label : str
            Names of the data set and of what the model predicts.
        date : str, optional
            Date of the run; by default the day on which it began, noted before a row was used.
        reached : mapping, optional
            Figures measured on data that you declare public.

        Returns
        -------
        Path
            ``path``.

        Guarantee: the page shows released values, public numbers and what these arguments state. It may be published.
        """
        from dpsco.pages import Subject, write_run_page

        check_is_fitted(self)
        classes = tuple(map(str, getattr(self, "classes_", ())))
        subject = Subject(data, self._day if date is None else date, label, classes, self._feature_names())
        return write_run_page(self._result, path, reached=reached, subject=subject, coefficients=self._coefficients())

    def _coefficients(self) -> Coefficients | None:
        """Return the model with its table; intervals are those of a model before it was shrunk."""
        from dpsco.pages.coefficients import Coefficients, coefficients_of

        table = parameter_table(self._shown_result(), **self._table_units())
        if not self._shrinkage:
            to = self._unit / self._norm, self._unit
            return coefficients_of(self._result, *to, table=table, columns=self._encoder)
        coef = np.atleast_2d(self.coef_)
        shown = coef - coef.mean(axis=0) if len(coef) > 1 else coef
        why = f"The intervals of the table describe the model before {self._shrinkage}." if table else ""
        why = table.why if table and table.why else why
        declared, notes = self._encoder is not None, table.notes if table else ()
        return Coefficients(shown, np.atleast_1d(self.intercept_), why=why, notes=notes, table=table, columns=declared)

    def _shown_result(self) -> Result:
        """Return the result with the model as it is after shrinkage."""
        model = self._result.model
        coef = np.reshape(self.coef_, model.coef.shape) * (self._norm / self._unit)
        intercept = np.reshape(self.intercept_, np.shape(model.intercept)) / self._unit
        return dataclasses.replace(self._result, model=dataclasses.replace(model, coef=coef, intercept=intercept))
