"""Watching runs: an observer sees what passes ``release``, and a replay gives frozen values back. For audits and tests.

    with watching(observer):                      every run begun here reports to ``observer``
        dpsco.train(plan, stream)
    with watching(other, replay=first.released):  and gets the values that another run released
        dpsco.train(plan, neighbour)

In a replay the method asks the same queries as before, as in the proof of adaptive composition, so whatever still
differs between two runs comes from the rows. What an observer sees is SENSITIVE. A watched run is not private, and its
report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from dpsco.query import Array, Clipped, Query, Released

__all__ = ["Observer", "Watch", "watch_in_force", "watching"]


class Observer(Protocol):
    """What is told of every round."""

    def __call__(self, query: Query, clipped: Clipped, released: Released) -> None:
        """One round passed ``release``. ``clipped`` is SENSITIVE."""


@dataclass(frozen=True)
class Watch:
    """The observer and the replay of runs begun now."""

    observer: Observer | None = None
    replay: Sequence[Array] | None = None


_UNWATCHED = Watch()
_WATCH: ContextVar[Watch] = ContextVar("dpsco_watch")


@contextmanager
def watching(observer: Observer | None = None, *, replay: Sequence[Array] | None = None) -> Iterator[None]:
    """Make runs that this thread begins inside the block report to ``observer`` and release what ``replay`` holds.

    Parameters
    ----------
    observer : Observer, optional
        Called after each release, in the process that holds the rows.
    replay : sequence of arrays, optional
        The values of rounds 0, 1, ...; rounds beyond it release values of their own.

    Returns
    -------
    context manager
    """
    token = _WATCH.set(Watch(observer, replay))
    try:
        yield
    finally:
        _WATCH.reset(token)


def watch_in_force() -> Watch:
    """Return the watch that a run begun now is under."""
    return _WATCH.get(_UNWATCHED)
