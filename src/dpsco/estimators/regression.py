"""Private linear regression: Huber or bounded squared loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.estimators.base import PrivateLinearModel
from dpsco.estimators.public_facts import label_bound_of
from dpsco.inference import Evidence, towards_constant
from dpsco.planning.geometry import Geometry
from dpsco.problem import Huber, Loss, Squared
from dpsco.query import Array
from dpsco.rows.containers import column_numbers
from dpsco.rows.row_norm import clamped
from dpsco.run import Model

__all__ = ["PrivateLinearRegression"]


class PrivateLinearRegression(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Differentially private linear regression in one pass.

    Where privacy noise explains much of a surveyed model, the model is shrunk towards a constant prediction. This is
    post-processing of released values and costs no privacy. ``survey="intervals"`` and ``penalty`` leave it out.

    Parameters
    ----------
    label_bound : float, optional
        Targets are clamped to [-label_bound, label_bound] and measured in units of it. By default the largest |y| is
        used, with a ``PrivacyLeakWarning``.
    loss : {"huber", "squared"}
        "huber": quadratic within ``width`` (a share of label_bound), linear beyond. Its gradients are bounded, so it
        needs less noise. "squared": least squares of clamped targets.
    width : float
        See ``loss``.
    radius : float
        Bound on the model, in units of label_bound: ||(feature_norm coef, intercept)|| <= radius label_bound. 1000
        with a survey and 10 without by default.
    epsilon, delta, feature_norm, n, fit_intercept, rounds, survey, solver : optional
        As in ``PrivateLogisticRegression``.
    geometry, adjacency, max_rows_per_unit : optional
        As in ``PrivateLogisticRegression``.
    shuffle, invalid_rows, n_features, penalty, columns, start, warm_start, account, random_state : optional
        As in ``PrivateLogisticRegression``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3)) / 3**0.5
    >>> model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, label_bound=3.0).fit(X, X @ [1.0, -2.0, 3.0])
    >>> bool(model.score(X, X @ [1.0, -2.0, 3.0]) > 0.8)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        feature_norm: float | None = None,
        radius: float | None = None,
        label_bound: float | None = None,
        n: int | None = None,
        *,
        loss: str = "huber",
        width: float = 0.5,
        fit_intercept: bool = True,
        rounds: int | None = None,
        survey: str = "auto",
        solver: str = "one-pass",
        geometry: Geometry | None = None,
        adjacency: str = "zero-out",
        max_rows_per_unit: int | None = None,
        shuffle: bool = True,
        invalid_rows: str = "error",
        n_features: int | None = None,
        penalty: float = 0.0,
        columns: Any = None,
        start: Any = None,
        warm_start: bool = False,
        account: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.radius = radius
        self.label_bound = label_bound
        self.n = n
        self.loss = loss
        self.width = width
        self.fit_intercept = fit_intercept
        self.rounds = rounds
        self.survey = survey
        self.solver = solver
        self.geometry = geometry
        self.adjacency = adjacency
        self.max_rows_per_unit = max_rows_per_unit
        self.shuffle = shuffle
        self.invalid_rows = invalid_rows
        self.n_features = n_features
        self.penalty = penalty
        self.columns = columns
        self.start = start
        self.warm_start = warm_start
        self.account = account
        self.random_state = random_state

    def _targets(
        self, y: Any, *, whole: bool, strict: bool, classes: Any = None, goes_on: bool = False
    ) -> tuple[Loss, Array, tuple[str, ...]]:
        one_of("loss", self.loss, ("huber", "squared"))
        targets = np.array(column_numbers(y))
        if strict and not np.all(np.isfinite(targets)):
            raise DataError(
                "y has cells that are NaN or infinite, or not numbers. Clean them, or pass "
                "invalid_rows='zero' to count such rows as zero rows. Nothing was spent."
            )
        bound, inferred = label_bound_of(self.label_bound, targets if whole else None)
        if goes_on and bound != self.__dict__["_bound"]:
            raise InvalidArgument(
                "Expected label_bound to be that of the first call: the released rounds are about it. A new estimator "
                "begins a new run, with a budget of its own."
            )
        self._bound = self._unit = bound
        targets = clamped(targets, self._bound)
        loss: Loss = Squared(label_bound=1.0) if self.loss == "squared" else Huber(self.width)
        return loss, targets, ("label_bound was read off the rows",) if inferred else ()

    def _shrunk(self, evidence: Evidence) -> Array | None:
        if self.penalty or self.survey == "intervals":
            return super()._shrunk(evidence)
        found = towards_constant(evidence)
        self._shrinkage = "" if found is None else "shrinkage towards a constant"
        return None if found is None else found[1]

    def _keep(self, model: Model) -> None:
        self.coef_ = model.coef * (self._bound / self._norm)
        self.intercept_ = float(model.intercept) * self._bound

    def predict(self, X: Any) -> Array:
        """Return the expected target of each row."""
        return self._scores(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on the few hundred rows of scikit-learn's checks noise rules
        return tags
