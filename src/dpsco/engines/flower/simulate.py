"""A federation of millions of devices in one process: no messages, the same assignment, clipping, sums and noise.

    result, excess = simulate(plan, devices=10**6, availability=Availability(), seed=0)

Every device holds one row of the reference problem and has an id. Its round is the hash of that id. A device of round t
answers with probability a_i r_t: its own availability times that of the hour its round falls into. Who does not answer
counts as 0; the denominator is the plan's. Rows are made cohort by cohort, so memory does not grow with the devices.

Plan for the answers you expect: ``dpsco.plan(..., n=devices * availability.response)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsco.datasets import ReferenceProblem, reference_problem
from dpsco.engines.flower.assignment import Hashed
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.planning.plan import Plan
from dpsco.problem import Logistic
from dpsco.query import Array, Batch, Chunk, Portion, chunk_multiple
from dpsco.rows.layout import Layout
from dpsco.rows.one_pass import whole
from dpsco.rows.stream import Sample, Stream
from dpsco.run import Result, train

__all__ = ["Availability", "simulate"]


@dataclass(frozen=True)
class Availability:
    """How reliably devices answer: P(answer) = a_i r_t, of mean ``response``."""

    response: float = 0.8
    """Mean share of the devices called that answer in time."""
    devices: float = 0.4
    """Spread of the a_i, a beta distribution: from 0, all devices alike, to 1, each answers always or never."""
    rounds: float = 0.05
    """Standard deviation between rounds, which fall into different hours."""

    def __post_init__(self) -> None:
        if not (0 < self.response <= 1 and 0 <= self.devices < 1 and 0 <= self.rounds < 0.5):
            raise InvalidArgument(
                f"Expected response={self.response} above 0 and at most 1, devices={self.devices} from 0 to below 1, "
                f"rounds={self.rounds} from 0 to below 0.5: they describe how reliably devices answer."
            )

    def answers(self, count: int, hour: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which of ``count`` devices of a round answer; ``hour`` is the round's r_t."""
        own: Array | float = self.response
        if self.devices and self.response < 1:
            strength = 1 / self.devices**2 - 1
            own = rng.beta(self.response * strength, (1 - self.response) * strength, count)
        return rng.random(count) < own * hour

    def hours(self, rounds: int, rng: np.random.Generator) -> Array:
        """r_t of every round, of mean 1."""
        return np.clip(1 + self.rounds * rng.standard_normal(rounds), 0.0, 2.0)


class _Devices(Stream):
    """Cohorts of devices that answer, made when their round comes."""

    rows_read = None
    fast = False

    def __init__(self, data: ReferenceProblem, devices: int, availability: Availability, seed: int) -> None:
        super().__init__()
        self._data, self._devices, self._availability, self._seed = data, devices, availability, seed

    def _check(self, layout: Layout) -> None:
        """Places are hashes of ids: any adjacency will do."""
        run, rule = bytes.fromhex(layout.digest), Hashed()
        of = (rule.place_of(str(device), run, layout.places) or 0 for device in range(self._devices))
        self._layout, self._places = layout, np.sort(np.fromiter(of, dtype=np.int64, count=self._devices))

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        return self._portions((Portion(step, step + 1) for step in range(layout.rounds)), None)

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        """Portions are stretches of the places that ids are hashed to."""

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        hours = self._availability.hours(self._layout.rounds, np.random.default_rng([self._seed, 1]))
        for step, portion in enumerate(whole(portions)):
            first, last = np.searchsorted(self._places, [portion.first, portion.last])
            rng = np.random.default_rng([self._seed, 2, step])
            there = self._availability.answers(int(last - first), float(hours[step]), rng)
            yield Batch(step, self._chunks(int(np.count_nonzero(there)), rng))

    def _chunks(self, rows: int, rng: np.random.Generator) -> Iterator[Chunk]:
        size = chunk_multiple(self._data.optimum.size)
        for start in range(0, rows, size):
            yield _rows(min(size, rows - start), self._data.optimum, rng)


def _rows(count: int, optimum: Array, rng: np.random.Generator) -> Chunk:
    """Fresh rows of the reference problem (datasets.py)."""
    features = rng.standard_normal((count, optimum.size)) / np.sqrt(np.arange(1, optimum.size + 1))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    labels = rng.random(count) < 0.5 * (1 + np.tanh(features @ optimum / 2))
    return features, labels.astype(np.int64)


def simulate(
    plan: Plan,
    *,
    devices: int,
    availability: Availability | None = None,
    seed: int = 0,
    key: bytes | None = None,
) -> tuple[Result, float]:
    """Train on ``devices`` simulated devices: the result, and its excess risk on fresh rows.

    Cost: about four seconds for a million devices of 50 features.
    """
    count = positive_integer("devices", devices, "It is how many devices there are.")
    if not isinstance(plan.problem.loss, Logistic) or plan.problem.intercept:
        raise InvalidArgument("The simulated devices hold rows of the reference problem: plan with Logistic() for it.")
    data = reference_problem(1, plan.problem.dimension, seed=seed)
    stream = _Devices(data, count, availability or Availability(), seed)
    result = train(plan, stream, key=key)
    return result, data.excess_risk(result.model.coef)
