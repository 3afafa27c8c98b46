"""What is promised: epsilon at delta, to whom (adjacency), for how many records at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dpsco.accounting import gaussian
from dpsco.errors import one_of, positive, positive_integer

__all__ = ["ADJACENCY", "Budget"]

ADJACENCY: dict[str, float] = {"zero-out": 1.0, "add-remove": 1.0, "replace": 2.0}
"""How many clips two neighbours differ by: one row zeroed, added or removed; or one swapped for another."""

_NEEDED = "It is half of the promise (epsilon, delta)."


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) promise and its exact Gaussian-DP parameter.

    ``adjacency``
        ``"zero-out"`` (the paper's): one row's gradients become 0; n and every row's place are public.
        ``"replace"``: one row becomes any other; costs twice the noise. ``"add-remove"``: one row is
        there or not; only for streams whose rows choose their round by themselves (``stream(..., ids=)``).
    ``records``
        The promise covers any ``records`` rows at once (one person's, say), wherever they fall.

    >>> round(Budget(epsilon=1.0, delta=1e-5).mu, 6)
    0.268051
    """

    epsilon: float
    delta: float
    adjacency: str = "zero-out"
    records: int = 1

    def __post_init__(self) -> None:
        epsilon = positive("epsilon", self.epsilon, f"{_NEEDED} math.inf means no noise.", infinite=True)
        gaussian._check_delta(self.delta)
        one_of("adjacency", self.adjacency, ADJACENCY)
        records = positive_integer("records", self.records, "It is how many rows the promise covers at once.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "records", records)

    @cached_property
    def mu(self) -> float:
        """Exact Gaussian-DP parameter of the whole promise, rounded down; inf without noise."""
        return gaussian.mu_of(self.epsilon, self.delta)

    @property
    def mu_per_record(self) -> float:
        """What one record may cost: group privacy of mu-GDP is linear, so mu / records."""
        return self.mu / self.records

    @property
    def clips_apart(self) -> float:
        """How many clips two neighbouring data sets can differ by in one round's sum: 1, or 2 for replace."""
        return ADJACENCY[self.adjacency]

    @property
    def private(self) -> bool:
        """Whether there is any noise at all."""
        return math.isfinite(self.epsilon)
