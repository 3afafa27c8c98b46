"""Threads that share a run take turns: a round is finished once, and pushed rows come from one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dpsco.errors import HorizonError, LedgerError
from dpsco.fork_safety import forget_in_children
from dpsco.planning.plan import Plan
from dpsco.query import Query

__all__ = ["Turns", "in_turn"]

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """A lock that a forked child does not share. An interrupted thread may take its turn again."""

    def __init__(self) -> None:
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

    def _asked(self) -> Query: ...


R = TypeVar("R", bound=_Taking)


def in_turn(call: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Let one thread at a time make this call, for the round that was asked when the call began.

    Two threads behind one survey would plan its rounds twice, with two ledgers and one key: the same noise on two sums.

    Raises
    ------
    LedgerError
        From the call, if another thread finished the round meanwhile.
    """

    @wraps(call)
    def taken(run: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        query = run._asked()
        with run.turns.lock:
            if run._asked() is not query:
                raise LedgerError(
                    f"Another thread finished round {query.step} while this call waited. Let one thread finish a "
                    "round, after all its rows are absorbed."
                )
            return call(run, *args, **kwargs)

    return taken
