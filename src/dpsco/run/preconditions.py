"""What is settled before a run reads its first row: where it starts, what it may claim, and which uses it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from dpsco.clipping import CompiledOracle, CompiledSurveyOracle, LinearOracle, MappedOracle, Oracle, SurveyOracle
from dpsco.errors import AccountError, InvalidArgument
from dpsco.methods import InGeometry, Surveyed
from dpsco.planning.plan import Plan
from dpsco.query import Array
from dpsco.run.facts import Clipping, Facts
from dpsco.run.result import Model

__all__ = ["capped_facts", "check_charged", "check_use", "starting_point", "true_facts"]


def starting_point(plan: Plan, start: ArrayLike | Model | None) -> Array:
    """x_0, projected into the domain; 0 unless given."""
    if start is not None and isinstance(plan.method, Surveyed):
        raise InvalidArgument("The survey decides where the later rounds start. Leave start out.")
    size = plan.problem.parameters
    if isinstance(start, Model):
        start = start.parameters(plan.problem)
    x0 = np.zeros(size) if start is None else np.array(start, dtype=np.float64).ravel()
    if x0.size != size or not np.all(np.isfinite(x0)):
        raise InvalidArgument(f"Expected start to be {size} finite numbers, got {x0.size}.")
    return plan.problem.domain.project(x0)


def capped_facts(stated: Facts | None, cap: tuple[int, str | None] | None) -> Facts:
    """Return the facts with the cap on the rows of one id that the rows themselves come with.

    Raises
    ------
    InvalidArgument
        If another cap is stated: nobody would keep it.
    """
    stated, (limit, column) = stated or Facts(), cap or (None, None)
    if (stated.max_rows_per_unit, stated.unit_column) not in ((None, None), (limit, column)):
        raise InvalidArgument(
            f"Expected facts without max_rows_per_unit={stated.max_rows_per_unit} and "
            f"unit_column={stated.unit_column!r}: these rows come with max_rows_per_unit={limit} in the column "
            f"{column!r}, and nothing else counts them. State the cap where the ids are: FileRows(unit=..., "
            "max_rows_per_unit=...), or an estimator."
        )
    return dataclasses.replace(stated, max_rows_per_unit=limit, unit_column=column)


def true_facts(plan: Plan, oracle: Oracle | None, stated: Facts | None) -> Facts:
    """Return the facts of a run: those stated, which may claim no more than is true of its plan and oracle."""
    inner = oracle.inner if isinstance(oracle, MappedOracle) else oracle
    exact = type(inner) in (LinearOracle, CompiledOracle, SurveyOracle, CompiledSurveyOracle)
    own_slope = getattr(inner, "slope", None) is not None  # in place of the loss's derivative
    of_library = exact and not own_slope and getattr(inner, "loss", None) == plan.problem.loss
    stated = stated or Facts()
    # Workers of a cluster run the library's oracles, and say so; nothing else clips for the library elsewhere.
    if stated.clipping is None or (oracle is not None and stated.clipping is Clipping.LIBRARY):
        stated = dataclasses.replace(stated, clipping=Clipping.LIBRARY if of_library else Clipping.CALLER)
    whole, part = stated.budget or plan.budget, plan.budget
    if stated.max_rows_per_unit is not None and part.private and stated.max_rows_per_unit > part.records:
        raise InvalidArgument(
            f"Up to max_rows_per_unit={stated.max_rows_per_unit} rows of one id count, and the plan's noise covers "
            f"{part.records} at once. Plan with Budget(..., records={stated.max_rows_per_unit})."
        )
    same = (whole.private, whole.adjacency, whole.records) == (part.private, part.adjacency, part.records)
    if not same or whole.mu < part.mu:
        raise InvalidArgument(
            f"Expected facts.budget (epsilon={whole.epsilon:.6g}) to cover the plan's budget "
            f"(epsilon={part.epsilon:.6g}): the same adjacency and records, and at least its mu. A report cannot "
            "claim more than the noise gives."
        )
    return stated


def check_use(plan: Plan, facts: Facts, *, elsewhere: bool, checkpoint: object, resume: bool) -> None:
    """Refuse what the guarantee of the method does not cover."""
    if resume and checkpoint is None:
        raise InvalidArgument("resume=True needs checkpoint=FOLDER: there is nothing to resume from.")
    method, portions = plan.method, plan.schedule.portions
    if (plan.schedule.survey_length or isinstance(method, InGeometry)) and facts.clipping is Clipping.CALLER:
        raise InvalidArgument(
            "Second moments are summed, and rows are mapped, by the library's own oracles. Plan with survey='none', "
            "without a geometry, or with another method, for an oracle of your own."
        )
    if method.needs == "convexity" and (elsewhere or facts.clipping is not Clipping.LIBRARY):
        raise InvalidArgument(
            f"method={method.name!r} is private for convex losses only, which the library cannot know of an oracle "
            "that is not its own. Use a method that needs clipping alone."
        )
    if elsewhere and portions is not None:
        raise InvalidArgument(
            f"method={method.name!r} decides by itself how many rows each round sees, and rows that are elsewhere can "
            "only be cut into fresh batches of one size. Use dpsco.train on stream(X, y)."
        )
    if method.releases == "last iterate" and checkpoint is not None:
        raise InvalidArgument(
            f"method={method.name!r} may show its last iterate and nothing before it, and a checkpoint holds the "
            "releases of every round. Leave checkpoint out."
        )


def check_charged(plan: Plan, *, private: bool) -> None:
    """Raise AccountError unless a run of ``plan`` can be charged to an account."""
    if not private:
        raise AccountError(
            "A run with a given key, or one that is watched, is not private and cannot be charged to an account. "
            "Leave the key out."
        )
    if not plan.schedule.accounting.gaussian:
        raise AccountError(
            f"An account adds up Gaussian-DP parameters, and method={plan.method.name!r} has none: its epsilon holds "
            "at one delta. Keep its runs out of the account and compose them with their accountant."
        )
