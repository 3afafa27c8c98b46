"""The public layout of a run's rows: all that a stream needs to know to cut rows into rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsco.problem import Loss
from dpsco.query import Portion

__all__ = ["LabelRule", "Layout"]


class LabelRule(Protocol):
    """Which labels a loss can take; a ``Loss`` is one."""

    @property
    def kind(self) -> str:
        """Name of the loss in messages."""

    @property
    def labels_are(self) -> str:
        """What labels are expected to be, in messages."""

    def valid(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which labels the loss can take."""


@dataclass(frozen=True)
class Layout:
    """Which rows each round sees, and what a row looks like. Public; ``plan.layout`` makes it."""

    rounds: int
    batch_size: int
    """Rows per round; where ``portions`` decides, about."""
    portions: Sequence[Portion] | None
    """The rows of each round; None for consecutive fresh batches of ``batch_size`` rows."""
    width: int | None
    """Features per row; None for a loss of the caller's, whose rows the library does not know."""
    labels: Loss | None
    """The loss that says which labels are valid; None for a loss of the caller's."""
    adjacency: str
    digest: str
    """Digest of the plan, in hexadecimal: the salt of the hash that gives a row with an id its round."""
    label_rule: Callable[[int], LabelRule | None] | None = None
    """For a loss of the caller's: which labels its oracle can take, given the number of features."""
    places: int = 0
    """What ids are hashed to: the rounds, or, where ``coming`` decides on rounds, places among which these are cut."""
    coming: Callable[[], Iterable[Portion]] | None = None
    """Consecutive fresh portions, where each is known only after the round before it; in place of ``portions``."""
