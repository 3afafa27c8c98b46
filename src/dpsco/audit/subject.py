"""What is audited: a plan with an oracle, or an estimator; either trains on rows through the library's own path."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.audit.input_forms import ARRAY, Classes, in_form
from dpsco.clipping import Oracle, PerExample
from dpsco.errors import InvalidArgument
from dpsco.methods.schedule import Schedule
from dpsco.methods.surveyed import Surveyed
from dpsco.planning.plan import Plan
from dpsco.planning.second_stage import second_stage
from dpsco.problem import CustomLoss
from dpsco.query import Array, Query
from dpsco.release.calibration import Calibration
from dpsco.rows.row_norm import unit_rows
from dpsco.rows.stream import stream
from dpsco.run import train
from dpsco.run.train import library_oracle

Ids = NDArray[np.int64]

__all__ = ["Ids", "Subject", "classes_of", "estimator_subject", "first_query", "plan_subject", "schedules"]

_FIXED = bytes(range(32))


@dataclass(frozen=True)
class Subject:
    """``run(features, labels, ids, fixed, form)`` trains once and returns the bytes of all it shows.

    ``fixed`` repeats whatever the run draws (noise, order of rows); ids are the rows' own, for add-remove and units.
    ``form`` is the container that rows are handed over in (forms.py). Labels are numbers; of classes, 0, 1, ...
    """

    name: str
    plan: Plan
    run: Callable[..., bytes]
    oracle: Oracle
    """What answers queries in that run; of a surveyed run, the survey's."""
    scaled: Callable[[Array], Array]
    """Rows as the oracle sees them."""
    own_oracle: bool
    rows_per_unit: int | None = None
    """The cap on the rows of one id; None if rows have no ids."""


def first_query(plan: Plan) -> Query:
    """Return what the first round asks of each row, at the domain's point next to 0."""
    schedule = plan.schedule
    x0 = plan.problem.domain.project(np.zeros(plan.problem.parameters))
    return plan.method.ask(schedule, plan.method.start(schedule, x0))


def schedules(plan: Plan, released: Sequence[Array]) -> list[Schedule]:
    """Return the schedule of each stage of a run that released these values, in order: two for a surveyed plan.

    Returns none if the run did not come to its end.
    """
    found = [plan.schedule]
    if isinstance(plan.method, Surveyed) and released:
        found.append(second_stage(plan, released[0]).plan.schedule)
    return found if sum(schedule.rounds for schedule in found) == len(released) else []


def plan_subject(plan: Plan, oracle: Any = None) -> Subject:
    """``plan`` with the library's oracle or the caller's: one with ``answer``, or a gradient function of one row."""
    if not plan.budget.private:
        raise InvalidArgument("Expected a plan with a finite epsilon: without noise there is no guarantee to audit.")
    fresh = plan.schedule.portions is None and isinstance(plan.schedule.calibration, Calibration)
    if not fresh or plan.method.needs == "convexity":
        raise InvalidArgument(
            f"Expected a plan whose rounds see fresh batches under one clip; method={plan.method.name!r} has others, "
            "and the audit does not know their worst pair."
        )
    own = oracle is not None
    name = f"a plan ({plan.problem.loss.kind} loss, {plan.rounds} rounds of {plan.batch_size} rows)"
    if oracle is None:
        if isinstance(plan.problem.loss, CustomLoss):
            raise InvalidArgument("A plan with a CustomLoss has no oracle of its own: pass the oracle to audit.")
        oracle = library_oracle(plan)
    else:
        label = getattr(oracle, "__qualname__", None) or type(oracle).__name__
        kind = "oracle" if hasattr(oracle, "answer") else "gradient function"
        name = f"the {kind} {label!r} under {name}"
        oracle = oracle if hasattr(oracle, "answer") else PerExample(oracle)
    by_id = plan.budget.adjacency == "add-remove"

    def run(features: Array, labels: Array, ids: Ids, fixed: bool, form: str = ARRAY) -> bytes:
        width = features.shape[1]  # a list does not state it
        features, labels = in_form(form, features, labels)
        rows = stream(features, labels, ids=ids.tolist() if by_id else None, non_finite="zero", width=width)
        result = train(plan, rows, oracle=oracle if own else None, key=_FIXED if fixed else None)
        return _visible(result.report) + result.model.coef.tobytes() + repr(result.trace).encode()

    return Subject(name, plan, run, oracle, lambda rows: rows, own)


def estimator_subject(estimator: Any, features: Array, labels: Array, classes: Classes | None = None) -> Subject:
    """Audit an estimator of ``dpsco`` with its settings; rows that are not valid count as zero rows.

    ``classes`` turns labels 0, 1, ... into the estimator's own; None for a regression, or if they are these numbers.
    """
    from sklearn.base import clone

    if estimator.random_state is not None:
        raise InvalidArgument(
            "Expected an estimator without random_state: whoever knows it can remove the noise, so there is no "
            "guarantee to audit. Leave it out; the audit draws and repeats noise by itself."
        )
    cap = estimator.max_rows_per_unit

    # A row must not decide whether a fit succeeds, canaries must stay where they are put, and an audit spends nothing.
    settings = {"invalid_rows": "zero", "shuffle": False, "account": None}

    def fitted(x: Array, y: Array, ids: Ids, seed: int | None, form: str = ARRAY) -> Any:
        rows, values = in_form(form, x, y if classes is None else classes.decode(y))
        own = {} if cap is None else {"unit": ids}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = clone(estimator).set_params(**settings, random_state=seed, n_features=x.shape[1])
            return made.fit(rows, values, **own)

    model = fitted(features, labels, np.arange(len(labels)), 0)
    plan: Plan = model.plan_
    if not plan.budget.private:
        raise InvalidArgument("Expected an estimator with a finite epsilon: without noise there is no guarantee.")
    if plan.method.needs == "convexity":
        raise InvalidArgument(
            f"Expected a run whose noise is on sums; method={plan.method.name!r} has it inside an objective, and the "
            "audit does not know its worst pair. Audit the estimator with solver='one-pass'."
        )

    def run(x: Array, y: Array, ids: Ids, fixed: bool, form: str = ARRAY) -> bytes:
        other = fitted(x, y, ids, 0 if fixed else None, form)
        return _visible(other.privacy_) + other.coef_.tobytes() + np.asarray(other.intercept_).tobytes()

    name = f"{type(estimator).__name__} ({plan.rounds} rounds of {plan.batch_size} rows)"
    norm = float(model._norm)
    oracle = library_oracle(plan)
    return Subject(name, plan, run, oracle, lambda rows: np.asarray(unit_rows(rows, norm)), False, cap)


def classes_of(estimator: Any, labels: Any) -> Classes | None:
    """Return the classes that a classifier declares, else those of ``labels``; None for a regression."""
    if not hasattr(estimator, "classes"):
        return None
    if estimator.classes is not None:
        return Classes(estimator.classes)
    try:
        return Classes(np.unique(labels[~_missing(labels)]))
    except TypeError:
        raise InvalidArgument(
            "The labels of data are of several kinds and have no order. Declare the classes of the estimator: "
            "classes=[...]."
        ) from None


def _missing(labels: Any) -> Any:
    return np.array([label != label or label is None for label in labels], dtype=bool)


def _visible(report: Any) -> bytes:
    return repr(dataclasses.replace(report, run_id="")).encode()
