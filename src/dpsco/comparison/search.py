"""A search with a fixed number of configurations that does not stop at the edge of its grid.

A configuration is a point (k_1, ..., k_d): knob j is multiplied by 2^(k_j). The search starts from k = 0, looks at the
neighbours of the best point so far at distance 2 (a factor of 4), moves and widens while a neighbour is better, then
halves the distance, and goes on until the budget is spent.

Guarantee: exactly ``budget`` different configurations are tried (one, if there are no knobs), in an order that depends
on the scores alone, so that a search can be replayed. Cost: no more than a sort of the points for each batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Point", "Search"]

Point = tuple[float, ...]
"""Exponents of the knobs."""

FIRST_STEP = 2.0


@dataclass
class Search:
    """``ask`` for configurations to try, ``tell`` their scores (smaller is better, inf for refused)."""

    knobs: int
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
        return min(self.scores, key=lambda point: (self.scores[point], sum(map(abs, point)), point))

    @property
    def edges(self) -> tuple[bool, ...]:
        """For each knob, whether the best point has no worse point on one of its sides: an optimum not bracketed."""
        return tuple(not (self._beside(knob, -1) and self._beside(knob, +1)) for knob in range(self.knobs))

    def _beside(self, knob: int, side: int) -> bool:
        """Whether a point that differs from the best in this knob alone was tried on this side (none is better)."""
        best = self.best
        return any(
            side * (point[knob] - best[knob]) > 0
            and all(point[other] == best[other] for other in range(self.knobs) if other != knob)
            for point in self.scores
        )

    def _wanted(self) -> list[Point]:
        if not self.scores:
            return [(0.0,) * self.knobs]
        best = self.best
        if math.isinf(self.scores[best]):
            return self._outward()
        return [_moved(best, knob, side * self.step) for knob in range(self.knobs) for side in (-1, 1)]

    def _outward(self) -> list[Point]:
        """Every configuration so far was refused: one step further out on either side of each knob."""
        start, found = (0.0,) * self.knobs, []
        for knob in range(self.knobs):
            tried = [point[knob] for point in self.scores]
            found += [_moved(start, knob, min(tried) - self.step), _moved(start, knob, max(tried) + self.step)]
        return found


def _moved(point: Point, knob: int, by: float) -> Point:
    return (*point[:knob], point[knob] + by, *point[knob + 1 :])
