"""A statement of the paper, and the finding of its check."""

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
    """The outcome of one check.

    Parameters
    ----------
    verdict
        A key of `VERDICTS`.
    sentence
        What was found.
    instances
        Number of instances that were evaluated.
    figures
        The numbers behind the sentence.
    """

    verdict: str
    sentence: str
    instances: int
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """A numbered statement.

    Parameters
    ----------
    label
        The label in the paper, or a name if it has none.
    kind
        Algorithm, Theorem, Lemma, Corollary or Sketch.
    title
        A short name.
    claim
        What the statement says.
    check
        A pure function of a seed that evaluates both sides on random and adversarial instances.
    """

    label: str
    kind: str
    title: str
    claim: str
    check: Callable[[int], Finding]
