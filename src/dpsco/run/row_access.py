"""What a method may look at rows through: the oracle, and phases of rows for inner loops. Everything is counted.

Counted, for every method alike
    gradients       example gradients: points times rows
    batch steps     adaptive steps: one per query, one per step of an inner loop
    participation   most distinct states at which one row is used: 1 means single epoch; two points of one query are one
All three are public: a round counts its public number of rows, whatever number came (add-remove, Poisson samples), and
solvers run for a public number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping import LinearOracle, Oracle, RowMap
from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale, row_norms
from dpsco.errors import InvalidArgument
from dpsco.problem import Problem
from dpsco.query import Array, Batch, Chunk, Clipped, Portion, Query
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.one_pass import Again
from dpsco.run.result import Counts
from dpsco.run.row_passes import RowPasses, within

__all__ = ["CountedRows"]


def _no_normals(step: int, size: int) -> Array:
    raise InvalidArgument("This run has no noise inside an objective.")


class CountedRows:
    """Access to rows that counts. ``bounded`` rows are shortened to the problem's feature norm.

    ``row_map`` turns the rows of a solver before that. The oracle behind a survey has the map in itself.
    """

    def __init__(
        self,
        oracle: Oracle | None,
        problem: Problem,
        indices: Callable[[int, int, int, int], NDArray[np.int64]],
        bounded: bool,
        normals: Callable[[int, int], Array] = _no_normals,
        row_map: RowMap | None = None,
    ) -> None:
        self._oracle, self._problem, self._bounded, self._map = oracle, problem, bounded, row_map
        self.indices, self.normals = indices, normals
        self._gradients = self._steps = 0
        self._participation = 0
        self._states: dict[tuple[int, int], int] = {}
        self._portion: Portion | None = None
        self._counted = -1

    def at(self, portion: Portion | None) -> None:
        """Return the next query is about these rows; None for fresh ones."""
        self._portion = portion

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        return Counts(self._gradients, self._steps, self._participation)

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Return the oracle's answer."""
        if self._oracle is None:
            raise InvalidArgument("This run has no oracle: give it sums that were computed elsewhere.")
        if self._bounded:
            batch = Batch(batch.step, within(batch.chunks, self._problem.feature_norm))
        clipped = self._oracle.answer(query, batch)
        self.count(query)
        return clipped

    def count(self, query: Query) -> None:
        """Count a round once, however many parts its rows come in."""
        if query.step == self._counted:
            return
        self._counted = query.step
        states = 1
        if self._portion is not None:
            key = (self._portion.first, self._portion.last)
            states = self._states[key] = self._states.get(key, 0) + 1
        self._count(len(query.points) * query.size, states)

    def phase(self, batch: Batch, rows: int, clip: float) -> _Phase:
        """Return the ``rows`` rows of a phase, at hand for an inner loop; gradients are clipped at ``clip``."""
        return _Phase(self._problem, batch, rows, clip, self._count)

    def passes(self, batch: Batch, rows: int, clip: float, constant: float, counted: int) -> RowPasses:
        """Rows for the solver of an objective; ``counted`` passes over ``rows`` rows count, both public."""
        for state in range(counted):
            self._count(rows, state + 1)
        if self._map is not None:
            made = partial(_mapped, self._map, batch.chunks)
            batch = Batch(batch.step, Again(made) if isinstance(batch.chunks, Again) else made())
        return RowPasses(self._problem, batch, clip, constant)

    def _count(self, gradients: int, states: int) -> None:
        """One adaptive step; some row has now been used at ``states`` states."""
        self._gradients += gradients
        self._steps += 1
        self._participation = max(self._participation, states)


def _mapped(row_map: RowMap, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the rows of a solver in the coordinates of a survey, in float64."""
    for features, labels in chunks:
        rows = CsrRows.of(features).dense() if is_sparse(features) else features
        yield row_map.rows(np.asarray(rows, dtype=np.float64)), labels


class _Phase:
    """SENSITIVE: rows of one phase in float64; ``rows``, the public size, is the denominator whatever number came.

    Cost: a copy of the rows (dense, also of sparse ones).
    """

    def __init__(
        self, problem: Problem, batch: Batch, rows: int, clip: float, count: Callable[[int, int], None]
    ) -> None:
        self._problem, self._clip, self._count = problem, clip, count
        self.rows = rows
        self._linear = LinearOracle(problem.loss, problem.intercept)
        self._a, self._y = self._usable(within(batch.chunks, problem.feature_norm))
        self._lengths = row_norms(self._a)
        self._passes = 0
        self._visits = np.zeros(rows, dtype=np.int64)
        self._most = 0
        self._counting = True

    def _usable(self, chunks: Iterator[Chunk]) -> tuple[Array, NDArray[Any]]:
        """Rows and labels, missing and unusable ones as zero rows."""
        loss, width = self._problem.loss, self._problem.dimension
        a = np.zeros((self.rows, width + self._problem.intercept))
        y = np.zeros(self.rows, dtype=np.int64 if loss.outputs > 1 else np.float64)
        at = 0
        with np.errstate(all="ignore"):
            for features, labels in chunks:
                part = slice(at, at + len(labels))
                a[part, :width] = features
                if self._problem.intercept:
                    a[part, -1] = 1.0
                lengths, valid = row_norms(a[part]), loss.valid(labels)
                y[part] = np.where(valid, labels, 0)
                a[part][~(lengths <= LARGEST_NORM) | ~valid | (lengths < SMALLEST_NORM)] = 0.0
                at = part.stop
        return a, y

    def mean_gradient(self, x: Array) -> Array:
        """Mean over the phase of the clipped gradients at ``x``."""
        if self._counting:
            self._passes += 1
            self._count(self.rows, self._passes + self._most)
        x = x.reshape(self._problem.loss.outputs, -1)
        c = self._clipped(self._linear.slopes(self._a @ x.T, self._y), self._lengths)
        return np.asarray((c.T @ self._a).ravel() / self.rows)

    def row_gradient(self, row: int, *points: Array) -> tuple[Array, ...]:
        """Clipped gradient of one row at each of the points."""
        if self._counting:
            self._visits[row] += 1
            self._most = max(self._most, int(self._visits[row]))
            self._count(len(points), self._passes + self._most)
        one = slice(row, row + 1)
        a, y, lengths = self._a[one], self._y[one], self._lengths[one]
        k = self._problem.loss.outputs
        slopes = (self._linear.slopes(a @ x.reshape(k, -1).T, y) for x in points)
        return tuple((self._clipped(c, lengths).T @ a).ravel() for c in slopes)

    def uncounted(self) -> None:
        """From here on nothing is counted: what follows depends on the rows, and a count would tell."""
        self._counting = False

    def _clipped(self, c: Array, lengths: Array) -> Array:
        scale, _ = clip_scale(row_norms(c) * lengths, self._clip, self._a.shape[1] + c.shape[1])
        return c * scale[:, None]
