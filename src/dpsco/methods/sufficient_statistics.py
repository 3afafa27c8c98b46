"""Sufficient statistics of the squared loss: one round, one release, then algebra (after AdaSSP, Wang 2018).

    S~ = sum_i a_i a_i' + noise,     c~ = sum_i a_i y_i + noise            one joint release, clipping/survey.py
    S~ = V diag(l) V',               r = sigma sqrt(2 p), the spectral size of the noise in S~
    x  = Proj( V (max(l, 0) + ridge)^-1 V' c~ ),     ridge = 0.8 r^2 / (r + max(l_min, 0))

The error of x comes from the noise of c~, from the noise of S~ times x, and from the ridge. Where the noise hides a
direction, the best ridge is about r; where it does not, about r^2 over the direction's size. AdaSSP's own is the bound
sqrt(p log(2 p^2 / 0.05)) sigma less the least eigenvalue: more, where noise hides directions.

Guarantee: one Gaussian release of a bounded sum: mu-GDP, with any rows. Everything behind it is post-processing.
Cost: one pass, one round, p^2 operations per row; p (p + 1) / 2 + p + 2 numbers are released.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.clipping.survey import unpack
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.method import Method, value_of
from dpsco.methods.schedule import Schedule
from dpsco.methods.surveyed import WIDEST, MomentMethod, SurveyedState, moment_clip, moment_of, moment_schedule
from dpsco.parallel import one_blas_thread
from dpsco.problem import Problem, Squared
from dpsco.query import Array, Moment, Released

__all__ = ["SufficientStatistics"]

RIDGE = 0.8
_HEALTH = 0.01


@dataclass(frozen=True, kw_only=True)
class SufficientStatistics(MomentMethod):
    """Least squares from one release of second moments.

    Parameters
    ----------
    clip : float
        Bound on one row's joint contribution, in units of the squared row norm. It follows from the weight: leave it
        out.
    gradient : float
        Weight of a y relative to a a', at most sqrt 2.
    """

    clip: float = 0.0
    gradient: float = 1.0

    name: ClassVar[str] = "sufficient-statistics"
    reason: ClassVar[str] = "each row enters one bounded sum, and one Gaussian mechanism covers it."

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "gradient", positive("gradient", self.gradient, "It weighs a y relative to a a'."))
        put(self, "clip", moment_clip(self.clip, "full", self.gradient, _HEALTH))
        super().__post_init__()

    @classmethod
    def planned(cls, problem: Problem, n: int, budget: Budget, **given: Any) -> Method:
        """Return the method: it has nothing to set by formula."""
        return cls(**given)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give all rows to one round that releases the statistics."""
        if type(problem.loss) is not Squared:
            raise InvalidArgument(
                f"method={self.name!r} solves the squared loss, whose statistics are a a' and a y; the "
                f"{problem.loss.kind} loss has none. Use Squared(label_bound=...), or another method."
            )
        if problem.parameters > WIDEST:
            raise InvalidArgument(
                f"Expected at most {WIDEST:,} parameters for method={self.name!r}, got {problem.parameters:,}: their "
                "square is released. Use a method that releases gradients."
            )
        return moment_schedule(problem, n, budget, self.moment(problem), rows=n)

    def moment(self, problem: Problem) -> Moment:
        """Return what the round asks of each row."""
        return dataclasses.replace(moment_of(problem, "full"), gradient=self.gradient, health=_HEALTH)

    def steps_in_words(self, schedule: Schedule) -> str:
        """State what the ridge follows from."""
        return f"the ridge follows from {schedule.survey_length:,} released numbers"

    def tell(self, schedule: Schedule, state: SurveyedState, released: Released) -> SurveyedState:
        """Solve the ridge regression of the released statistics."""
        value, problem, moment = value_of(state, released), schedule.problem, self.moment(schedule.problem)
        p = problem.parameters
        triangle = p * (p + 1) // 2
        x = _ridge_solution(
            unpack(value[:triangle], p),
            -value[triangle : triangle + p] / moment.omega,
            schedule.most_noise.sigma,
        )
        x[: problem.dimension] /= moment.feature_norm
        x[problem.dimension :] *= moment.constant
        return SurveyedState(state.step + 1, problem.domain.project(x), value)


def _ridge_solution(second: Array, first: Array, sigma: float) -> Array:
    """Return the formula of this module; without noise the pseudo-inverse."""
    p = len(first)
    with one_blas_thread():  # the same release gives the same model
        sizes, directions = np.linalg.eigh(second)
    r = sigma * math.sqrt(2.0 * p)
    sizes = np.maximum(sizes, 0.0)
    ridge = RIDGE * r * r / (r + float(sizes[0])) if r else 1e-12 * float(sizes[-1]) + 1e-300
    return np.asarray(directions @ ((directions.T @ first) / (sizes + ridge)))
