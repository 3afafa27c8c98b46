"""How the rounds of a run compose to its epsilon."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EXACT_GAUSSIAN", "Composition"]


@dataclass(frozen=True)
class Composition:
    """The accounting behind a run's epsilon."""

    text: str
    """The accounting in words, for the report."""
    gaussian: bool
    """Whether the run is mu-GDP, so epsilon holds at every delta and mu adds up in an account."""


EXACT_GAUSSIAN = Composition("exact Gaussian", gaussian=True)
"""The run is one Gaussian mechanism, or a composition of Gaussian mechanisms: mu-GDP."""
