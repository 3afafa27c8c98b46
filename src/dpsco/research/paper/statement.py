"""What the paper says, and what evaluating both sides of it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["VERDICTS", "Finding", "Statement"]

VERDICTS = {
    "holds": "holds with the constants as printed",
    "factor": "holds up to the factor found",
    "erratum": "fails as printed; the correction holds",
}


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: a verdict, a sentence with its figures, and how many instances stand behind it."""

    verdict: str
    sentence: str
    instances: int
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """A numbered statement: where it stands in the paper, what it claims, and the function that checks it.

    ``check(seed)`` evaluates both sides on random and adversarial instances; it is a pure function of the seed.
    """

    label: str
    """The paper's own label, or a name where it has none."""
    kind: str
    """Algorithm, Theorem, Lemma, Corollary or Sketch."""
    title: str
    claim: str
    check: Callable[[int], Finding]
