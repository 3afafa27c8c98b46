"""What a method is: rows it sees, noise it pays for, and four pure functions.

    start(plan, x0) -> state        ask(plan, state) -> Query        tell(plan, state, released) -> state
    schedule(plan)  -> Schedule     answer(plan, query, batch, rows) -> Clipped        output(state) -> x

``ask`` and ``tell`` are pure functions of the plan and an explicit state. ``answer`` is the oracle's clipped sum,
except for methods whose noise goes on an output: they run their own inner loop on the rows of a phase, and the loop's
result is the sensitive value that crosses ``release``. The schedule is public and fixed before the first row is read.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dpsco.errors import InvalidArgument, LedgerError, positive
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss, Domain, Product
from dpsco.problem.domains import DOMAINS
from dpsco.problem.losses import LOSSES
from dpsco.query import Array, Batch, Clipped, Portion, Query, Released
from dpsco.release.calibration import Calibration, Uneven, calibrate
from dpsco.release.mechanisms import Independent, Mechanism

__all__ = ["Algorithm", "Convex", "Phase", "RowAccess", "Schedule", "fresh", "independent", "reach"]

GAUSSIAN = "exact Gaussian"
"""The accounting of a run that is one Gaussian mechanism: mu-GDP at every delta."""


class Phase(Protocol):
    """Rows of one phase, for an inner loop: SENSITIVE. Every gradient taken is counted."""

    rows: int

    def mean_gradient(self, x: Array) -> Array: ...
    def row_gradient(self, row: int, *points: Array) -> tuple[Array, ...]: ...
    def uncounted(self) -> None: ...


class RowAccess(Protocol):
    """What may look at rows: the oracle, and phases of rows for inner loops. Made by the loop, which counts there."""

    def answer(self, query: Query, batch: Batch) -> Clipped: ...
    def phase(self, batch: Batch, rows: int, clip: float) -> Phase: ...
    def indices(self, step: int, part: int, rows: int, size: int) -> Any: ...


@dataclass(frozen=True, eq=False)
class Schedule:
    """Rows and noise of a run, round by round; all of it public."""

    calibration: Calibration | Uneven
    mechanism: Mechanism
    portions: Sequence[Portion] | None = None
    """Rows each round sees; None for the plan's own: T fresh batches of B rows."""
    words: str = ""
    """What the rounds see, for the report."""
    accounting: str = GAUSSIAN
    """How epsilon was found; other words than ``GAUSSIAN`` mean that it holds at the budget's delta alone."""
    participations: int = 1
    """Rounds that one row can be in, where they compose as Gaussians."""

    @property
    def rounds(self) -> int:
        return self.mechanism.horizon

    def size(self, plan: Plan, step: int) -> float:
        """The public denominator of round ``step``: rows expected in it."""
        if self.portions is None:
            return plan.batch_size
        portion = self.portions[step]
        return portion.rows * portion.rate

    def mean_size(self, plan: Plan) -> int:
        """Rows of a round, about."""
        if self.portions is None:
            return plan.batch_size
        return max(1, round(sum(self.size(plan, step) for step in range(self.rounds)) / self.rounds))

    def rows(self, plan: Plan) -> int:
        """Rows that the run reads, each counted once."""
        if self.portions is None:
            return plan.rounds * plan.batch_size
        return max(portion.last for portion in self.portions)

    def noise_digest(self) -> str:
        """What the noise is made of: another fit or calibration of it may not resume what this one began."""
        paid = self.calibration
        parts = (paid,) if isinstance(paid, Calibration) else paid.rounds
        numbers = (
            *self.mechanism.errors,
            *(number for part in parts for number in (part.sigma, part.grid, part.window)),
        )
        return hashlib.sha256(",".join(f"{number:.6e}" for number in numbers).encode()).hexdigest()

    @property
    def sensitivity(self) -> float:
        """How far one row moves ``C D``, in units of a round's difference."""
        return self.mechanism.sensitivity * math.sqrt(self.participations)

    def worst(self) -> Calibration:
        """The calibration of the round with the most noise, for the report."""
        paid = self.calibration
        return paid if isinstance(paid, Calibration) else max(paid.rounds, key=lambda part: part.sigma)


