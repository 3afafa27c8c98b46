"""The run: the only loop of the library. It asks, takes rows or sums, releases, and steps.

    with Run(plan, oracle=oracle) as run:
        while not run.complete:
            run.absorb(batch)             rows of the round, at once or in parts
            run.finish_round()            release, step
    run.model, run.report, run.trace

``train`` feeds a run from a stream, ``partial_fit`` pushes rows into it as they come, Dask and Flower give it sums that
were computed elsewhere, and audits watch it (watch.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.accounting.account import Account
from dpsco.clipping import Oracle
from dpsco.errors import AccountError, HorizonError, InvalidArgument
from dpsco.json_files import canonical
from dpsco.planning.plan import Plan
from dpsco.query import CHUNK_ROWS, Array, Batch, Clipped, Query
from dpsco.release.ledger import MemoryLedger, open_folder
from dpsco.release.noise import check_key, derive, new_key
from dpsco.release.releaser import Releaser
from dpsco.rows.rechunk import WaitingRows
from dpsco.run.facts import Clipping, Facts, render
from dpsco.run.report import PrivacyReport
from dpsco.run.result import Counts, Diagnostics, Model, Result, Round
from dpsco.run.row_access import CountedRows
from dpsco.run.watch import watch_in_force

__all__ = ["Run"]


class Run:
    """One run of a plan, round by round.

    Parameters
    ----------
    plan : Plan
        What to run.
    oracle : Oracle, optional
        Computes clipped sums of the rows that are absorbed. None if sums are computed elsewhere.
    start : array, optional
        x_0, projected into the domain; 0 unless given. It must not depend on the rows.
    key : bytes, optional
        32 bytes that fix the noise, for research: the report then says "not private".
    checkpoint : path, optional
        A folder that survives a killed process: after each round the release is on disk.
    resume : bool
        Go on with the run in ``checkpoint``. Rounds released before are answered again and compared; a run that is
        complete needs no rows.
    facts : Facts, optional
        What the report states beyond the plan.
    diagnostics : Diagnostics, optional
        Filled with tallies that are NOT PRIVATE.

    Raises
    ------
    InvalidArgument
        If the method's guarantee does not cover the use.

    Guarantee: models, traces, reports, counts and checkpointed releases of all moments together satisfy the plan's
    budget. No row changes any of them before the noise of its round is on it.
    Cost: a few p-vectors, and fewer than ``CHUNK_ROWS`` pushed rows; both are SENSITIVE, so a run is never pickled.
    """

    rows_read: int | None = 0
    """Rows that came so far; None where the number is not public. Whoever feeds the run keeps it up to date."""
    rows_available: int | None = None
    """Rows there are, where that is known before reading and public."""

    def __init__(
        self,
        plan: Plan,
        *,
        oracle: Oracle | None,
        start: ArrayLike | None = None,
        key: bytes | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        facts: Facts | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise InvalidArgument("Expected plan to be a dpsco.Plan.")
        self.plan, self.facts = plan, facts or Facts()
        self._method, self._schedule = plan.method, plan.schedule
        x0 = _start(plan, start)
        _check_uses(plan, self.facts, elsewhere=oracle is None, checkpoint=checkpoint)
        watch = watch_in_force()
        self._seeded, self._observer, self._replayed = key is not None, watch.observer, watch.replay is not None
        self._diagnostics = diagnostics
        about = {
            "plan": plan.to_dict(),
            "start": hashlib.sha256(x0.tobytes()).hexdigest(),
            "seeded": self._seeded,
            "noise": self._schedule.noise_digest(),
        }
        digest = hashlib.sha256(canonical(about)).hexdigest()
        # Another plan or start under the same master key has unrelated noise.
        run_key = derive(new_key() if key is None else check_key(key), "run", digest)
        parameters, rounds = plan.problem.parameters, self._schedule.rounds
        self._resources = ExitStack()
        if checkpoint is not None:
            ledger: Any = self._resources.enter_context(
                open_folder(Path(checkpoint), about, digest, parameters, rounds, run_key, resume=resume)
            )
        elif resume:
            raise InvalidArgument("resume=True needs checkpoint=FOLDER: there is nothing to resume from.")
        else:
            ledger = MemoryLedger(run_key)
        self.id: str = ledger.run_id
        self._releaser = Releaser(
            self._schedule.calibration, self._schedule.mechanism, parameters, ledger, replay=watch.replay
        )
        self._restored = self._releaser.complete
        self._rows = CountedRows(oracle, plan.problem, self._releaser.indices, self._method.needs == "convexity")
        self._state = self._method.start(self._schedule, x0)
        self._trace: list[Round] = []
        self._waiting, self._pushed, self._interrupted = WaitingRows(), 0, False
        self._begin_round()

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every round is released and stepped."""
        return bool(self._state.step == self._schedule.rounds)

    @property
    def query(self) -> Query:
        """What this round asks of each row. Public."""
        if self._query is None:
            raise HorizonError("The run is complete: every round that the plan pays for was released.")
        return self._query

    @property
    def needs_rows(self) -> bool:
        """Whether this round still has to be answered; False in a run that was complete on disk."""
        return not self._restored

    @property
    def sample(self) -> Callable[[int, int, float], NDArray[np.int64]]:
        """Which rows enter a sampled round. SECRET, like the noise."""
        return self._releaser.sample

    def _begin_round(self) -> None:
        self._sum: Clipped | None = None
        self._query = None if self.complete else self._method.ask(self._schedule, self._state)
        self._left = 0 if self.complete else self._schedule.mean_size

    # --- what comes in ----------------------------------------------------------------------------

    def absorb(self, batch: Batch) -> None:
        """Take rows of this round: all of them, or some."""
        portions, query = self._schedule.portions, self.query
        self._rows.at(None if portions is None else portions[query.step])
        self._add(self._method.answer(self._schedule, query, batch, self._rows))

    def absorb_sum(self, clipped: Clipped) -> None:
        """Take the clipped sum of rows of this round that was computed elsewhere."""
        self._rows.count(self.query)
        self._add(clipped)

    def _add(self, clipped: Clipped) -> None:
        if self._sum is not None and self._method.needs == "convexity":
            raise InvalidArgument(f"method={self._method.name!r} works on all rows of a round at once.")
        self._sum = clipped if self._sum is None else self._sum + clipped

    def check_room(self, rows: int) -> None:
        """Raise ``HorizonError`` if so many more pushed rows would go beyond n."""
        if self._pushed + rows > self.plan.n:
            raise HorizonError(
                f"n={self.plan.n} rows were announced and {self._pushed} have come; {rows} more would go beyond. "
                "The budget of this run ends with n: make a new estimator (a new run, a new budget) for further rows."
            )

    def push(self, features: Any, labels: Array) -> None:
        """Take rows as they come, in order; a round ends by itself when it is full.

        Raises
        ------
        HorizonError
            If the rows would go beyond n, or an earlier call was interrupted.
        """
        if self._schedule.portions is not None or self.plan.budget.adjacency == "add-remove":
            raise InvalidArgument("Pushed rows are placed by position, in rounds of one size: plan for that.")
        self.check_room(len(labels))
        if self._interrupted:
            raise HorizonError(
                "An earlier call was interrupted while it took its rows. Some of them may be in the sum, and taking "
                "them again would count them twice. Make a new estimator: a new run, a new budget."
            )
        self._interrupted = True
        self._pushed += len(labels)
        self._waiting.put(features, labels)
        while not self.complete and self._waiting.rows >= (size := min(CHUNK_ROWS, self._left)):
            self.absorb(Batch(self.query.step, [self._waiting.take(size)]))
            self.rows_read = (self.rows_read or 0) + size
            self._left -= size
            if not self._left:
                self.finish_round()
        if self.complete:
            self._waiting = WaitingRows()  # rows that still come, up to n, are not read
            self.erase_key()
        self._interrupted = False

    # --- what goes out ----------------------------------------------------------------------------

    def charge(self, account: Account) -> None:
        """Write the run down in ``account``, or refuse; before the first release.

        Raises
        ------
        AccountError
            If the run is not private, has no Gaussian-DP parameter, or goes beyond the account's limit.
        """
        if self._seeded or self._replayed:
            raise AccountError(
                "A run with a given key is not private and cannot be charged to an account. Leave the key out."
            )
        if not self._schedule.accounting.gaussian:
            raise AccountError(
                f"An account adds up Gaussian-DP parameters, and method={self._method.name!r} has none: its epsilon "
                "holds at one delta. Keep its runs out of the account and compose them with their accountant."
            )
        account.charge(self.id, self.facts.budget or self.plan.budget)

    def finish_round(self) -> Round | None:
        """Release the round's sum and take the step.

        Returns
        -------
        Round or None
            The round as the public may see it; None where the method's proof covers the last iterate alone.
        """
        query = self.query
        if self._restored:
            released = self._releaser.stored(query.step)
        else:
            clipped = self._sum or Clipped(np.zeros(self.plan.problem.parameters), 0)
            if self._diagnostics is not None:
                self._diagnostics.note(clipped)
            released = self._releaser.release(query, clipped)
            if self._observer is not None:
                self._observer(query, clipped, released)
        before = self._state
        self._state = self._method.tell(self._schedule, before, released)
        self._begin_round()
        if self._method.releases == "last iterate":
            return None
        self._trace.append(_seen(before, self._state))
        return self._trace[-1]

    def erase_key(self) -> None:
        """After the last round: erase the noise key. The end of a ``with`` block does it too."""
        if self.complete:
            self._releaser.close()

    @property
    def model(self) -> Model:
        """The newest iterate as a model; at the start, before the first round is full."""
        if self._method.releases == "last iterate" and not self.complete:
            raise HorizonError(f"method={self._method.name!r} may show its last iterate and nothing before it.")
        return Model.from_parameters(self._method.output(self._state), self.plan.problem)

    @property
    def trace(self) -> tuple[Round, ...]:
        """The rounds so far."""
        return tuple(self._trace)

    @property
    def counts(self) -> Counts:
        """The work so far, in public numbers."""
        return self._rows.counts

    @property
    def report(self) -> PrivacyReport:
        """The privacy report."""
        return render(
            self.plan,
            self.facts,
            self.id,
            seeded=self._seeded,
            watched=self._replayed or self._observer is not None,
            rows_read=self.rows_read,
            rows_available=self.rows_available,
        )

    @property
    def result(self) -> Result:
        """Model, report, trace, plan and counts."""
        return Result(model=self.model, report=self.report, trace=self.trace, plan=self.plan, counts=self.counts)

    # --- one process, one owner ------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self.erase_key()
        finally:
            self._resources.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A run in progress holds rows and the noise key and is never pickled or copied.")

    def __repr__(self) -> str:
        return "Run(<secret>)"


