"""A pattern search with a fixed number of configurations that may leave its first grid.

A configuration is a point (k_1, ..., k_d; c_1, ..., c_e). Knob j is multiplied by 2^(k_j); choice i takes its c_i-th
value. The search starts at k = 0 and looks at the neighbours of the best point at distance 2, a factor of 4. While a
neighbour is better it moves there. Otherwise it halves the distance. It ends when the budget is spent.

Guarantee
---------
Exactly ``budget`` different configurations are tried, fewer only if there are no more. Their order depends on the
scores alone, so a search can be replayed.

Cost
----
One sort of the points per batch of configurations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product

__all__ = ["GridPoint", "PatternSearch"]

FIRST_STEP = 2.0


@dataclass(frozen=True, order=True)
class GridPoint:
    """Exponents of the knobs and places in the lists of choices."""

    exponents: tuple[float, ...]
    places: tuple[int, ...] = ()


@dataclass
class PatternSearch:
    """Ask for configurations to try, tell their scores: smaller is better, inf means refused."""

    knobs: int
    choices: tuple[int, ...]
    """The number of values of each choice."""
    budget: int
    scores: dict[GridPoint, float] = field(default_factory=dict)
    step: float = FIRST_STEP

    def ask(self) -> list[GridPoint]:
        """Return the next configurations, which may be tried in parallel; none when the budget is spent."""
        while len(self.scores) < self.budget:
            wanted = [point for point in self._wanted() if point not in self.scores]
            if wanted:
                return wanted[: self.budget - len(self.scores)]
            if not self.knobs:
                break
            self.step /= 2
        return []

    def tell(self, point: GridPoint, score: float) -> None:
        """Record the score of a configuration."""
        self.scores[point] = score if score == score else math.inf

    @property
    def best(self) -> GridPoint:
        """The point with the smallest score; among equals the one nearest the start."""
        return min(self.scores, key=lambda point: (self.scores[point], sum(abs(k) for k in point.exponents), point))

    @property
    def edges(self) -> tuple[bool, ...]:
        """Per knob, whether the best value is not bracketed: no worse point was tried on one of its sides."""
        best = self.best
        return tuple(not (self._worse(best, j, -1) and self._worse(best, j, +1)) for j in range(self.knobs))

    def _worse(self, best: GridPoint, knob: int, side: int) -> bool:
        """Return whether a point that differs from ``best`` in this knob alone was tried on this side."""
        return any(
            point.places == best.places
            and side * (point.exponents[knob] - best.exponents[knob]) > 0
            and all(point.exponents[j] == best.exponents[j] for j in range(self.knobs) if j != knob)
            for point in self.scores
        )

    def _wanted(self) -> list[GridPoint]:
        if not self.scores:
            start = (0.0,) * self.knobs
            return [GridPoint(start, places) for places in product(*(range(size) for size in self.choices))]
        best = self.best
        if math.isinf(self.scores[best]):
            return self._outward()
        around = [self._moved(best, j, side) for j in range(self.knobs) for side in (-1, 1)]
        return around + [
            GridPoint(best.exponents, (*best.places[:i], place, *best.places[i + 1 :]))
            for i, size in enumerate(self.choices)
            for place in range(size)
            if place != best.places[i]
        ]

    def _moved(self, point: GridPoint, knob: int, side: int) -> GridPoint:
        exponents = list(point.exponents)
        exponents[knob] += side * self.step
        return GridPoint(tuple(exponents), point.places)

    def _outward(self) -> list[GridPoint]:
        """Return points one step further out per knob and side, for a search in which every point was refused."""
        found = []
        for knob in range(self.knobs):
            tried = [point.exponents[knob] for point in self.scores]
            for side, end in ((-1, min(tried)), (1, max(tried))):
                exponents = [0.0] * self.knobs
                exponents[knob] = end + side * self.step
                found.append(GridPoint(tuple(exponents), self.best.places))
        return found