class Algorithm(abc.ABC):
    """A method. Subclasses are frozen dataclasses whose fields are its options; a knob left None is set by formula."""

    name: ClassVar[str]
    needs: ClassVar[str] = "clipping"
    """What privacy rests on: "clipping" alone, or "convexity" of the loss."""
    releases: ClassVar[str] = "all iterates"
    """What may be published: "all iterates", "phase outputs" or "last iterate"."""
    single_epoch: ClassVar[bool] = True
    knobs: ClassVar[tuple[str, ...]] = ()
    """Positive scalar fields that a tuner may scale."""
    gradients_per_example: ClassVar[int] = 1
    reason: ClassVar[str]
    """Why a run is private, in one sentence."""

    def __post_init__(self) -> None:
        for name in self.knobs:
            if getattr(self, name) is not None:
                value = positive(name, getattr(self, name), "It scales the steps; None lets the formula choose.")
                object.__setattr__(self, name, value)

    # --- public description -------------------------------------------------------------------

    def defaults(self, plan: Plan) -> dict[str, float]:
        """The formula's value of every knob."""
        return dict(self._by_formula(plan))

    def schedule(self, plan: Plan) -> Schedule:
        """Rows and noise of a run of ``plan``; worked out once."""
        schedule: Schedule = _remembered(plan, ("schedule", self), self._schedule)
        return schedule

    def check(self, plan: Plan, *, own_oracle: bool) -> None:  # noqa: B027, clipping alone refuses nothing
        """Refuse a plan or an oracle for which the method's proof fails."""

    def assumptions(self) -> tuple[str, ...]:
        """What the proof of privacy assumes of the loss."""
        return ("no assumption on the loss or on the distribution of the rows: privacy rests on clipping",)

    def gradients_each(self, plan: Plan) -> int:
        """Gradients that one row is asked for, at most (about, if sampled)."""
        return self.gradients_per_example

    def describe(self) -> Any:
        """The method and its options for a checkpoint and a noise key: the name alone, or with what was set."""
        changed = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        }
        return {"name": self.name, **changed} if changed else self.name

    # --- the method ---------------------------------------------------------------------------

    @abc.abstractmethod
    def start(self, plan: Plan, x0: Array) -> Any: ...

    @abc.abstractmethod
    def ask(self, plan: Plan, state: Any) -> Query: ...

    def answer(self, plan: Plan, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        return rows.answer(query, batch)

    @abc.abstractmethod
    def tell(self, plan: Plan, state: Any, released: Released) -> Any: ...

    @abc.abstractmethod
    def output(self, state: Any) -> Array: ...

    # --- for subclasses -----------------------------------------------------------------------

    def _formulas(self, plan: Plan) -> dict[str, float]:
        return {}

    def _by_formula(self, plan: Plan) -> dict[str, float]:
        formulas: dict[str, float] = _remembered(plan, ("formulas", self), self._formulas)
        return formulas

    @abc.abstractmethod
    def _schedule(self, plan: Plan) -> Schedule: ...

    def _knob(self, plan: Plan, name: str) -> float:
        """A knob as set, or as the formula says."""
        value = getattr(self, name)
        return self._by_formula(plan)[name] if value is None else float(value)

    def _query(self, plan: Plan, step: int, points: tuple[Array, ...], weights: tuple[float, ...] = (1.0,)) -> Query:
        """The query of round ``step``, with the clip and grid its noise was calibrated for."""
        schedule = self.schedule(plan)
        paid = schedule.calibration.at(step)
        size = max(1, round(schedule.size(plan, step)))
        return Query(step, points, weights, clip=paid.clip, size=size, grid=paid.grid, rowwise=paid.rowwise)

    def _mean(self, plan: Plan, state: Any, released: Released) -> Array:
        """The released sum of the state's round over the public number of rows."""
        return told(state, released) / self.schedule(plan).size(plan, state.step)


def told(state: Any, released: Released) -> Array:
    """The released value that ``state`` goes on from."""
    if not isinstance(released, Released) or released.step != state.step:
        raise LedgerError(f"Round {state.step} goes on from the Released of that round and from nothing else.")
    return released.value


def _remembered(plan: Plan, what: tuple[str, Algorithm], make: Callable[[Plan], Any]) -> Any:
    """``make(plan)``, once for this very plan: a schedule is asked for in every round and may need an accountant.

    Kept with the plan, not by its value: noise is that of the calibration and mechanism this plan holds.
    """
    kept = plan.__dict__.setdefault("_for_algorithms", {})
    if what not in kept:
        kept[what] = make(plan)
    return kept[what]


class Convex(Algorithm):
    """A method whose privacy rests on convexity: every row's loss must be convex, L-Lipschitz and M-smooth.

    The loop shortens rows to ``feature_norm`` for such a method, so that L and M hold for every row whatever the data,
    and computes in float64. A clip C below L keeps the loss of a scalar linear model convex, C-Lipschitz and M-smooth:
    it clamps the derivative phi'(m), which is non-decreasing and stays so. The softmax loss has no such argument.
    """

    needs = "convexity"

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        problem = plan.problem
        if own_oracle or type(problem.loss) is CustomLoss or type(problem.loss) not in LOSSES.values():
            raise InvalidArgument(
                f"algorithm={self.name!r} is private for convex losses only, which the library cannot know of your own "
                "oracle or CustomLoss. Use one of dpsco's losses, or a method that needs clipping alone."
            )
        if not _known(problem.domain):
            raise InvalidArgument(
                f"algorithm={self.name!r} is private if projections push no two points apart, which the library cannot "
                "know of a domain of your own. Use one of dpsco's domains, or a method that needs clipping alone."
            )
        if not math.isfinite(problem.diameter):
            raise InvalidArgument(
                f"algorithm={self.name!r} needs a bounded domain, such as L2Ball(radius=10.0): its step and its noise "
                "are worked out from the diameter."
            )
        if problem.loss.outputs > 1 and plan.clip < problem.lipschitz:
            raise InvalidArgument(
                f"Expected clip={plan.clip:.6g} >= L={problem.lipschitz:.6g} for algorithm={self.name!r}: its privacy "
                f"rests on convexity, and clipping breaks that of the {problem.loss.kind} loss."
            )
        if plan.budget.adjacency == "add-remove":
            raise InvalidArgument(
                f"algorithm={self.name!r} places rows by position, which adjacency='add-remove' does not allow. Plan "
                "with 'zero-out' or 'replace'."
            )
        self.schedule(plan)

    def assumptions(self) -> tuple[str, ...]:
        return (
            "the loss is convex, Lipschitz and smooth in every row: true of this loss for rows within feature_norm, to "
            "which longer ones were shortened",
        )

    @staticmethod
    def _lipschitz(plan: Plan) -> float:
        """Lipschitz constant of the (clipped) loss."""
        return min(plan.clip, plan.problem.lipschitz)

    @staticmethod
    def _largest_step(plan: Plan) -> float:
        """2/M, a hair less: gradient steps up to it are non-expansive."""
        return 2.0 / plan.problem.smoothness * (1.0 - 1e-9)

    def _non_expansive(self, plan: Plan, step: float, allowed: float) -> None:
        if step > allowed:
            raise InvalidArgument(
                f"Expected step={step:.6g} <= {allowed:.6g} for algorithm={self.name!r}: beyond 2/M a gradient step "
                "may push two runs apart, and its privacy proof fails."
            )


def _known(domain: Domain) -> bool:
    """Whether the domain, and every part of a product, is one of the library's: a class derived from one is not."""
    parts = domain.parts if isinstance(domain, Product) else ()
    return type(domain) in DOMAINS.values() and all(map(_known, parts))


# --- schedules ------------------------------------------------------------------------------------


def fresh(sizes: Sequence[int]) -> tuple[Portion, ...]:
    """Consecutive batches of the given sizes."""
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    return tuple(map(Portion, edges[:-1], edges[1:]))


def independent(plan: Plan, clip: float | None = None) -> Schedule:
    """The plan's batches with independent noise: each row is in one round, so nothing composes."""
    mechanism = Independent(plan.rounds)
    rows = plan.n if plan.budget.adjacency == "add-remove" else plan.batch_size
    bound = plan.clip if clip is None else clip
    paid = calibrate(plan.budget, mechanism, clip=bound, dimension=plan.problem.parameters, rows=rows)
    return Schedule(paid, mechanism)


# --- numbers that formulas share ------------------------------------------------------------------


def reach(plan: Plan) -> float:
    """D_0: how far the minimiser may be from the start, half the diameter; 1 on an unbounded domain, as a guess."""
    diameter = plan.problem.diameter
    return diameter / 2 if math.isfinite(diameter) else 1.0


def bound(plan: Plan) -> float:
    """L as the run sees it: no row's gradient counts for more."""
    return min(plan.clip, _lipschitz(plan))


def _lipschitz(plan: Plan) -> float:
    try:
        return plan.problem.lipschitz
    except InvalidArgument:  # the squared loss on an unbounded domain has none
        return plan.clip if math.isfinite(plan.clip) else 1.0
