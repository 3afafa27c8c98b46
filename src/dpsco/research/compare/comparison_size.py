"""How much to measure: `QUICK` for a first look, `MEDIUM` for the published figures, `FULL` for more runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "MEDIUM", "QUICK", "ComparisonSize", "TuningBudget", "fourth_root", "square_root"]


@dataclass(frozen=True)
class TuningBudget:
    """The runs that one method may use at one setting.

    Parameters
    ----------
    configurations
        Configurations to try.
    tuning
        Runs per configuration. Their mean score decides.
    scoring
        Runs of the best configuration, on other rows and with other keys.
    """

    configurations: int
    tuning: int
    scoring: int

    @property
    def runs(self) -> int:
        """All runs, tuning and scoring."""
        return self.configurations * self.tuning + self.scoring


@dataclass(frozen=True)
class ComparisonSize:
    """Numbers of rows and rounds of every section. A section without sizes is left out."""

    name: str
    budget: TuningBudget
    """The same for every tuned method."""
    n: int
    """Rows of the section over rounds."""
    rounds: tuple[int, ...]
    table_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    outside_sizes: tuple[int, ...]
    passes_sizes: tuple[int, ...]
    epochs: tuple[int, ...]
    """Expected passes of DP-SGD with Poisson batches."""
    full_batch_epochs: tuple[int, ...]
    """Passes of accelerated full-batch gradient descent."""
    file_rounds: tuple[int, ...]
    fresh: int
    """Rows on which excess risk is measured."""


def fourth_root(n: int) -> int:
    """Return n^(1/4), rounded.

    >>> fourth_root(200_000)
    21
    """
    return max(1, round(n**0.25))


def square_root(n: int) -> int:
    """Return sqrt(n), rounded.

    >>> square_root(200_000)
    447
    """
    return max(1, round(n**0.5))


QUICK = ComparisonSize(
    name="quick",
    budget=TuningBudget(configurations=8, tuning=1, scoring=3),
    n=30_000,
    rounds=(4, 8, fourth_root(30_000), 32, 128),
    table_sizes=tuple(1 << k for k in range(9, 13)),
    sizes=tuple(1 << k for k in (11, 12, 13, 14)),
    outside_sizes=(1_000, 4_000, 16_000),
    passes_sizes=(30_000,),
    epochs=(1, 5),
    full_batch_epochs=(16, 32),
    file_rounds=(16, 64),
    fresh=50_000,
)

MEDIUM = ComparisonSize(
    name="medium",
    budget=TuningBudget(configurations=9, tuning=2, scoring=4),
    n=200_000,
    rounds=(4, 8, fourth_root(200_000), 64),
    table_sizes=(),
    sizes=(),
    outside_sizes=(),
    passes_sizes=(30_000, 200_000),
    epochs=(),
    full_batch_epochs=(16,),
    file_rounds=(16, 64, 256),
    fresh=100_000,
)
"""Rounds, passes and a file. The paper's table, its rates and its open question are left out."""

FULL = ComparisonSize(
    name="full",
    budget=TuningBudget(configurations=10, tuning=2, scoring=8),
    n=200_000,
    rounds=(4, 8, 16, fourth_root(200_000), 32, 64, 128, 256),
    table_sizes=tuple(1 << k for k in range(12, 19)),
    sizes=tuple(1 << k for k in (12, 14, 16, 18)),
    outside_sizes=(3_000, 10_000, 30_000, 100_000, 300_000),
    passes_sizes=(30_000, 200_000),
    epochs=(1, 5, 20),
    full_batch_epochs=(16, 32, 64),
    file_rounds=(16, 64, 256),
    fresh=100_000,
)
