"""A tap on the choke point: what a run hands to ``release`` and gets back, and replays with the answers frozen.

A replay gives the algorithm the very values that another run released. Both runs then ask the same queries, as in the
proof of adaptive composition, and whatever still differs between them comes from the rows.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from dpsco.query import _BY_RELEASE, Array, Clipped, Query, Released
from dpsco.release.releaser import Releaser

__all__ = ["Transcript", "observe"]

_ONE_AT_A_TIME = threading.RLock()


@dataclass
class Transcript:
    """SENSITIVE: everything that passed ``release`` in one run, and what the run showed."""

    queries: list[Query] = field(default_factory=list)
    sums: list[Array] = field(default_factory=list)
    released: list[Array] = field(default_factory=list)
    warned: tuple[str, ...] = ()
    error: str | None = None
    """Type of the error that ended the run."""
    visible: bytes = b""
    """What the run gave back, reduced to bytes."""

    @property
    def noise(self) -> Array:
        """Released minus handed in, of shape (rounds, p)."""
        return np.stack(self.released) - np.stack(self.sums)

    def __repr__(self) -> str:
        return "Transcript(<sensitive>)"


def observe(run: Callable[[], bytes], frozen: Transcript | None = None) -> Transcript:
    """Run once; with ``frozen``, its released values take the place of new ones."""
    seen = Transcript()
    with warnings.catch_warnings(record=True) as caught, _tapped(seen, frozen):
        warnings.simplefilter("always")
        try:
            seen.visible = run()
        except Exception as error:  # which error it is may depend on a row: that is what is looked for
            seen.error = type(error).__name__
    seen.warned = tuple(sorted(str(warning.message) for warning in caught))
    return seen


@contextmanager
def _tapped(seen: Transcript, frozen: Transcript | None) -> Iterator[None]:
    genuine, thread = Releaser.release, threading.get_ident()

    def release(self: Releaser, query: Query, clipped: Clipped) -> Released:
        if threading.get_ident() != thread:
            return genuine(self, query, clipped)
        place = len(seen.queries)
        seen.queries.append(query)
        seen.sums.append(np.array(clipped.total, dtype=np.float64))
        if frozen is None or place >= len(frozen.released):
            released = genuine(self, query, clipped)
        else:
            released = Released(query.step, frozen.released[place].copy(), by=_BY_RELEASE)
        seen.released.append(released.value)
        return released

    with _ONE_AT_A_TIME:
        Releaser.release = release  # type: ignore[method-assign]
        try:
            yield
        finally:
            Releaser.release = genuine  # type: ignore[method-assign]
