"""The privacy guarantee: epsilon at delta, the adjacency, and the number of records it covers at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpsco.accounting import gaussian
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.lazy import cached_property

__all__ = ["ADJACENCY", "FLOAT_SHARE", "Budget"]

ADJACENCY: dict[str, float] = {"zero-out": 1.0, "add-remove": 1.0, "replace": 2.0}
"""Number of clips by which the sums of two neighbours differ, per adjacency."""

FLOAT_SHARE = 2.0**-30
"""Share of delta that the exact Gaussian curve leaves to floating-point noise."""

_RUN_SHARE = 2.0**-44  # of delta, for one run: an account that adds up thousands of runs stays within FLOAT_SHARE

_LEAST_DELTA, _MOST_EPSILON = 1e-300, 1e100

_NEEDED = "It is half of the guarantee (epsilon, delta)."


_mu_of = lru_cache(maxsize=64)(gaussian.mu_of)
"""Some milliseconds of exact arithmetic, the same for every fit with one budget."""


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) guarantee and its exact Gaussian-DP parameter.

    Parameters
    ----------
    epsilon : float
        Positive; ``math.inf`` means no noise.
    delta : float
        Between 0 and 1, well below 1/n.
    adjacency : {"zero-out", "replace", "add-remove"}
        "zero-out" (the paper's): one row's gradients become 0; n and the position of every row are public.
        "replace": one row becomes any other row; it needs twice the noise.
        "add-remove": one row is present or absent. It needs a stream that derives each row's round from that
        row alone (``stream(..., ids=)``).
    records : int
        The guarantee covers any ``records`` rows at once (for example those of one person), in any rounds.

    Raises
    ------
    InvalidArgument
        If an argument is out of range.

    Examples
    --------
    >>> round(Budget(epsilon=1.0, delta=1e-5).mu, 6)
    0.268051
    """

    epsilon: float
    delta: float
    adjacency: str = "zero-out"
    records: int = 1

    def __post_init__(self) -> None:
        epsilon = positive("epsilon", self.epsilon, f"{_NEEDED} math.inf means no noise.", infinite=True)
        gaussian.check_delta(self.delta)
        if self.delta < _LEAST_DELTA or _MOST_EPSILON < epsilon < math.inf:
            raise InvalidArgument(
                f"Expected delta={self.delta!r} >= {_LEAST_DELTA:g} and epsilon={epsilon!r} <= {_MOST_EPSILON:g}, or "
                "epsilon=math.inf for no noise: float64 cannot tell such a guarantee from none, or from no noise."
            )
        one_of("adjacency", self.adjacency, ADJACENCY)
        records = positive_integer("records", self.records, "It is the number of rows that the guarantee covers.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "records", records)

    @cached_property
    def mu(self) -> float:
        """Exact Gaussian-DP parameter at (epsilon, ``gaussian_delta``), rounded down; inf without noise."""
        return _mu_of(self.epsilon, self.gaussian_delta)

    @property
    def gaussian_delta(self) -> float:
        """The part of delta that Gaussian noise uses: all but ``FLOAT_SHARE``, which pays for ``log_float_loss``."""
        return self.delta * (1.0 - FLOAT_SHARE)

    @property
    def log_float_loss(self) -> float:
        """Logarithm of l, the probability with which float64 noise may differ from Gaussian noise (float_noise.py).

        If each of two neighbouring laws changes by l, delta(epsilon) grows by (1 + e^epsilon) l = 2^-44 delta.
        """
        return math.log(_RUN_SHARE * self.delta) - max(0.0, self.epsilon) - math.log1p(math.exp(-self.epsilon))

    def epsilon_at(self, delta: float, mu: float) -> float:
        """Return epsilon of a run with this budget at another ``delta`` or, for a group, another ``mu``.

        It is that of Gaussian noise at ``delta`` without what float64 noise loses there: (1 + e^epsilon) l.
        """
        high, lost = mu * mu / 2 + mu * math.sqrt(-2.0 * math.log(delta)), FLOAT_SHARE * delta  # high: at delta / 2
        if self._lost(high) > lost:
            lost = self._lost(gaussian.epsilon_of(mu, delta / 2))
        return gaussian.epsilon_of(mu, delta - lost) if lost < delta / 2 else math.inf

    def _lost(self, epsilon: float) -> float:
        """(1 + e^epsilon) l."""
        return math.exp(min(0.0, self.log_float_loss + epsilon + math.log1p(math.exp(-epsilon))))

    @property
    def mu_per_record(self) -> float:
        """Largest mu of one record: group privacy of mu-GDP is linear, so mu / records."""
        return self.mu / self.records

    @property
    def clips_apart(self) -> float:
        """Number of clips by which one round's sums of two neighbouring data sets can differ: 1, or 2 for replace."""
        return ADJACENCY[self.adjacency]

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return math.isfinite(self.epsilon)
