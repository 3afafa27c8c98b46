"""A run whose rows are pushed in as they come: the loop of ``train`` turned inside out for ``partial_fit``."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dpsco.clipping import linear_oracle
from dpsco.errors import HorizonError, InvalidArgument
from dpsco.methods import ALGORITHMS
from dpsco.planning.plan import Plan
from dpsco.query import CHUNK_ROWS, Array, Batch, Clipped
from dpsco.release.ledger import MemoryLedger
from dpsco.release.noise import derive, new_key
from dpsco.release.releaser import Releaser
from dpsco.rows.rechunk import stacked
from dpsco.rows.stream import Stream
from dpsco.run.report import PrivacyReport
from dpsco.run.result import Model
from dpsco.run.train import report_of

__all__ = ["PushedRun"]


class PushedRun:
    """T rounds of B rows, whatever the pieces they arrive in; after each round ``model`` is the newest iterate.

    Guarantee: the models of all moments together satisfy the plan's budget, and no row changes a model before the
    noise of its round is on it. Rows beyond n are refused before any of their call is used.
    Cost: holds fewer than ``CHUNK_ROWS`` rows and one un-noised sum; both are SENSITIVE, so a run is never pickled.
    """

    def __init__(self, plan: Plan, key: bytes | None = None) -> None:
        if plan.budget.adjacency == "add-remove":
            raise InvalidArgument("Pushed rows are placed by position, which adjacency='add-remove' does not allow.")
        self.plan = plan
        self._seeded = key is not None
        self._method = ALGORITHMS["accelerated-srgd"]()
        ledger = MemoryLedger(derive(new_key() if key is None else key, "pushed run", plan.digest()))
        self._run_id = ledger.run_id
        self._channel = Releaser(plan.calibration, plan.noise_mechanism, plan.problem.parameters, ledger)
        self._oracle = linear_oracle(plan.problem, plan.n)
        self._state = self._method.start(plan, plan.problem.domain.project(np.zeros(plan.problem.parameters)))
        self._pushed = Stream()
        self._waiting: list[tuple[Any, Array]] = []
        self._announced = 0
        self._interrupted = False
        self._begin_round()

    def _begin_round(self) -> None:
        self._query = self._method.ask(self.plan, self._state)
        self._sum = Clipped(np.zeros(self.plan.problem.parameters), 0)
        self._left = self.plan.batch_size

    @property
    def complete(self) -> bool:
        """Whether every round is released; rows that still come, up to n, are not read."""
        return self._channel.complete

    @property
    def model(self) -> Model:
        """The newest iterate as a model; at the start, before the first round is full."""
        return Model.from_parameters(self._method.output(self._state), self.plan.problem)

    @property
    def report(self) -> PrivacyReport:
        return report_of(self.plan, self._pushed, self._method, self._run_id, seeded=self._seeded, own_oracle=False)

    def check(self, rows: int) -> None:
        """Raise if so many more rows would go beyond n."""
        if self._announced + rows > self.plan.n:
            raise HorizonError(
                f"n={self.plan.n} rows were announced and {self._announced} have come; {rows} more would go beyond. "
                "The budget of this run ends with n: make a new estimator (a new run, a new budget) for further rows."
            )

    def push(self, features: Any, targets: Array) -> None:
        """Take some rows, in order."""
        rows = len(targets)
        self.check(rows)
        if self._interrupted:
            raise HorizonError(
                "An earlier call was interrupted while it took its rows; some of them may be in the sum, and to take "
                "them "
                "again would count them twice. Make a new estimator: a new run, a new budget."
            )
        self._interrupted = True
        self._announced += rows
        start = 0
        while start < rows and not self.complete:
            waiting = sum(len(y) for _, y in self._waiting)
            stop = min(rows, start + min(CHUNK_ROWS, self._left) - waiting)
            self._waiting.append((features[start:stop], targets[start:stop]))
            if waiting + stop - start == min(CHUNK_ROWS, self._left):
                self._absorb()
            start = stop
        self._interrupted = False

    def _absorb(self) -> None:
        """Answer the waiting rows, and release the round if they complete it."""
        size = sum(len(y) for _, y in self._waiting)
        chunk = (stacked([x for x, _ in self._waiting]), np.concatenate([y for _, y in self._waiting]))
        self._sum += self._oracle.answer(self._query, Batch(self._query.step, [chunk]))
        self._waiting = []
        self._left -= size
        self._pushed.rows_read = (self._pushed.rows_read or 0) + size
        if self._left:
            return
        self._state = self._method.tell(self.plan, self._state, self._channel.release(self._query, self._sum))
        if self._state.step == self.plan.rounds:
            self._channel.close()
        else:
            self._begin_round()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A run in progress holds rows and the noise key and is never pickled or copied.")

    def __repr__(self) -> str:
        return "PushedRun(<secret>)"
