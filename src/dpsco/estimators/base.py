"""What the estimators share: public facts in, one private pass, a linear model out."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Self

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import ExtraMissing, HorizonError, InvalidArgument, one_of, positive, positive_integer
from dpsco.estimators.permuted_rows import PermutedRows
from dpsco.estimators.public_facts import warn_seeded
from dpsco.estimators.validation import checked_ids, one_column, typed_rows
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.released_survey import Health
from dpsco.planning.table_problem import default_delta, table_plan
from dpsco.problem import Loss
from dpsco.query import Array
from dpsco.rows.containers import column_texts
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.csr import is_sparse
from dpsco.rows.row_norm import unit_rows
from dpsco.run import Facts, Model, Run, train
from dpsco.run.report import PrivacyReport
from dpsco.run.train import library_oracle

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise ExtraMissing("The estimators need scikit-learn 1.6 or newer: install dpsco[sklearn].") from None

__all__ = ["PrivateLinearModel"]


def _announced(estimator: PrivateLinearModel) -> bool:
    if estimator.n is None:
        raise InvalidArgument("partial_fit needs n=..., the number of rows that will come: the noise is made for it.")
    return True


class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; the arguments are explained where they are declared."""

    epsilon: float
    delta: float | None
    feature_norm: float
    radius: float | None
    n: int | None
    n_features: int | None
    fit_intercept: bool
    rounds: int | None
    survey: str
    adjacency: str
    max_rows_per_unit: int | None
    shuffle: bool
    invalid_rows: str
    random_state: Any
    _run: Any
    """The run that ``partial_fit`` feeds, if any."""

    # --- what a subclass decides ------------------------------------------------------------------

    def _targets(self, y: Any, *, whole: bool) -> tuple[Loss, Array, tuple[str, ...]]:
        """Loss, numbers it can take (NaN for a zero row), and what about them was read off private rows."""
        raise NotImplementedError

    def _keep(self, model: Model) -> None:
        """Set ``coef_`` and ``intercept_``."""
        raise NotImplementedError

    # --- training -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, unit: Any = None, **refused: Any) -> Self:
        """Train in one private pass over the rows of ``X`` and the labels ``y``.

        Parameters
        ----------
        X : array, table, sparse matrix or list of rows
            The rows, in any container that ``dpsco.stream`` takes.
        y : array-like
            One label per row.
        unit : array-like, optional
            One id per row (a person, a device); it goes with ``max_rows_per_unit``. 7, 7.0 and "7" are one id. A row
            without an id does not count.
        **refused
            Nothing: ``sample_weight`` is refused by name.

        Returns
        -------
        self

        Guarantee: the fitted model satisfies the guarantee in ``privacy_``. Cost: one pass, two gradients per row.
        """
        _refuse(refused)
        X, y = self._validated(X, y, first=True)
        loss, targets, leaks = self._targets(y, whole=True)
        planned = self._plan(loss, len(targets) if self.n is None else self.n)
        key, random = self._randomness()
        order = random.permutation(len(targets)) if self.shuffle else np.arange(len(targets))
        cap = self._cap(unit)
        if cap is not None:
            texts, codes = column_texts(checked_ids(unit, len(targets)), of="id")
            targets[order[~cap.counted_texts(texts, codes[order])]] = np.nan
        result = train(planned, PermutedRows(X, targets, order, self._norm), key=key, facts=_facts(cap, leaks))
        self._run = None
        self._learned(planned, result.model, result.report, result.geometry, result.health)
        return self

    @available_if(_announced)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, unit: Any = None, **refused: Any) -> Self:
        """Take the next rows of a stream of ``n`` rows, in order; ``coef_`` is the newest private iterate.

        Parameters
        ----------
        X, y, unit
            As in ``fit``.
        classes : sequence, optional
            The label set, if the estimator does not state it.
        **refused
            Nothing: ``sample_weight`` is refused by name.

        Returns
        -------
        self

        Guarantee: the models of all moments together satisfy one guarantee. Rows beyond ``n`` raise ``HorizonError``.
        Cost: holds a few thousand rows at most, until their chunk is full; a pickle holds none of them.
        """
        _refuse(refused)
        first = self.__dict__.get("_run") is None  # after fit, too: a new run and a new budget, as a second fit is
        if not first and not isinstance(self._run, Run):
            raise HorizonError("A run in progress does not survive pickling: this copy can predict, not go on.")
        if classes is not None and getattr(self, "classes", None) is None:
            self._stated_classes = classes
        X, y = self._validated(X, y, first=first)
        loss, targets, leaks = self._targets(y, whole=False)
        if first:
            key, _ = self._randomness()
            self._units = self._cap(unit)
            planned = self._plan(loss, positive_integer("n", self.n, "It is the number of rows."))
            self._run = Run(planned, oracle=library_oracle(planned), key=key, facts=_facts(self._units, leaks))
        self._run.check_room(len(targets))
        if self._units is not None:
            targets[~self._units.counted(checked_ids(unit, len(targets)))] = np.nan
        rows = X[:]
        rows = unit_rows(rows if is_sparse(rows) else np.ascontiguousarray(rows), self._norm)
        self._run.push(rows, targets)
        self._learned(self._run.plan, self._run.model, self._run.report, self._run.geometry, self._run.health)
        return self

    # --- pieces -------------------------------------------------------------------------------------

    def _validated(self, X: Any, y: Any, *, first: bool) -> tuple[Any, Any]:
        strict = one_of("invalid_rows", self.invalid_rows, ("error", "zero")) == "error"
        X = typed_rows(self, X, first=first, strict=strict, width=self.n_features)
        y = one_column(y, len(X), strict=strict)
        if first:
            self._norm = positive("feature_norm", self.feature_norm, "Rows are scaled into it; it must be public.")
        return X, y

    def _plan(self, loss: Loss, n: int) -> Plan:
        records = 1 if self.max_rows_per_unit is None else self.max_rows_per_unit
        delta = default_delta(n) if self.delta is None else self.delta
        # Rows are placed by position, so one that is there or not would move the others: no add-remove here.
        adjacency = one_of("adjacency", self.adjacency, ("zero-out", "replace"))
        budget = Budget(self.epsilon, delta, adjacency, records)
        return table_plan(
            loss,
            self.n_features_in_,
            n=n,
            budget=budget,
            intercept=bool(self.fit_intercept),
            radius=self.radius,
            rounds=self.rounds,
            survey=self.survey,
        )

    def _cap(self, unit: Any) -> ContributionCap | None:
        if (unit is None) != (self.max_rows_per_unit is None):
            raise InvalidArgument(
                "unit and max_rows_per_unit go together: the one says whose a row is, the other how many rows of one "
                "unit count. Give both, or neither to protect single rows."
            )
        return None if self.max_rows_per_unit is None else ContributionCap(self.max_rows_per_unit)

    def _randomness(self) -> tuple[bytes | None, np.random.Generator]:
        """Noise key (None: fresh from the operating system) and the generator of the order."""
        if self.random_state is None:
            return None, np.random.default_rng(secrets.randbits(128))
        warn_seeded()
        seed = hashlib.sha256(check_random_state(self.random_state).bytes(32)).digest()
        return seed, np.random.default_rng(int.from_bytes(seed, "little"))

    def _learned(
        self, planned: Plan, model: Model, report: PrivacyReport, geometry: Geometry | None, health: Health | None
    ) -> None:
        self.plan_, self.privacy_ = planned, report
        self.geometry_, self.health_ = geometry, health
        self._keep(model)

    # --- use ----------------------------------------------------------------------------------------

    def _scores(self, X: Any) -> Array:
        """Return <a, coef> + intercept with every row scaled as in training; shape (rows, outputs)."""
        check_is_fitted(self)
        rows = typed_rows(self, X, first=False, strict=True)[:]
        scaled = unit_rows(rows if is_sparse(rows) else np.ascontiguousarray(rows), self._norm)
        coef = np.atleast_2d(self.coef_) * self._norm
        return np.asarray((scaled.to_scipy() if is_sparse(scaled) else scaled) @ coef.T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the model, not a run in progress: that holds rows and the noise key."""
        state = dict(super().__getstate__())
        state.pop("_units", None)
        if state.get("_run") is not None:
            state["_run"] = "not pickled"
        return state


def _facts(cap: ContributionCap | None, inferred: tuple[str, ...]) -> Facts:
    """Return what an estimator states in its report."""
    return Facts(table=True, max_rows_per_unit=None if cap is None else cap.limit, inferred=inferred)


def _refuse(extra: dict[str, Any]) -> None:
    if extra.get("sample_weight") is not None:
        raise InvalidArgument(
            "sample_weight is refused: a weight lets one row count for many, and the noise is made for rows that count "
            "once. Bound the weights and fold them into a loss of your own (dpsco.PerExample)."
        )
    if unknown := sorted(set(extra) - {"sample_weight"}):
        raise TypeError(f"Unexpected arguments: {', '.join(unknown)}.")