def _start(plan: Plan, start: ArrayLike | None) -> Array:
    size = plan.problem.parameters
    x0 = np.zeros(size) if start is None else np.array(start, dtype=np.float64).ravel()
    if x0.size != size or not np.all(np.isfinite(x0)):
        raise InvalidArgument(f"Expected start to be {size} finite numbers, got {x0.size}.")
    return plan.problem.domain.project(x0)


def _check_uses(plan: Plan, facts: Facts, *, elsewhere: bool, checkpoint: object) -> None:
    """Refuse what the guarantee of the method does not cover."""
    method, portions = plan.method, plan.schedule.portions
    if method.needs == "convexity" and (elsewhere or facts.clipping is not Clipping.LIBRARY):
        raise InvalidArgument(
            f"method={method.name!r} is private for convex losses only, which the library cannot know of an oracle "
            "that is not its own. Use a method that needs clipping alone."
        )
    if elsewhere and portions is not None:
        raise InvalidArgument(
            f"method={method.name!r} decides by itself how many rows each round sees, and rows that are elsewhere can "
            "only be cut into fresh batches of one size. Use dpsco.train on stream(X, y)."
        )
    if method.releases == "last iterate" and checkpoint is not None:
        raise InvalidArgument(
            f"method={method.name!r} may show its last iterate and nothing before it, and a checkpoint holds the "
            "releases of every round. Leave checkpoint out."
        )


def _seen(before: Any, after: Any) -> Round:
    nabla, move = after.nabla, after.x - before.x
    length = 0.0 if nabla is None else math.sqrt(nabla.dot(nabla))
    return Round(step=before.step, gradient_norm=length, move=math.sqrt(move.dot(move)))
