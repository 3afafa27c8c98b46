"""What a method is: hyperparameters of its own, a schedule, and four pure functions.

    schedule(problem, n, budget) -> Schedule        rows and noise of every round, public
    start(schedule, x0) -> state                    ask(schedule, state) -> Query
    tell(schedule, state, released) -> state        output(state) -> x
    answer(schedule, query, batch, rows) -> Clipped

``ask`` and ``tell`` are pure functions of the schedule and an explicit state. ``answer`` is the oracle's clipped sum,
except for methods whose noise goes on an output: they run an inner loop on the rows of a phase, and the result of that
loop is the sensitive value that crosses ``release``.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, LedgerError, positive, positive_integer
from dpsco.json_files import jsonable
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Array, Batch, Clipped, Query, Released

__all__ = [
    "Method",
    "Passes",
    "Phase",
    "RoundMethod",
    "RowAccess",
    "gradient_bound",
    "mean_of",
    "no_positions",
    "reach",
    "value_of",
]

_CLIP_RANGE = (1e-100, 1e100)


class Phase(Protocol):
    """Rows of one phase, for an inner loop: SENSITIVE. Every gradient taken is counted."""

    rows: int

    def mean_gradient(self, x: Array) -> Array:
        """Return the mean of all rows' clipped gradients at ``x``."""

    def row_gradient(self, row: int, *points: Array) -> tuple[Array, ...]:
        """Return the clipped gradient of one row at each of ``points``."""

    def uncounted(self) -> None:
        """Count no gradient from here on: how many follow depends on the rows."""


class Passes(Protocol):
    """Rows of one objective, for a solver: SENSITIVE."""

    rows: int

    def derivatives(self, x: Array, damping: float | None) -> tuple[Array, Array | None]:
        """Return the gradient of the rows' sum at ``x``, and its damped Hessian unless ``damping`` is None."""


