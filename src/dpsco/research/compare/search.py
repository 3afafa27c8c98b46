"""A search with a fixed number of configurations that does not stop at the edge of its grid.

A configuration is a point (k_1, ..., k_d; c_1, ..., c_e): knob j is multiplied by 2^(k_j), choice i takes its c_i-th
value. The search starts from k = 0, looks at the neighbours of the best point so far at distance 2 (a factor of 4),
moves and widens while a neighbour is better, then halves the distance, and goes on until the budget is spent.

Guarantee: exactly ``budget`` different configurations are tried (fewer only when there are no more), in an order that
depends on the scores alone, so that a search can be replayed. Cost: no more than a sort of the points for each batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product

__all__ = ["Point", "Search"]

FIRST_STEP = 2.0


@dataclass(frozen=True, order=True)
class Point:
    """Exponents of the knobs and places in the lists of choices."""

    exponents: tuple[float, ...]
    places: tuple[int, ...] = ()


@dataclass
class Search:
    """``ask`` for configurations to try, ``tell`` their scores (smaller is better, inf for refused)."""

    knobs: int
    choices: tuple[int, ...]
    """How many values each choice has."""
    budget: int
    scores: dict[Point, float] = field(default_factory=dict)
    step: float = FIRST_STEP

    def ask(self) -> list[Point]:
        """The next configurations, all of which may be tried at once; none when the budget is spent."""
        while len(self.scores) < self.budget:
            wanted = [point for point in self._wanted() if point not in self.scores]
            if wanted:
                return wanted[: self.budget - len(self.scores)]
            if not self.knobs:
                break
            self.step /= 2
        return []

    def tell(self, point: Point, score: float) -> None:
        self.scores[point] = score if score == score else math.inf

    @property
    def best(self) -> Point:
        """The point with the smallest score; the one nearest the start among equals."""
        return min(self.scores, key=lambda point: (self.scores[point], sum(abs(k) for k in point.exponents), point))

    @property
    def edges(self) -> tuple[bool, ...]:
        """For each knob, whether the best point has no worse point on one of its sides: an optimum not bracketed."""
        best = self.best
        return tuple(not (self._worse(best, j, -1) and self._worse(best, j, +1)) for j in range(self.knobs))

    def _worse(self, best: Point, knob: int, side: int) -> bool:
        """Whether a point that differs from ``best`` in this knob alone was tried on this side (none is better)."""
        return any(
            point.places == best.places
            and side * (point.exponents[knob] - best.exponents[knob]) > 0
            and all(point.exponents[j] == best.exponents[j] for j in range(self.knobs) if j != knob)
            for point in self.scores
        )

    def _wanted(self) -> list[Point]:
        if not self.scores:
            start = (0.0,) * self.knobs
            return [Point(start, places) for places in product(*(range(size) for size in self.choices))]
        best = self.best
        if math.isinf(self.scores[best]):
            return self._outward()
        around = [self._moved(best, j, side) for j in range(self.knobs) for side in (-1, 1)]
        return around + [
            Point(best.exponents, (*best.places[:i], place, *best.places[i + 1 :]))
            for i, size in enumerate(self.choices)
            for place in range(size)
            if place != best.places[i]
        ]

    def _moved(self, point: Point, knob: int, side: int) -> Point:
        exponents = list(point.exponents)
        exponents[knob] += side * self.step
        return Point(tuple(exponents), point.places)

    def _outward(self) -> list[Point]:
        """Every configuration so far was refused: one step further out on either side of each knob."""
        found = []
        for knob in range(self.knobs):
            tried = [point.exponents[knob] for point in self.scores]
            for side, end in ((-1, min(tried)), (1, max(tried))):
                exponents = [0.0] * self.knobs
                exponents[knob] = end + side * self.step
                found.append(Point(tuple(exponents), self.best.places))
        return found
