"""How much is measured: a quick look, or the whole comparison."""

from __future__ import annotations

from dataclasses import dataclass

from dpsco.research.compare.study import Effort

__all__ = ["FULL", "QUICK", "Scale"]


@dataclass(frozen=True)
class Scale:
    """Sizes and budgets of every section."""

    name: str
    effort: Effort
    """Of every tuned contender alike."""
    n: int
    """Rows of the picture over rounds."""
    rounds: tuple[int, ...]
    table_sizes: tuple[int, ...]
    table_keys: int
    sizes: tuple[int, ...]
    outside_sizes: tuple[int, ...]
    passes_sizes: tuple[int, ...]
    epochs: tuple[int, ...]
    """Of DP-SGD with Poisson batches."""
    full_batch_epochs: tuple[int, ...]
    """Of accelerated full-batch gradient descent."""
    file_rounds: tuple[int, ...]
    fresh: int
    """Rows that excess risk is measured on."""

    @property
    def quarter(self) -> int:
        """n^(1/4), where the headline is read off."""
        return quarter(self.n)


def quarter(n: int) -> int:
    """n^(1/4), rounded.

    >>> quarter(200_000)
    21
    """
    return max(1, round(n**0.25))


def root(n: int) -> int:
    """sqrt(n), rounded."""
    return max(1, round(n**0.5))


QUICK = Scale(
    name="quick",
    effort=Effort(configurations=8, tuning=1, scoring=3),
    n=30_000,
    rounds=(8, quarter(30_000), 32, 128),
    table_sizes=tuple(1 << k for k in range(9, 13)),
    table_keys=1,
    sizes=tuple(1 << k for k in (11, 12, 13, 14)),
    outside_sizes=(1_000, 4_000, 16_000),
    passes_sizes=(30_000,),
    epochs=(1, 5),
    full_batch_epochs=(16, 32),
    file_rounds=(16, 64),
    fresh=50_000,
)

FULL = Scale(
    name="full",
    effort=Effort(configurations=10, tuning=2, scoring=8),
    n=200_000,
    rounds=(8, quarter(200_000), 32, 64, 128, 256),
    table_sizes=tuple(1 << k for k in range(12, 19)),
    table_keys=1,
    sizes=tuple(1 << k for k in (12, 14, 16, 18)),
    outside_sizes=(3_000, 10_000, 30_000, 100_000, 300_000),
    passes_sizes=(30_000, 200_000),
    epochs=(1, 5, 20),
    full_batch_epochs=(16, 32, 64),
    file_rounds=(16, 64, 256),
    fresh=100_000,
)
