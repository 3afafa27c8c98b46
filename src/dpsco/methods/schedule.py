"""The schedule of a run: rows and noise of every round, worked out once from public numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.accounting.composition import EXACT_GAUSSIAN, Composition
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.problem import Problem
from dpsco.query import Portion
from dpsco.release.calibration import Calibration, Uneven, calibrate, calibrate_uneven
from dpsco.release.mechanisms import Mechanism

__all__ = ["Schedule", "fresh_batch_size", "fresh_portions", "fresh_schedule"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """All that a method needs to run: public, and fixed before the first row is read.

    ``method.schedule(problem, n, budget)`` makes it; ``start``, ``ask`` and ``tell`` are functions of it.
    """

    problem: Problem
    n: int
    budget: Budget
    settings: Mapping[str, float]
    """Every tunable hyperparameter by name: as given, or as the method's formula sets it."""
    calibration: Calibration | Uneven
    mechanism: Mechanism
    batch_size: int = 0
    """Rows per round, where all rounds see as many fresh rows; otherwise ``portions`` decides."""
    portions: Sequence[Portion] | None = None
    """The rows of each round; None for consecutive fresh batches of ``batch_size`` rows."""
    sampling: str = "one pass"
    """Which rows the rounds see, in words for the report."""
    accounting: Composition = EXACT_GAUSSIAN
    participations: int = 1
    """Rounds that one row can be in, where they compose as Gaussian mechanisms."""
    inner_sigma: float = 0.0
    """Standard deviation of the noise inside an objective; 0 for methods that add noise to sums or outputs alone."""
    survey_length: int = 0
    """Numbers that a survey releases; 0 for rounds that release one per parameter."""
    squares: bool = False
    """Whether rounds release the squares of contributions beside their sum (clipping/squares.py)."""

    @property
    def sum_length(self) -> int:
        """Numbers that a round releases."""
        return self.survey_length or self.problem.parameters * (2 if self.squares else 1)

    @property
    def rounds(self) -> int:
        """Rounds of the run: each asks once and releases once."""
        return self.mechanism.horizon

    def size(self, step: int) -> float:
        """Return the public denominator of round ``step``: the rows expected in it."""
        if self.portions is None:
            return self.batch_size
        portion = self.portions[step]
        return portion.rows * portion.rate

    @property
    def mean_size(self) -> int:
        """Rows per round, on average and at least 1."""
        if self.portions is None:
            return self.batch_size
        return max(1, round(sum(map(self.size, range(self.rounds))) / self.rounds))

    @property
    def rows(self) -> int:
        """Rows that the run reads, each counted once."""
        if self.portions is None:
            return self.rounds * self.batch_size
        return max(portion.last for portion in self.portions)

    @property
    def sensitivity(self) -> float:
        """How far one row moves ``C D``, in units of one round's difference."""
        return self.mechanism.sensitivity * math.sqrt(self.participations)

    @property
    def most_noise(self) -> Calibration:
        """The calibration of the round with the most noise."""
        noise = self.calibration
        return noise if isinstance(noise, Calibration) else max(noise.rounds, key=lambda part: part.sigma)

    @property
    def prefix_error(self) -> float:
        """Largest standard deviation, per coordinate, of the noise on a prefix sum of the released values."""
        noise = self.most_noise
        return self.mechanism.max_error * noise.sigma / self.mechanism.sensitivity

    def noise_digest(self) -> str:
        """SHA-256 of the noise: a run may not resume under another fit or calibration."""
        noise = self.calibration
        parts = (noise,) if isinstance(noise, Calibration) else noise.rounds
        per_round = (number for part in parts for number in (part.sigma, part.grid, part.window))
        numbers = (*self.mechanism.errors, *per_round, *((self.inner_sigma,) if self.inner_sigma else ()))
        return hashlib.sha256(",".join(f"{number:.6e}" for number in numbers).encode()).hexdigest()


def fresh_batch_size(rounds: int, batch_size: int, n: int) -> int:
    """Rows per round of ``rounds`` disjoint batches: ``batch_size``, or n // rounds if that is 0."""
    if rounds > n:
        raise InvalidArgument(
            f"Expected rounds={rounds} <= n={n}: every round needs at least one fresh row. Use fewer rounds."
        )
    size = positive_integer("batch_size", batch_size or n // rounds, "It is the public number of rows per round.")
    if size * rounds > n:
        raise InvalidArgument(f"Expected rounds={rounds} times batch_size={size} <= n={n}: each row is used once.")
    return size


def fresh_portions(sizes: Sequence[int]) -> tuple[Portion, ...]:
    """Consecutive batches of the given sizes."""
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    return tuple(map(Portion, edges[:-1], edges[1:]))


def fresh_schedule(
    problem: Problem,
    n: int,
    budget: Budget,
    mechanism: Mechanism,
    *,
    batch_size: int,
    clip: float | Sequence[float],
    settings: Callable[[float], Mapping[str, float]],
) -> Schedule:
    """Return the schedule of disjoint batches, with one clip or with one per round.

    With add-remove a row's round is secret, so one round may hold all n rows.

    Parameters
    ----------
    problem, n, budget
        As in ``Method.schedule``.
    mechanism : Mechanism
        The noise of a run.
    batch_size : int
        Rows per round.
    clip : float or sequence of float
        Bound on one row's contribution.
    settings : callable
        Returns every tunable hyperparameter by name, given the sigma of round 0.

    Returns
    -------
    Schedule
    """
    rows, p = n if budget.adjacency == "add-remove" else batch_size, problem.parameters
    noise: Calibration | Uneven
    if isinstance(clip, float):
        noise = calibrate(budget, mechanism, clip=clip, dimension=p, rows=rows)
    else:
        noise = calibrate_uneven(budget, mechanism, clips=clip, dimension=p, rows=rows)
    return Schedule(
        problem=problem,
        n=n,
        budget=budget,
        settings=settings(noise.at(0).sigma),
        calibration=noise,
        mechanism=mechanism,
        batch_size=batch_size,
    )
