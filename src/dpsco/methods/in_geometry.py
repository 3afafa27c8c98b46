"""Rounds of another method in a geometry that is public before the run: that of an earlier survey, or of public rows.

    b = P a        the rows of the run, turned by a public map (clipping/row_map.py)
    method         any method of clipped rounds, on the rows b, in coordinates u; the model is x = P'u

Guarantee: that of ``later``. P is public before the first row is read, so a contribution c b is a function of one row
and public numbers, and its clip and noise are those of ``later``. An earlier survey of the same people is private by
itself and was paid for then; this run has a budget of its own. Whether P is public is an assumption, which the report
states with the source of P. A map that is known not to be private is refused.
Cost: that of ``later``, and p^2 multiply-adds per row; about 20 p where clipping/folded.py serves the rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.row_map import RowMap
from dpsco.errors import InvalidArgument
from dpsco.methods.method import Method
from dpsco.methods.schedule import Schedule
from dpsco.methods.surveyed import refusal
from dpsco.problem import Box, Everything, L2Ball, Problem
from dpsco.problem.domains import Domain
from dpsco.query import Array, Query, Released

__all__ = ["NOT_PRIVATE", "PUBLIC_ROWS", "InGeometry", "check_source", "mapped_problem", "released_by"]

NOT_PRIVATE, PUBLIC_ROWS, _RELEASED = "not private", "public rows", "released by run "


def released_by(run_id: str, *, private: bool) -> str:
    """Return the source of a geometry that a run released."""
    return f"{_RELEASED}{run_id}" if private else NOT_PRIVATE


def check_source(source: object) -> None:
    """Raise ``InvalidArgument`` unless ``source`` says where a geometry comes from."""
    if not isinstance(source, str) or not (source in (NOT_PRIVATE, PUBLIC_ROWS) or source.startswith(_RELEASED)):
        raise InvalidArgument(
            f"Expected the source of a geometry to be {PUBLIC_ROWS!r}, {NOT_PRIVATE!r} or '{_RELEASED}ID': the report "
            "of a run states it."
        )


@dataclass(frozen=True, kw_only=True)
class InGeometry(Method):
    """Rounds of ``later`` on mapped rows. ``dpsco.plan(..., geometry=...)`` makes one.

    Parameters
    ----------
    map : RowMap
        P. Public before the run.
    later : Method
        A method of clipped rounds, with its hyperparameters in the coordinates of u.
    source : {"public rows", "released by run ID", "not private"}
        Where P comes from.
    clip : float
        That of ``later``: leave it out.
    """

    clip: float = 0.0
    map: RowMap
    later: Method
    source: str

    name: ClassVar[str] = "in-geometry"
    reason: ClassVar[str] = (
        "rows are turned by a map that is assumed to be public before the run; each enters one clipped contribution "
        "after that, and one Gaussian mechanism covers the whole run."
    )

    def __post_init__(self) -> None:
        if not isinstance(self.map, RowMap) or not isinstance(self.later, Method):
            raise InvalidArgument("Expected map to be a RowMap and later a method: dpsco.plan(..., geometry=...).")
        check_source(self.source)
        if self.clip not in (0.0, self.later.clip):
            raise InvalidArgument(f"Expected clip={self.clip} to be left out: it is that of the method.")
        object.__setattr__(self, "clip", self.later.clip)
        super().__post_init__()

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Return the schedule of ``later``, on the problem in the coordinates of u."""
        if budget.private and self.source == NOT_PRIVATE:
            raise InvalidArgument(
                "The geometry is not private: it is that of a run without noise, with a given key or under watch, and "
                "this run would publish it. Take result.geometry of a private run, or dpsco.public_geometry."
            )
        boxed = isinstance(problem.domain, Box) and self.map.diagonal
        refused = refusal(problem, "diagonal" if boxed else self.map.kind)
        columns = problem.dimension + problem.intercept
        if not refused and (self.map.columns != columns or self.map.feature_norm != problem.feature_norm):
            refused = f"the geometry is of {self.map.columns} columns and feature_norm={self.map.feature_norm:g}"
        if refused or (self.map.constant > 0) != problem.intercept:
            raise InvalidArgument(f"No geometry is possible here: {refused or 'it has another intercept'}.")
        if self.later.needs != "clipping" or not self.later.single_epoch:
            raise InvalidArgument(f"method={self.later.name!r} has no rounds of clipped sums of fresh rows.")
        return self.later.schedule(mapped_problem(problem, self.map), n, budget)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return what ``later`` asks of a row."""
        return self.later.gradients_per_row(schedule)

    def steps_in_words(self, schedule: Schedule) -> str:
        """State the steps of ``later``."""
        return f"{self.later.name} in a known geometry: {self.later.steps_in_words(schedule)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the method as JSON holds it: the map and the method behind it."""
        return {"name": self.name, "map": self.map.to_dict(), "later": self.later.to_dict(), "source": self.source}

    def start(self, schedule: Schedule, x0: Array) -> Any:
        """Start at the u_0 that stands for x_0."""
        return self.later.start(schedule, schedule.problem.domain.project(self.map.start(x0)))

    def ask(self, schedule: Schedule, state: Any) -> Query:
        """Ask as ``later`` does."""
        return self.later.ask(schedule, state)

    def tell(self, schedule: Schedule, state: Any, released: Released) -> Any:
        """Step as ``later`` does."""
        return self.later.tell(schedule, state, released)

    def output(self, state: Any) -> Array:
        """Return the model in the problem's own parameters."""
        return self.map.parameters(self.later.output(state))


def mapped_problem(problem: Problem, row_map: RowMap) -> Problem:
    """Return the problem in the coordinates of u: no intercept's column of its own, the domain's set of u."""
    columns = row_map.columns
    domain: Domain = Everything()
    if isinstance(problem.domain, L2Ball):
        domain = row_map.ball(problem.domain.radius)
    elif isinstance(problem.domain, Box):  # x_i = m_i u_i with m_i > 0: exactly a box
        size, sides = columns * problem.loss.outputs, np.tile(row_map.sides, problem.loss.outputs)
        lower, upper = (np.broadcast_to(b, size) / sides for b in (problem.domain.lower, problem.domain.upper))
        domain = Box(tuple(lower.tolist()), tuple(upper.tolist()))
    longest = math.hypot(1.0, row_map.constant) * row_map.norm
    return Problem(loss=problem.loss, domain=domain, dimension=columns, feature_norm=longest)
