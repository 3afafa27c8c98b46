"""The run: the only loop of the library. It asks, takes rows or sums, releases, and steps.

    with Run(plan, oracle=oracle) as run:
        while not run.complete:
            run.absorb(batch)             rows of the round, at once or in parts
            run.finish_round()            release, step
    run.model, run.report, run.trace

``train`` feeds a run from a stream, ``partial_fit`` pushes rows, Dask and Flower give it sums, audits watch it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.accounting.account import Account
from dpsco.clipping import Oracle, RowMap
from dpsco.errors import DpscoError, HorizonError, InvalidArgument
from dpsco.held_files import Place
from dpsco.methods import InGeometry, Surveyed
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.released_survey import Health
from dpsco.planning.second_stage import SecondStage
from dpsco.query import CHUNK_ROWS, Array, Batch, Clipped, Portion, Query, Released
from dpsco.release.noise import check_key, new_key
from dpsco.rows.layout import Layout
from dpsco.rows.rechunk import WaitingRows
from dpsco.run.facts import Facts, render
from dpsco.run.kept_facts import joined
from dpsco.run.preconditions import check_charged, check_use, starting_point, true_facts
from dpsco.run.report import PrivacyReport
from dpsco.run.result import Counts, Diagnostics, Model, Result, Round
from dpsco.run.row_counts import RowCounts
from dpsco.run.stage import Ledgers, Stage, State, evidence_of, rounds_behind
from dpsco.run.turns import Turns, in_turn
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
    start : array or Model, optional
        x_0, projected into the domain; 0 unless given. An array must not depend on the rows. The report says of a
        ``Model``, of an earlier run, that its own guarantee adds up.
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

    rows_read: int | None = None
    """Rows that came so far; None where the number is not public. Whoever feeds the run batches keeps it up to date."""
    rows_available: int | None = None
    """Rows there are, where that is known before reading and public."""
    unfinished = False
    """Whether a call that takes pushed rows is under way, or was interrupted: its rows may count already."""

    def __init__(
        self,
        plan: Plan,
        *,
        oracle: Oracle | None,
        start: ArrayLike | Model | None = None,
        key: bytes | None = None,
        checkpoint: str | Place | None = None,
        resume: bool = False,
        facts: Facts | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise InvalidArgument("Expected plan to be a dpsco.Plan.")
        self.plan, self.facts = plan, true_facts(plan, oracle, facts)
        x0 = starting_point(plan, start)
        if isinstance(start, Model):
            self.facts = dataclasses.replace(self.facts, started=True)
        check_use(plan, self.facts, elsewhere=oracle is None, checkpoint=checkpoint, resume=resume)
        self._watch, self._elsewhere, self._seeded = watch_in_force(), oracle is None, key is not None
        self._watched = self._watch.observer is not None or self._watch.replay is not None
        self._diagnostics, self._resources = diagnostics, ExitStack()
        about = {"plan": plan.to_dict(), "start": hashlib.sha256(x0.tobytes()).hexdigest()}
        self._survey: Stage | None = None
        self._second: SecondStage | None = None
        self._later: tuple[SecondStage, Stage] | None = None
        self._ledgers = Ledgers(self._resources, seeded=self._seeded, watched=self._watched, resume=resume)
        with ExitStack() as refused:  # a run that is refused keeps no lock, however long its error lives
            refused.callback(self._resources.close)
            ledger = self._ledgers.open(plan, about, checkpoint, new_key() if key is None else check_key(key))
            self.id, self._stage = ledger.run_id, Stage(plan, x0, oracle, ledger, self._watch.replay)
            self._ledger, self._kept = ledger, RowCounts.kept(ledger)
            self.facts = joined(self.facts, ledger)
            refused.pop_all()
        self._sum: tuple[Query, Clipped] | None = None  # with its round: another one's sum never counts
        self._waiting, self._pushed, self.turns = WaitingRows(), 0, Turns()
        self._begin_round()

    def _enter_second_stage(self, released: Array) -> None:
        """Plan the rounds behind a survey, and begin them. Each step may be tried again after an error."""
        survey = self._stage
        if self._later is None:
            replay = None if self._watch.replay is None else self._watch.replay[1:]
            later = rounds_behind(survey, released, self._ledgers, replay, elsewhere=self._elsewhere)
            self._later = self._later or later  # the handler of a signal may have gone on with the run meanwhile
        if self._second is None:
            self._survey, (self._second, self._stage) = survey, self._later

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every round is released and stepped."""
        return self._stage.complete and not (self._second is None and isinstance(self.plan.method, Surveyed))

    @property
    def query(self) -> Query:
        """What this round asks of each row: public. A method that may show its last iterate alone shows none."""
        if self.plan.method.releases == "last iterate":
            raise HorizonError(f"{self._last_alone} A query holds an iterate.")
        return self._asked()

    def _asked(self) -> Query:
        return self._round()[2]

    def _round(self) -> tuple[Stage, State, Query]:
        if self._begun is None:
            raise HorizonError("The run is complete: every round that the plan pays for was released.")
        return self._begun

    @property
    def _last_alone(self) -> str:
        return f"method={self.plan.method.name!r} may show its last iterate and nothing before it."

    @property
    def needs_rows(self) -> bool:
        """Whether this round still has to be answered; False in a run that was complete on disk."""
        return not self._stage.restored

    @property
    def sample(self) -> Callable[[int, int, float], NDArray[np.int64]]:
        """Which rows enter a sampled round. SECRET, like the noise."""
        return self._stage.releaser.sample

    def _begin_round(self) -> None:
        stage = self._stage
        self._sum = None
        self._left = 0 if self.complete else stage.schedule.mean_size
        self._begun = None if self.complete else (stage, stage.state, stage.ask())  # last: until here the old round is

    # --- what comes in and goes out ---------------------------------------------------------------

    def absorb(self, batch: Batch) -> int:
        """Take rows of this round: all of them, or some. Return how many count as zero rows. SENSITIVE."""
        stage, query = self._taking()
        self._add(query, clipped := stage.answer(query, batch))
        return clipped.zeroed_rows

    def absorb_sum(self, clipped: Clipped) -> None:
        """Take the clipped sum of rows of this round that was computed elsewhere."""
        stage, query = self._taking()
        stage.rows.count(query)
        self._add(query, clipped)

    def _taking(self) -> tuple[Stage, Query]:
        stage, state, query = self._round()
        stage.ledger.check_process()  # before a row is read: threads that read ahead are not in a fork
        if stage.state is not state:
            raise HorizonError("finish_round was interrupted after the release of this round. Call it again first.")
        return stage, query

    def _add(self, query: Query, clipped: Clipped) -> None:
        known = self._sum_of(query)
        if known is not None and self.plan.method.needs == "convexity":
            raise InvalidArgument(f"method={self.plan.method.name!r} works on all rows of a round at once.")
        self._sum = (query, clipped if known is None else known + clipped)  # the last statement: no lock, no signal

    def _sum_of(self, query: Query) -> Clipped | None:
        return None if self._sum is None or self._sum[0] is not query else self._sum[1]

    def begin_push(self, rows: int) -> None:
        """Begin a call that pushes so many rows; the caller ends it by ``unfinished = False``.

        Raises
        ------
        HorizonError
            If the rows would go beyond n, another call is under way, or an earlier one was interrupted.
        """
        self._stage.ledger.check_process()
        self.turns.once(self, rows)

    def push(self, features: Any, labels: Array, *, within: bool = False) -> None:
        """Take rows as they come, in order; a round ends by itself when it is full. Raises as ``begin_push``.

        Parameters
        ----------
        features, labels
            Rows behind the gate, and their targets.
        within : bool
            Whether the caller began the call by ``begin_push``. It ends it in its last statement, ``unfinished =
            False``: Python handles no signal between a plain assignment and the ``return`` behind it.
        """
        fresh = self._stage.schedule.portions is None and self.plan.method.single_epoch
        if not fresh or self.plan.budget.adjacency == "add-remove":
            raise InvalidArgument("Pushed rows are placed by position, in rounds of one size: plan for that.")
        if not within:
            self.begin_push(len(labels))
        self._pushed += len(labels)
        self._waiting.put(features, labels)
        while not self.complete and self._waiting.rows >= (size := min(CHUNK_ROWS, self._left)):
            self.absorb(Batch(self._asked().step, [self._waiting.take(size)]))
            self.rows_read = (self.rows_read or 0) + size
            self._left -= size
            if not self._left:
                self.finish_round()
        self._waiting.own_last()
        if self.complete:
            self._waiting = WaitingRows()  # rows that still come, up to n, are not read
            self.erase_key()
        self.unfinished = within

    def charge(self, account: Account) -> None:
        """Write the run down in ``account``, or refuse; before the first release.

        Raises
        ------
        AccountError
            If the run is not private, has no Gaussian-DP parameter, or goes beyond the account's limit.
        """
        check_charged(self.plan, private=not (self._seeded or self._watched))
        account.charge(self.id, self.facts.budget or self.plan.budget)

    @in_turn
    def finish_round(self) -> Round | None:
        """Release the round's sum and take the step.

        Returns
        -------
        Round or None
            The round as the public may see it; None where the method's proof covers the last iterate alone.
        """
        stage, state, query = self._round()
        if stage.state is state:  # else an interrupted call, or one that could not plan the next rounds, took the step
            stage.tell(self._release(query, stage))
        if stage.complete and self._second is None and isinstance(self.plan.method, Surveyed):
            self._enter_second_stage(stage.state.released)
        self._begin_round()
        return stage.last

    def _release(self, query: Query, stage: Stage) -> Released:
        if stage.restored:
            return stage.releaser.stored(query.step)
        clipped = self._sum_of(query) or Clipped(np.zeros(stage.schedule.sum_length), 0)
        if self._diagnostics is not None:
            self._diagnostics.note(clipped)
        released = stage.releaser.release(query, clipped)
        if self._watch.observer is not None:
            self._watch.observer(query, clipped, released)
        return released

    def erase_key(self) -> None:
        """After the last round: erase the noise keys. The end of a ``with`` block does it too."""
        if self.complete:
            try:
                if self.needs_rows:
                    self._rows.keep(self._ledger)
            finally:
                # A survey keeps its key until here: a resumed run answers it again, other rows or orders are refused.
                for stage in filter(None, (self._stage, self._survey)):
                    stage.releaser.close()

    @property
    def _rows(self) -> RowCounts:
        return RowCounts(self.rows_read, self.rows_available) if self.needs_rows else self._kept

    @property
    def model(self) -> Model:
        """The newest iterate as a model; at the start, before the first round is full."""
        if self.plan.method.releases == "last iterate" and not self.complete:
            raise HorizonError(self._last_alone)
        x = self._stage.method.output(self._stage.state)
        if self._second is not None:
            x = self._second.map.parameters(x)
        if self.row_map is not None:
            x = self.plan.problem.domain.project(x)
        return Model.from_parameters(x, self.plan.problem)

    @property
    def trace(self) -> tuple[Round, ...]:
        """The rounds so far."""
        return self._stage.trace

    @property
    def counts(self) -> Counts:
        """The work so far, in public numbers."""
        counts = self._stage.rows.counts
        return counts if self._survey is None else self._survey.rows.counts + counts

    @property
    def second(self) -> SecondStage | None:
        """The rounds behind a survey, once its release has planned them: private by post-processing. None before."""
        return self._second

    @property
    def row_map(self) -> RowMap | None:
        """The map of the rows of this round: that of a survey or of the plan's geometry. Public. None without one."""
        if isinstance(self.plan.method, InGeometry):
            return self.plan.method.map
        return None if self._second is None else self._second.map

    @property
    def geometry(self) -> Geometry | None:
        """What the survey says of the rows; ``result.geometry`` states its source. None before its release."""
        return None if self._second is None else self._second.geometry

    @property
    def health(self) -> Health | None:
        """What the survey says of the rows' fitness: private and publishable. None without one."""
        return None if self._second is None else self._second.health

    def coming(self) -> Iterator[Portion]:
        """Positions of the rows of each round, from this round on, where rounds see fresh rows. Public.

        Ask for the next one after ``finish_round``: a survey decides on the portions behind it.
        """
        while not self.complete:
            size, behind = self._stage.schedule.batch_size, self._survey
            first = self._asked().step * size + (0 if behind is None else behind.schedule.rows)
            yield Portion(first, first + size)

    @property
    def layout(self) -> Layout:
        """The public layout of the rows, for a stream; a survey decides on the portions behind it."""
        layout = self.plan.layout
        return dataclasses.replace(layout, coming=self.coming) if isinstance(self.plan.method, Surveyed) else layout

    @property
    def report(self) -> PrivacyReport:
        """The privacy report."""
        known = {"seeded": self._seeded, "watched": self._watched}
        return render(self.plan, self.facts, self.id, **known, rows=self._rows, second=self._second)

    @property
    def result(self) -> Result:
        """Model, report, trace, plan and counts."""
        return Result(
            model=self.model,
            report=self.report,
            trace=self.trace,
            plan=self.plan,
            counts=self.counts,
            geometry=self.geometry,
            health=self.health,
            evidence=evidence_of(self.plan, self._second, self._stage),
            prediction=(self._second or self).plan.prediction,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *where: object) -> None:
        try:
            self.erase_key()  # also after an error behind the last round, in ``on_round`` say
        except (DpscoError, OSError):  # a full disk, a forked child
            if error is None:
                raise
            error.add_note("The noise key of this run could not be erased: resume the run to erase it.")
        finally:
            self._resources.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A run in progress holds rows and the noise key and is never pickled or copied.")

    def __repr__(self) -> str:
        return "Run(<secret>)"
