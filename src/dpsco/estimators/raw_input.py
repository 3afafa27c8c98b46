"""What estimators make of their input: raw tables through declared columns, rows in the unit ball, an earlier model."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.estimators.validation import typed_rows
from dpsco.planning.plan import Plan
from dpsco.query import Array
from dpsco.rows.check_beside import CheckBeside
from dpsco.rows.csr import is_sparse
from dpsco.rows.gate import admit, container, declared_by
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.row_norm import unit_rows

__all__ = ["RawInput"]


class RawInput:
    """Methods of estimators that take raw tables and begin with an earlier model."""

    columns: Any
    start: Any
    warm_start: bool
    n_features: int | None
    invalid_rows: str
    columns_: PublicColumns | None
    _encoder: PublicColumns | None
    """The columns that made the features: those of the estimator, or of the step before it in a pipeline."""
    n_features_in_: int
    _norm: float
    _width: int
    _unit: float
    _form: tuple[str, bool]
    """Type of the rows and whether they are sparse: the first rows of a run declare it for all."""

    @property
    def _strict(self) -> bool:
        """Whether a row that does not fit is an error, as long as no run has begun."""
        return one_of("invalid_rows", self.invalid_rows, ("error", "zero")) == "error"

    def _encoded(self, X: Any) -> Any:
        """Return a raw table as features, if columns are declared."""
        return X if self.columns_ is None else self.columns_.encode(self.columns_.table(X))

    def _typed(self, X: Any, *, first: bool, strict: bool, checks: list[CheckBeside] | None = None) -> Any:
        """Return rows behind the gate, and note names and numbers of features."""
        columns = self.columns_
        if columns is None:
            form = (None, None) if first else self._form  # no later row changes the type of those it is summed with
            X = typed_rows(self, X, first=first, strict=strict, width=self.n_features, form=form, checks=checks)
            self._width = int(self.__dict__["n_features_in_"])
            self._form = str(X[:1].dtype), is_sparse(X[:1])
            return X
        if X.shape[0] == 0:
            raise DataError("Found array with 0 sample(s) while a minimum of 1 is required: X is empty.")
        if first:
            self.n_features_in_, self._width = len(columns.names), columns.width
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        X = container(X)
        return admit(X, declared_by(X, columns.width))

    def _feature_names(self) -> tuple[str, ...]:
        """Return the names of the features of an encoded row; nothing if the table has none."""
        columns = self._encoder
        return tuple(map(str, getattr(self, "feature_names_in_", ()))) if columns is None else columns.feature_names

    def _in_ball(self, rows: Any) -> Any:
        """Return all of the rows, each scaled into the unit ball."""
        whole = rows[:]
        return unit_rows(whole if is_sparse(whole) else np.ascontiguousarray(whole), self._norm)

    def _start(self, planned: Plan) -> Array | None:
        """Return x_0 in the units of the plan: an earlier model, whose report says what it cost."""
        given = self.start
        if given is None and self.warm_start and hasattr(self, "coef_"):
            given = self
        if given is None:
            return None
        coef, intercept = (given.coef_, given.intercept_) if hasattr(given, "coef_") else given
        x = np.atleast_2d(np.asarray(coef, dtype=np.float64)) * (self._norm / self._unit)
        if x.shape != (planned.problem.loss.outputs, self._width):
            raise InvalidArgument(
                f"Expected start to have coefficients of shape ({planned.problem.loss.outputs}, {self._width}), got "
                f"{x.shape}. It is a fitted estimator of the same features, or a pair (coef, intercept)."
            )
        if planned.problem.intercept:
            ends = np.broadcast_to(np.asarray(intercept, dtype=np.float64) / self._unit, len(x))
            x = np.concatenate([x, ends[:, None]], axis=1)
        return np.asarray(x.ravel())

    def _has_start(self) -> bool:
        return self.start is not None or (bool(self.warm_start) and hasattr(self, "coef_"))

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy with the same start: a copy of an earlier model would lose what it learned."""
        made = super().__sklearn_clone__()  # type: ignore[misc]
        made.start = self.start
        return made
