"""One stage of a run: a plan with noise, ledger and state of its own. A plan without a survey has one, others two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dpsco.clipping import Oracle
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query
from dpsco.release.ledger import Ledger
from dpsco.release.releaser import Releaser
from dpsco.run.row_access import CountedRows

__all__ = ["Stage"]


class Stage:
    """The method's state between rounds, beside everything secret about the stage's noise.

    Parameters
    ----------
    plan : Plan
        What the stage runs.
    start : array
        x_0 of the stage.
    oracle : Oracle, optional
        Computes clipped sums; None if they are computed elsewhere.
    ledger : Ledger
        The stage's own.
    replay : sequence of arrays, optional
        Values to release in place of new ones (watch.py).
    """

    def __init__(
        self, plan: Plan, start: Array, oracle: Oracle | None, ledger: Ledger, replay: Sequence[Array] | None
    ) -> None:
        self.plan, self.method, self.schedule = plan, plan.method, plan.schedule
        self.ledger = ledger
        self.releaser = Releaser(
            self.schedule.calibration, self.schedule.mechanism, self.schedule.sum_length, ledger, replay=replay
        )
        self.restored = self.releaser.complete
        self.rows = CountedRows(oracle, plan.problem, self.releaser.indices, self.method.needs == "convexity")
        self.state = self.method.start(self.schedule, start)

    @property
    def complete(self) -> bool:
        """Whether every round of the stage is released and stepped."""
        return bool(self.state.step == self.schedule.rounds)

    def ask(self) -> Query:
        """What the next round asks."""
        return self.method.ask(self.schedule, self.state)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A run in progress holds rows and the noise key and is never pickled or copied.")

    def __repr__(self) -> str:
        return "Stage(<secret>)"
