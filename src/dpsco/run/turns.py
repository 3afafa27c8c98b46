"""Threads that share a run take turns: a round is finished once, and pushed rows come from one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar

from dpsco.errors import HorizonError, LedgerError
from dpsco.fork_safety import forget_in_children
from dpsco.planning.plan import Plan
from dpsco.query import Clipped, Query

__all__ = ["Turns", "in_turn"]

T = TypeVar("T")


class Turns:
    """A lock that a forked child does not share. An interrupted thread may take its turn again."""

    def __init__(self) -> None:
        self.unreturned: Query | None = None
        """The round of a call that is under way, or was interrupted: its caller does not know how far it came."""
        self.forget()
        forget_in_children(self)

    def forget(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it, and the ledger refuses there."""
        self.lock = threading.RLock()

    def once(self, run: _Pushed, rows: int) -> None:
        """Begin a call that takes pushed rows.

        Raises
        ------
        HorizonError
            If the rows would go beyond n, another call is under way, or an earlier one was interrupted.
        """
        with self.lock:
            if run._pushed + rows > run.plan.n:
                raise HorizonError(
                    f"n={run.plan.n} rows were announced and {run._pushed} have come; {rows} more would go beyond. "
                    "The budget of this run ends with n: make a new estimator (a new run, a new budget) for more rows."
                )
            if run.unfinished:
                raise HorizonError(
                    "An earlier call was interrupted while it took its rows, or another thread is in one. Some of the "
                    "rows may be in the sum, and taking them again would count them twice. Push from one thread; "
                    "after an interrupt make a new estimator: a new run, a new budget."
                )
            run.unfinished = True


class _Pushed(Protocol):
    unfinished: bool
    plan: Plan
    _pushed: int


class _Taking(Protocol):
    turns: Turns

    @property
    def complete(self) -> bool: ...

    @property
    def trace(self) -> tuple[Any, ...]: ...

    def _asked(self) -> Query: ...

    def _sum_of(self, query: Query) -> Clipped | None: ...


R = TypeVar("R", bound=_Taking)


def in_turn(call: Callable[[R], T]) -> Callable[[R], T | None]:
    """Let one thread at a time finish a round: the one that was asked when the call began.

    Two threads behind one survey would plan its rounds twice, with two ledgers and one key: the same noise on two sums.
    A call that was interrupted on its way back has finished its round. Made again, it returns that round: it would
    release the next one, without rows.

    Raises
    ------
    LedgerError
        From the call, if another thread finished the round meanwhile.
    """

    @wraps(call)
    def taken(run: R, /) -> T | None:
        turns = run.turns
        if _came_through(run, turns.unreturned):
            turns.unreturned = None
            return run.trace[-1] if run.trace else None
        query = run._asked()
        with turns.lock:
            if run._asked() is not query:
                raise LedgerError(
                    f"Another thread finished round {query.step} while this call waited. Let one thread finish a "
                    "round, after all its rows are absorbed."
                )
            turns.unreturned = query
            finished = call(run)
        turns.unreturned = None  # the last statement: Python handles no signal between it and the return
        return finished

    return taken


def _came_through(run: _Taking, interrupted: Query | None) -> bool:
    """Whether a call that did not return had finished its round, and no row of the next one has come since."""
    if interrupted is None or run.complete:
        return interrupted is not None
    asked = run._asked()
    return asked is not interrupted and run._sum_of(asked) is None
