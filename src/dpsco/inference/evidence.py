"""What a surveyed run released, as inference reads it: the survey, and the points and sums of the later rounds.

With B rows per round, round t asked each fresh row for eta_t grad f(x_t) - eta_{t-1} grad f(x_{t-1}). Near the
minimiser x*, with the Hessian H in the coordinates of u, the released mean of round t is

    d_t = H (v_t - x*) + sampling_t + noise_t,       v_t = eta_t x_t - eta_{t-1} x_{t-1},

where the rounds' sampling errors are independent and the noise has the mechanism's covariance, known exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.algorithm_1 import eta
from dpsco.errors import InvalidArgument
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.planning.plan import Plan
from dpsco.planning.second_stage import SecondStage
from dpsco.query import Array

__all__ = ["Evidence"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The released values of a surveyed run: private, and publishable like the run's iterates."""

    plan: Plan
    """Of the whole run."""
    second: SecondStage
    points: Array
    """(T, p K): x_0 .. x_{T-1} in the coordinates of u."""
    sums: Array
    """(T, p K): what each round released; (T, 2 p K) with squares of contributions."""
    final: Array
    """(p K,): the output y_T."""
    complete: bool = True

    @property
    def batch_size(self) -> int:
        """B: rows per round."""
        return self.second.plan.schedule.batch_size

    @property
    def means(self) -> Array:
        """d_t, of shape (T, K, p)."""
        return self._by_class(self.sums[:, : self.final.size] / self.batch_size)

    @property
    def squares(self) -> Array | None:
        """Mean squares of contributions, of shape (T, K, p); None if the rounds released none."""
        if self.sums.shape[1] == self.final.size:
            return None
        return self._by_class(self.sums[:, self.final.size :] / self.batch_size * self._unit)

    @property
    def squares_noise(self) -> Array:
        """Covariance (T, T) of the privacy noise in an entry of ``squares``."""
        return self.noise * self._unit**2

    @property
    def _unit(self) -> float:
        """R^2 / (theta C) of clipping/squares.py."""
        method = self.second.plan.method
        if not isinstance(method, MeasuredSRGD):
            raise InvalidArgument("These rounds released no squares of contributions.")
        return method.radius**2 * math.hypot(1.0, method.squares) / (method.squares * method.clip)

    @property
    def asked(self) -> Array:
        """v_t, of shape (T, K, p)."""
        weights = np.array([eta(t) for t in range(len(self.points))])
        weighted = weights[:, None] * self.points
        return self._by_class(weighted - np.concatenate([np.zeros_like(weighted[:1]), weighted[:-1]]))

    @property
    def noise(self) -> Array:
        """Covariance (T, T) of the privacy noise in an entry of d_0 .. d_{T-1}."""
        schedule = self.second.plan.schedule
        decoder = schedule.mechanism.decoder()
        draws = np.diff(decoder, axis=0, prepend=np.zeros((1, decoder.shape[1])))
        return np.asarray(draws @ draws.T * (schedule.most_noise.sigma / self.batch_size) ** 2)

    def _by_class(self, table: Array) -> Array:
        return table.reshape(len(table), self.plan.problem.loss.outputs, -1)
