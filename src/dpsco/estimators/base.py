"""What the estimators share: public facts in, one private pass, a linear model out."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import secrets
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from dpsco.accounting.account import Account
from dpsco.accounting.budget import Budget
from dpsco.errors import DataError, ExtraMissing, HorizonError, InvalidArgument, one_of, positive, positive_integer
from dpsco.estimators.interval_methods import IntervalMethods
from dpsco.estimators.page_methods import PageMethods, today
from dpsco.estimators.permuted_rows import PermutedRows
from dpsco.estimators.public_facts import warn_seeded
from dpsco.estimators.raw_input import RawInput
from dpsco.estimators.validation import checked_ids, is_chunks, is_empty, one_column, typed_rows
from dpsco.inference import Evidence
from dpsco.inference.ridge import ridge
from dpsco.methods import Surveyed
from dpsco.methods.surveyed import WIDEST
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.table_problem import default_delta, table_plan
from dpsco.problem import Loss
from dpsco.query import Array
from dpsco.rows.check_beside import CheckBeside
from dpsco.rows.containers import column_texts
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.csr import is_sparse
from dpsco.rows.encoded_rows import encoded_by
from dpsco.rows.public_columns import PublicColumns, columns_from
from dpsco.rows.random_order import ranks_of
from dpsco.rows.stream import stream
from dpsco.run import Facts, Model, Result, Run, train
from dpsco.run.train import library_oracle
from dpsco.run.turns import Turns

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


class PrivateLinearModel(RawInput, IntervalMethods, PageMethods, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; the arguments are explained where they are declared."""

    epsilon: float
    delta: float | None
    feature_norm: float | None
    radius: float | None
    n: int | None
    fit_intercept: bool
    rounds: int | None
    survey: str
    solver: str
    geometry: Geometry | None
    adjacency: str
    max_rows_per_unit: int | None
    shuffle: bool
    penalty: float
    columns: Any
    start: Any
    warm_start: bool
    account: Any
    random_state: Any
    _run: Any
    """The run that ``partial_fit`` feeds, if any."""

    # --- what a subclass decides ------------------------------------------------------------------

    def _targets(
        self, y: Any, *, whole: bool, strict: bool, classes: Any = None, goes_on: bool = False
    ) -> tuple[Loss, Array, tuple[str, ...]]:
        """Loss, numbers it can take (NaN for a zero row; ``strict``: an error), and what was read off private rows."""
        raise NotImplementedError

    def _keep(self, model: Model) -> None:
        """Set ``coef_`` and ``intercept_``."""
        raise NotImplementedError

    # --- training -----------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, unit: Any = None, **refused: Any) -> Self:
        """Train in one private pass over the rows of ``X`` and the labels ``y``.

        Parameters
        ----------
        X : array, table, sparse matrix or list of rows
            The rows, in any container that ``dpsco.stream`` takes. With ``columns``: a raw table. Without y: an
            iterable of chunks (X, y), read once and in order, ``n`` rows in all.
        y : array-like, optional
            One label per row.
        unit : array-like, optional
            One id per row (a person, a device); it goes with ``max_rows_per_unit``. 7, 7.0 and "7" are one id; other
            text is an id as it is written ("007" is another one). A row without an id does not count.
        **refused
            Nothing: ``sample_weight`` is refused by name.

        Returns
        -------
        self

        Guarantee: the fitted model satisfies the guarantee in ``privacy_``. Cost: one pass, two gradients per row.
        """
        _refuse(refused)
        if y is None and unit is None and is_chunks(X):
            return self._fit_chunks(X)
        made_by = encoded_by(X)
        checks: list[CheckBeside] = []  # of a large array: beside targets, plan, order and the sum of the first round
        try:
            X, y = self._validated(X, y, first=True, made_by=made_by, checks=checks)
            loss, targets, leaks = self._targets(y, whole=True, strict=self._strict)
            planned = self._plan(loss, len(targets) if self.n is None else self.n, solver=self.solver)
            start = self._start(planned)
            key, random = self._randomness()
            order = ranks_of(X.shape[0], X.shape[1] * X.dtype.itemsize, random if self.shuffle else None)
            cap = self._cap(unit)
            if cap is not None:
                texts, codes = column_texts(checked_ids(unit, len(targets)), of="id")
                places = random.permutation(len(targets)) if self.shuffle else np.arange(len(targets))
                targets[places[~cap.counted_texts(texts, codes[places])]] = np.nan
            facts = self._facts(None, leaks, self.columns is None and made_by is None)
            rows = PermutedRows(X, targets, order, self._norm, *checks, cap=None if cap is None else cap.limit)
            result = train(planned, rows, start=start, key=key, account=open_account(self.account), facts=facts)
        except Exception:
            for check in checks:  # what is wrong with X comes first
                check.wait()
            raise
        self._run = None
        self._learned(result)
        return self

    def _fit_chunks(self, chunks: Any) -> Self:
        """Train on an iterable of chunks (X, y), read once; rows that do not come count as zero rows."""
        if self.n is None or self.invalid_rows != "zero" or self.max_rows_per_unit is not None:
            raise InvalidArgument(
                "An iterable of chunks is read while it is trained on. State n=..., the number of rows that will come, "
                "and invalid_rows='zero', so that no row stops a run that has spent its budget; no max_rows_per_unit."
            )
        coming = (chunk for chunk in chunks if not is_empty(chunk))
        X, y = next(coming, (None, None))
        if X is None:
            raise DataError("The iterable has no chunk: no row was found. Nothing was spent.")
        rows, y = self._validated(X, y, first=True, made_by=encoded_by(X))
        loss, targets, leaks = self._targets(y, whole=False, strict=False)
        planned = self._plan(loss, positive_integer("n", self.n, "It is the number of rows."))
        start, (key, _) = self._start(planned), self._randomness()

        def encoded() -> Iterator[Any]:
            yield self._in_ball(rows), targets
            for X, y in coming:
                more, labels = self._validated(X, y, first=False)
                yield self._in_ball(more), self._targets(labels, whole=False, strict=False)[1]

        facts, sparse = self._facts(None, leaks, self.columns is None), is_sparse(rows[:1])  # later chunks are unknown
        given = stream(encoded(), dtype=str(rows[:1].dtype), sparse=sparse)
        result = train(planned, given, start=start, key=key, account=open_account(self.account), facts=facts)
        self._run = None
        self._learned(result)
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
        So does every call after one that was interrupted: some of its rows may count already. Rows of the first call
        are checked before anything is spent; later rows that do not fit are zero rows, whatever ``invalid_rows`` says.
        Cost: holds a few thousand rows at most, until their chunk is full; a pickle holds none of them.
        """
        _refuse(refused)
        if is_empty((X, y)):
            return self
        with self.__dict__.setdefault("_turns", Turns()).lock:  # two threads at the start would begin two runs
            run, X, targets, ids = self._begun(X, y, classes, unit)
        if self._units is not None and ids is not None:  # between begin and end, so that one thread counts at a time
            targets[~self._units.counted_texts(*ids)] = np.nan
        run.push(self._in_ball(X), targets, within=True)
        self._learned(run.result)
        run.unfinished = False
        return self

    def _begun(self, X: Any, y: Any, classes: Any, unit: Any) -> tuple[Run, Any, Array, Any]:
        """Return the run of ``partial_fit``, begun by its first rows; rows, targets and ids behind the gate."""
        first = self.__dict__.get("_run") is None  # after fit, too: a new run and a new budget, as a second fit is
        if not first and not isinstance(self._run, Run):
            raise HorizonError("A run in progress does not survive pickling: this copy can predict, not go on.")
        X, y = self._validated(X, y, first=first, made_by=encoded_by(X) if first else None)
        strict = first and self._strict
        loss, targets, leaks = self._targets(y, whole=False, strict=strict, classes=classes, goes_on=not first)
        new = self._cap(unit)  # in every call: both unit and max_rows_per_unit, or neither
        cap = new if first else self._units
        ids = None if cap is None else column_texts(checked_ids(unit, len(targets)), of="id")
        if first:
            planned = self._plan(loss, positive_integer("n", self.n, "It is the number of rows."))
            facts, (key, _) = self._facts(cap, leaks, self.columns is None), self._randomness()
            run = Run(planned, oracle=library_oracle(planned), start=self._start(planned), key=key, facts=facts)
            run.begin_push(len(targets))  # before the charge: what is refused has cost nothing
            if (account := open_account(self.account)) is not None:
                run.charge(account)
            self._units: ContributionCap | None = cap
            self._run = run
        else:
            self._run.begin_push(len(targets))
        return self._run, X, targets, ids

    # --- pieces -------------------------------------------------------------------------------------

    def _validated(
        self,
        X: Any,
        y: Any,
        *,
        first: bool,
        made_by: PublicColumns | None = None,
        checks: list[CheckBeside] | None = None,
    ) -> tuple[Any, Any]:
        strict = self._strict and first  # later rows of a run that may have released: none of them decides how it ends
        if first:
            self.columns_ = None if self.columns is None else columns_from(self.columns)
        X = self._typed(self._encoded(X), first=first, strict=strict, checks=checks)
        y = one_column(y, len(X), strict=strict)
        if first:
            self._encoder = copy.copy(made_by if self.columns_ is None else self.columns_)  # set_params changes theirs
            declared = None if self._encoder is None else self._encoder.row_norm
            norm = (1.0 if declared is None else declared) if self.feature_norm is None else self.feature_norm
            self._norm = positive("feature_norm", norm, "Rows are scaled into it; it must be public.")
        return X, y

    def _plan(self, loss: Loss, n: int, solver: str = "one-pass") -> Plan:
        self._day = today()  # before a row is used: its date says nothing about how long they took
        records = 1 if self.max_rows_per_unit is None else self.max_rows_per_unit
        delta = default_delta(n) if self.delta is None else self.delta
        # Rows are placed by position, so one that is there or not would move the others: no add-remove here.
        adjacency = one_of("adjacency", self.adjacency, ("zero-out", "replace"))
        budget = Budget(self.epsilon, delta, adjacency, records)
        planned = table_plan(
            loss,
            self._width,
            n=n,
            budget=budget,
            intercept=bool(self.fit_intercept),
            radius=self.radius,
            rounds=self.rounds,
            survey="none" if self._has_start() else self.survey,
            geometry=self._known_geometry(),
            solver="one-pass" if self.penalty and solver == "auto" else solver,
            gaussian=self.account is not None,
        )
        self._check_penalty(planned)
        return planned

    def _known_geometry(self) -> Geometry | None:
        """Return the given geometry in the units of the plan: rows are scaled into the unit ball before."""
        if self.geometry is None:
            return None
        if not isinstance(self.geometry, Geometry) or not math.isclose(self.geometry.feature_norm, self._norm):
            raise InvalidArgument(
                f"Expected geometry to be a dpsco.Geometry with feature_norm={self._norm:g}, that of this estimator."
            )
        return dataclasses.replace(self.geometry, feature_norm=1.0)

    def _check_penalty(self, planned: Plan) -> None:
        """Refuse a penalty that cannot be kept, before a row is used."""
        if not self.penalty:
            return
        positive("penalty", self.penalty, "It is the weight of half the squared norm of the coefficients.")
        if not (isinstance(planned.method, Surveyed) and planned.method.single_epoch):
            raise InvalidArgument(
                f"penalty={self.penalty} is applied in the geometry that a survey releases, and this plan has none (n "
                "is too small, survey='none', another solver, or a start). Leave the penalty out, or lower radius."
            )
        if self._width + bool(self.fit_intercept) > WIDEST:
            raise InvalidArgument(f"penalty={self.penalty} takes at most {WIDEST:,} columns. Leave it out.")

    def _cap(self, unit: Any) -> ContributionCap | None:
        if (unit is None) != (self.max_rows_per_unit is None):
            raise InvalidArgument(
                "unit and max_rows_per_unit go together: the one says whose a row is, the other how many rows of one "
                "unit count. Give both, or neither to protect single rows."
            )
        return None if self.max_rows_per_unit is None else ContributionCap(self.max_rows_per_unit)

    def _facts(self, cap: ContributionCap | None, inferred: tuple[str, ...], upstream: bool) -> Facts:
        """Return what the estimator states in its report."""
        limit, weighted = None if cap is None else cap.limit, getattr(self, "class_weight", None) is not None
        started = self._has_start() and (self.start is None or hasattr(self.start, "coef_"))
        return Facts(
            table=True,
            max_rows_per_unit=limit,
            inferred=inferred,
            upstream=upstream,
            weighted=weighted,
            started=started,
        )

    def _randomness(self) -> tuple[bytes | None, np.random.Generator]:
        """Noise key (None: fresh from the operating system) and the generator of the order."""
        if self.random_state is None:
            return None, np.random.default_rng(secrets.randbits(128))
        warn_seeded()
        seed = hashlib.sha256(check_random_state(self.random_state).bytes(32)).digest()
        return seed, np.random.default_rng(int.from_bytes(seed, "little"))

    _shrinkage = ""
    """What was done to the released model, in words."""
    _unit = 1.0
    """What one unit of a score is worth in predictions."""

    def _learned(self, result: Result) -> None:
        self.plan_, self.privacy_ = result.plan, result.report
        # In the units of the table: rows are scaled into the unit ball before the run.
        shape = result.geometry
        self.geometry_ = None if shape is None else dataclasses.replace(shape, feature_norm=self._norm)
        self.health_ = result.health
        self._result, self._inference, model = result, None, result.model
        x = None if result.evidence is None else self._shrunk(result.evidence)
        if x is not None:
            model = Model.from_parameters(result.plan.problem.domain.project(x), result.plan.problem)
        self._keep(model)

    def _shrunk(self, evidence: Evidence) -> Array | None:
        """Return the parameters after shrinkage, which is post-processing; None for the model as it was released."""
        self._shrinkage = "a ridge penalty" if self.penalty else ""
        return ridge(evidence, self.penalty / self._norm**2) if self.penalty else None

    # --- use ----------------------------------------------------------------------------------------

    def _scaled(self, X: Any) -> Any:
        """Rows scaled as in training: dense, or a sparse matrix of scipy's."""
        check_is_fitted(self)
        if self.columns_ is None:
            rows = typed_rows(self, X, first=False, strict=True)
        else:
            rows = self._typed(self._encoded(X), first=False, strict=True)
        scaled = self._in_ball(rows)
        return scaled.to_scipy() if is_sparse(scaled) else scaled

    def _scores(self, X: Any) -> Array:
        """Return <a, coef> + intercept with every row scaled as in training; shape (rows, outputs)."""
        scaled = self._scaled(X)
        return np.asarray(scaled @ (np.atleast_2d(self.coef_) * self._norm).T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the model, not a run in progress: that holds rows and the noise key."""
        state = {name: held for name, held in super().__getstate__().items() if name not in ("_units", "_turns")}
        if state.get("_run") is not None:
            state["_run"] = "not pickled"
        return state


def open_account(given: Any) -> Account | None:
    """Return an account: itself, or the one in a file."""
    return given if given is None or isinstance(given, Account) else Account(given)


def _refuse(extra: dict[str, Any]) -> None:
    if extra.get("sample_weight") is not None:
        raise InvalidArgument(
            "sample_weight is refused: a weight lets one row count for many, and the noise is made for rows that count "
            "once. Bound the weights and fold them into a loss of your own (dpsco.PerExample)."
        )
    if unknown := sorted(set(extra) - {"sample_weight"}):
        raise TypeError(f"Unexpected arguments: {', '.join(unknown)}.")