class RowAccess(Protocol):
    """What may look at rows: the oracle, and rows for inner loops. ``Run`` makes it and counts there."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Return the oracle's answer."""

    def phase(self, batch: Batch, rows: int, clip: float) -> Phase:
        """Return the ``rows`` rows of a phase, for an inner loop."""

    def passes(self, batch: Batch, rows: int, clip: float, constant: float, counted: int) -> Passes:
        """Return the rows of an objective, for a solver that passes over them."""

    def indices(self, step: int, part: int, rows: int, size: int) -> Any:
        """Return ``size`` uniform positions below ``rows``, for a randomised solver."""

    def normals(self, step: int, size: int) -> Array:
        """Return ``size`` standard normals from the key of the run: SECRET."""


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC):
    """A training method with its hyperparameters. A tunable one left None is set by the method's formula.

    Parameters
    ----------
    clip : float
        Bound on what one row contributes to a sum. ``math.inf`` is allowed only with ``Budget(epsilon=math.inf)``.
    """

    clip: float

    name: ClassVar[str]
    needs: ClassVar[str] = "clipping"
    """What privacy rests on: "clipping" alone, or "convexity" of the loss."""
    releases: ClassVar[str] = "all iterates"
    """What may be published: "all iterates", "phase outputs" or "last iterate"."""
    single_epoch: ClassVar[bool] = True
    tunable: ClassVar[tuple[str, ...]] = ()
    """Positive hyperparameters that have a formula and that a tuner may scale."""
    reason: ClassVar[str]
    """Why a run is private, in one sentence."""
    assumptions: ClassVar[tuple[str, ...]] = (
        "no assumption on the loss or on the distribution of the rows: privacy rests on clipping",
    )
    """What the proof of privacy assumes of the loss."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "clip", positive("clip", self.clip, "It bounds what one row contributes to a sum.", infinite=True))
        if math.isfinite(self.clip) and not _CLIP_RANGE[0] <= self.clip <= _CLIP_RANGE[1]:
            raise InvalidArgument(
                f"Expected clip={self.clip} between {_CLIP_RANGE[0]} and {_CLIP_RANGE[1]}. Rescale the data."
            )
        for name in self.tunable:
            if getattr(self, name) is not None:
                why = "It scales the steps; None lets the formula choose."
                put(self, name, positive(name, getattr(self, name), why))

    # --- public description -------------------------------------------------------------------

    @abc.abstractmethod
    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Work out rows and noise of a run.

        Raises
        ------
        InvalidArgument
            If the method's proof does not cover the problem or the budget.
        """

    def defaults(self, problem: Problem, n: int, budget: Budget) -> dict[str, float]:
        """Return the formula's value of every tunable hyperparameter."""
        unset: dict[str, Any] = dict.fromkeys(self.tunable)
        plain = dataclasses.replace(self, **unset)
        settings = plain.schedule(problem, n, budget).settings
        return {name: settings[name] for name in self.tunable}

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Gradients that one row is asked for, at most; about, if rows are sampled."""
        return 1

    def guarantee_in_words(self, schedule: Schedule) -> str:
        """Return what makes the run private, for ``plan.explain()``."""
        noise = schedule.most_noise
        return (
            f"Each row's contribution is clipped to {self.clip:.6g}; the {schedule.mechanism.name!r} mechanism adds "
            f"Gaussian noise of standard deviation {noise.sigma:.4g} per coordinate to each draw, at most "
            f"{schedule.prefix_error:.4g} on any running sum, before the division by the public batch size."
        )

    def steps_in_words(self, schedule: Schedule) -> str:
        """Return the step sizes, for ``plan.explain()``."""
        return ", ".join(f"{name} = {schedule.settings[name]:.6g}" for name in self.tunable)

    def to_dict(self) -> dict[str, Any]:
        """Return the method as JSON holds it: its name and all its hyperparameters."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain: dict[str, Any] = jsonable({"name": self.name, **fields})
        return plain

    @classmethod
    def planned(cls, problem: Problem, n: int, budget: Budget, **given: Any) -> Method:
        """Return the method with every hyperparameter that is not ``given`` set by formula."""
        clip = problem.lipschitz if budget.private else math.inf
        method = cls(**{"clip": clip, **given})
        missing = [name for name in cls.tunable if getattr(method, name) is None]
        defaults = method.defaults(problem, n, budget)
        return dataclasses.replace(method, **{name: defaults[name] for name in missing})

    # --- the method ---------------------------------------------------------------------------

    @abc.abstractmethod
    def start(self, schedule: Schedule, x0: Array) -> Any:
        """Return the state before round 0."""

    @abc.abstractmethod
    def ask(self, schedule: Schedule, state: Any) -> Query:
        """Return what the next round asks of each of its rows."""

    def answer(self, schedule: Schedule, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        """Return the sensitive answer of the rows of ``batch``."""
        return rows.answer(query, batch)

    @abc.abstractmethod
    def tell(self, schedule: Schedule, state: Any, released: Released) -> Any:
        """Return the state after the round whose released sum is given."""

    def output(self, state: Any) -> Array:
        """Return the model that the state stands for: its newest iterate, unless the method says otherwise."""
        x: Array = state.x
        return x

    # --- for subclasses -----------------------------------------------------------------------

    def _query(
        self, schedule: Schedule, step: int, points: tuple[Array, ...], weights: tuple[float, ...] = (1.0,)
    ) -> Query:
        """Return the query of round ``step``, with the clip and grid its noise was calibrated for."""
        noise = schedule.calibration.at(step)
        size = max(1, round(schedule.size(step)))
        return Query(step, points, weights, clip=noise.clip, size=size, grid=noise.grid, rowwise=noise.rowwise)

    def _setting(self, name: str, formula: float) -> dict[str, float]:
        """Return a tunable hyperparameter as given, or as the formula says."""
        given = getattr(self, name)
        return {name: formula if given is None else float(given)}


@dataclass(frozen=True, kw_only=True)
class RoundMethod(Method):
    """A method that is told how many rounds to take.

    Parameters
    ----------
    rounds : int
        Number of rounds T.
    """

    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        rounds = positive_integer("rounds", self.rounds, "It is the number of rounds T.")
        object.__setattr__(self, "rounds", rounds)

    @classmethod
    def planned(cls, problem: Problem, n: int, budget: Budget, **given: Any) -> Method:
        """Return the method with every hyperparameter that is not ``given`` set by formula, rounds included."""
        return super().planned(problem, n, budget, **{"rounds": cls._usual_rounds(n), **given})

    @classmethod
    def _usual_rounds(cls, n: int) -> int:
        return max(1, math.isqrt(n))


def value_of(state: Any, released: Released) -> Array:
    """Return the released value of the state's round; refuses any other."""
    if not isinstance(released, Released) or released.step != state.step:
        raise LedgerError(f"Round {state.step} goes on from the Released of that round and from nothing else.")
    return released.value


def mean_of(schedule: Schedule, state: Any, released: Released) -> Array:
    """Return the released sum of the state's round over the public number of rows."""
    return value_of(state, released) / schedule.size(state.step)


# --- numbers that formulas share ------------------------------------------------------------------


def reach(problem: Problem) -> float:
    """D_0: how far the minimiser may be from the start, half the diameter; 1 on an unbounded domain, as a guess."""
    return problem.diameter / 2 if math.isfinite(problem.diameter) else 1.0


def gradient_bound(problem: Problem, clip: float) -> float:
    """L as the run sees it: no row's gradient counts for more."""
    try:
        return min(clip, problem.lipschitz)
    except InvalidArgument:  # the squared loss on an unbounded domain has none
        return clip if math.isfinite(clip) else 1.0


def no_positions(name: str, budget: Budget) -> None:
    """Refuse add-remove for a method whose rounds see rows by position."""
    if budget.adjacency == "add-remove":
        raise InvalidArgument(
            f"method={name!r} sees rows by position, which adjacency='add-remove' does not allow. Plan with "
            "'zero-out', which has the same noise."
        )
