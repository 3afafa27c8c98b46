"""Record what a run hands to ``release`` and gets back, and replay runs with the answers frozen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpsco.query import Array, Clipped, Query, Released
from dpsco.run.watch import watching

__all__ = ["Transcript", "observe"]


@dataclass
class Transcript:
    """SENSITIVE: everything that passed ``release`` in one run, and what the run showed. It is an ``Observer``."""

    queries: list[Query] = field(default_factory=list)
    sums: list[Array] = field(default_factory=list)
    released: list[Array] = field(default_factory=list)
    warned: tuple[str, ...] = ()
    error: str | None = None
    """Type of the error that ended the run."""
    visible: bytes = b""
    """What the run gave back, reduced to bytes."""

    def __call__(self, query: Query, clipped: Clipped, released: Released) -> None:
        """Keep what one round asked, summed and released."""
        self.queries.append(query)
        self.sums.append(np.array(clipped.total, dtype=np.float64))
        self.released.append(released.value)

    def noise(self, first: int = 0, last: int | None = None) -> Array:
        """Released minus handed in, of shape (rounds, p): of all rounds, or of ``first`` to ``last`` - 1."""
        return np.stack(self.released[first:last]) - np.stack(self.sums[first:last])

    @property
    def ending(self) -> str:
        """How a run on ordinary rows ended before its last round."""
        how = "asked for fewer rounds than the plan has" if self.error is None else f"ended in {self.error}"
        return f"A run on ordinary rows {how}."

    def __repr__(self) -> str:
        return "Transcript(<sensitive>)"


def observe(run: Callable[[], bytes], frozen: Transcript | None = None) -> Transcript:
    """Run once; with ``frozen``, its released values take the place of new ones."""
    seen = Transcript()
    replay = None if frozen is None else frozen.released
    with warnings.catch_warnings(record=True) as caught, watching(seen, replay=replay):
        warnings.simplefilter("always")
        try:
            seen.visible = run()
        except Exception as error:  # the type of an error may depend on a row: that is what is looked for
            seen.error = type(error).__name__
    seen.warned = tuple(sorted(str(warning.message) for warning in caught))
    return seen
