"""The server's half: ask a round's clients, check what comes back, add it up; the run does the rest.

``serve`` gives the sum of each cohort to a ``Run``, so noise, ledger, checkpoints, accounts and the report are those of
any other run.

Guarantee
    A client moves one round's sum by at most one clip, whatever it or anybody sends:
    * a contribution counts in the round that ``assignment`` gives its client, once, and nowhere else; two different
      ones under one id count as 0, so a client that uses another's id can cancel its contribution but not replace it
      (then the other's absence would change the sum by two clips);
    * a client's vector is clipped again here (unit client); with unit example the clients' clipping is taken on trust,
      and a sum longer than all rows of the plan together is scaled down to that length, which brings no two sums
      further apart;
    * what is late, repeated, malformed, not finite, or answers another query counts as 0, and the denominator is the
      plan's, so nobody's absence changes what anybody else's answer is worth;
    * whether the run ends in an error because nobody answered is decided by a private count (presence.py).
Trust
    The server sees every clipped answer before the noise: this is central differential privacy.
Cost
    One message to each node and O(p) per contribution; with a checkpoint, one p-vector on disk per round until the end.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.accounting.account import Account
from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.clipping.row_map import RowMap
from dpsco.clipping.survey import sum_length
from dpsco.engines.flower import wire
from dpsco.engines.flower.assignment import Assignment, Hashed, Roster
from dpsco.engines.flower.client import called_by, clipped
from dpsco.engines.flower.cohorts import CohortStore, open_cohorts
from dpsco.engines.flower.linear_gradients import survey_numbers
from dpsco.engines.flower.presence import SHARE, Count, refuse_silence, silent
from dpsco.errors import DpscoError, InvalidArgument, LedgerError, one_of
from dpsco.methods import Surveyed
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.planning.plan import Plan
from dpsco.query import Array, Clipped, Portion, Query
from dpsco.run import Clipping, Facts, Model, Result, Round, Run
from dpsco.run.train import drive

__all__ = ["UNITS", "Attendance", "FederatedOracle", "Transport", "serve"]

UNITS = {"client": wire.CLIENT, "example": wire.EXAMPLE}

_EXACT = 2**53
"""Whole numbers up to here are float64 numbers."""

_PROTECTED = {
    "zero-out": "one client: its whole contribution replaced by 0, its place and the number of clients public",
    "replace": "one client: all its rows replaced by any others, the number of clients public",
    "add-remove": "one client: there or not there, the number of clients secret",
}


class Transport(Protocol):
    """Whatever carries bytes to nodes and back."""

    def ask(self, query: bytes, step: int) -> Iterable[tuple[int, bytes | None]]:
        """(node, answer) pairs in any order; None for a node that failed; nothing for one that did not answer."""


@dataclasses.dataclass
class Attendance:
    """Who came, round by round: NOT PRIVATE, for whoever runs the server.

    ``on_round(step, counts)`` is called when the answers of a round are in: for an operator's log.
    """

    rounds: list[Counter[str]] = dataclasses.field(default_factory=list)
    on_round: Callable[[int, Counter[str]], None] | None = None

    def add(self, step: int, seen: Counter[str]) -> None:
        """Take down one round."""
        self.rounds.append(seen)
        if self.on_round is not None:
            self.on_round(step, seen)


class FederatedOracle:
    """``answer``: the clipped sum over the clients of one round."""

    def __init__(
        self,
        plan: Plan,
        transport: Transport,
        unit: str,
        assignment: Assignment,
        store: CohortStore | None = None,
        attendance: Attendance | None = None,
    ) -> None:
        self._plan, self._transport, self._assignment = plan, transport, assignment
        self._unit, self._store, self._attendance = UNITS[unit], store, attendance
        self._counted, self.process = 0, os.getpid()

    def counted(self) -> int:
        """Clients counted in all rounds so far (nodes that sent a sum, if examples are the unit). SECRET.

        With a checkpoint: in the rounds whose answers are kept there, which are none after the run.

        Raises
        ------
        LedgerError
            In a fork: it would release the count a second time, with noise of its own.
        """
        if self.process != os.getpid():
            raise LedgerError("This federation belongs to the process that began it, and this process is a fork of it.")
        return self._counted if self._store is None else self._store.counted()

    def answer(self, query: Query, part: Portion | None = None, row_map: RowMap | None = None) -> Clipped:
        """Ask; or, where a stopped run had the answers already, what it had: clients are not asked twice.

        Parameters
        ----------
        query : Query
            What the round asks.
        part : Portion, optional
            Places of its clients; those of round ``query.step`` unless a survey decides on the rounds.
        row_map : RowMap, optional
            That of the rounds behind a survey.
        """
        message, step = self._message(query, part, row_map), query.step
        if isinstance(self._plan.method, Surveyed) and row_map is not None:
            step += 1
        asked = wire.decode_query(message)
        total = None if self._store is None else self._store.load(asked, step)
        if total is None:
            seen: Counter[str] = Counter()
            total = self._sum(asked, self._transport.ask(message, step), seen)
            self._counted += seen["counted"]
            if self._store is not None:
                self._store.save(asked, step, total, seen["counted"])
            if self._attendance is not None:
                self._attendance.add(step, seen)
        return Clipped(total, 0)

    def _message(self, query: Query, part: Portion | None, row_map: RowMap | None) -> bytes:
        plan, survey = self._plan, query.moment
        surveyed = part is not None and isinstance(plan.method, Surveyed)
        first, last = (part.first, part.last) if part is not None and surveyed else (query.step, query.step + 1)
        factors = None
        if isinstance(row_map, LowRankMap):
            gains = row_map.gains - row_map.rest
            factors = wire.Factors(row_map.rest, row_map.own_scale, gains, np.ascontiguousarray(row_map.directions.T))
        elif isinstance(row_map, DiagonalMap):
            factors = wire.Factors(1.0, row_map.sides, np.zeros(0), np.zeros((0, row_map.columns)))
        return wire.encode_query(
            run=bytes.fromhex(plan.digest()),
            first=first,
            last=last,
            places=plan.layout.places,
            unit=self._unit,
            clip=query.clip,
            grid=query.grid,
            weights=query.weights if survey is None else (),
            points=query.points if survey is None else (),
            length=sum_length(query),
            matrix=None if row_map is None or factors is not None else row_map.own,
            factors=factors,
            survey=None if survey is None else survey_numbers(survey),
        )

    def _sum(self, asked: wire.Asked, replies: Iterable[tuple[int, bytes | None]], seen: Counter[str]) -> Array:
        total: NDArray[Any] = np.zeros(asked.length, dtype=np.float64 if asked.grid == 0.0 else np.int64)
        accepted = sorted(self._accepted(asked, replies, seen), key=lambda pair: str(pair[0]))
        for _, answers in groupby(accepted, key=lambda pair: pair[0]):
            numbers, *again = (numbers for _, numbers in answers)
            seen["repeated"] += len(again)
            if not all(np.array_equal(numbers, other) for other in again):
                seen["contradicts another answer"] += 1
                continue
            counted = self._bounded(asked, numbers, seen)
            if counted is None:
                continue
            seen["counted"] += 1
            total = total + counted
            if asked.grid > 0.0:  # saturates, which brings neighbours no further apart: nobody drives sums out of range
                total = np.clip(total, -_EXACT, _EXACT)
        return np.asarray(total * (asked.grid or 1.0), dtype=np.float64)

    def _accepted(
        self, asked: wire.Asked, replies: Iterable[tuple[int, bytes | None]], seen: Counter[str]
    ) -> Iterator[tuple[str | int, NDArray[Any]]]:
        """Well-formed contributions of clients whose round this is (of nodes, if examples are the unit)."""
        for node, message in sorted(replies, key=lambda reply: (reply[0], reply[1] or b"")):
            if message is None:
                seen["failed"] += 1
                continue
            try:
                contributions = wire.decode_answer(asked, message)
            except wire.Malformed as error:
                seen[str(error)] += 1
                continue
            seen["answered"] += 1
            for name, numbers in contributions:
                if asked.unit == wire.EXAMPLE:
                    yield node, numbers
                elif called_by(asked, self._assignment, name):
                    yield name, numbers
                else:
                    seen["not its round"] += 1

    def _bounded(self, asked: wire.Asked, numbers: NDArray[Any], seen: Counter[str]) -> NDArray[Any] | None:
        """Return the contribution within its bound: C for a client; for a sum of rows, C for each row of the plan.

        What is longer is scaled down to the bound. Projection to a ball brings no two vectors further apart, so a row
        moves a long sum no more than a short one; the rounding after it is within the plan's slack.
        """
        if not np.all(np.isfinite(numbers)):
            seen["not finite"] += 1
            return None
        grid = asked.grid or 1.0
        length = grid * float(np.linalg.norm(numbers.astype(np.float64)))
        # An honest client rounds after clipping; that half step is in the plan's sensitivity, and 2^-20 of it to spare.
        bound = (asked.clip + math.sqrt(numbers.size) / 2 * asked.grid) * (1 + 2.0**-20)
        if asked.unit == wire.EXAMPLE:
            most = self._plan.n * bound
            if length <= most:
                return numbers
            seen["longer than all rows together"] += 1
            shorter = numbers.astype(np.float64) * (most / length)
            return shorter if asked.grid == 0.0 else np.rint(shorter).astype(np.int64)
        if length <= bound:
            return numbers
        seen["clipped again"] += 1
        again = clipped(grid * numbers.astype(np.float64)[None, :], asked.clip)[0]
        return again if asked.grid == 0.0 else np.rint(again / grid).astype(np.int64)


def serve(
    plan: Plan,
    transport: Transport,
    *,
    unit: str = "client",
    assignment: Assignment | None = None,
    start: ArrayLike | Model | None = None,
    key: bytes | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    account: Account | None = None,
    on_round: Callable[[Round], None] | None = None,
    attendance: Attendance | None = None,
) -> Result:
    """Train as ``plan`` says on clients that ``transport`` reaches, each in one round.

    Parameters
    ----------
    plan : Plan
        ``n`` is public and fixed: plan for the answers you expect, clients times the share that answers. More or fewer
        cost accuracy, never privacy. A survey needs clients of ``linear_gradients``, or of your own with a method
        ``survey``.
    transport : Transport
        Reaches the nodes that host clients: ``LocalNodes`` or ``FlowerNodes``.
    unit : {"client", "example"}
        ``"client"``: ``plan.n`` counts clients, and all of a client is protected. ``"example"``: ``plan.n`` counts
        rows, one row is protected, and clients are trusted to clip.
    assignment : Assignment, optional
        Who belongs to which round: ``Hashed()`` unless given, or a ``Roster``.
    start, key, account, on_round
        As in ``dpsco.train``.
    checkpoint, resume
        As in ``dpsco.train``; answers of a round are kept there too, SECRET, until the run is complete, because
        clients are not asked twice.
    attendance : Attendance, optional
        Filled with the clients of each round: NOT PRIVATE.

    Returns
    -------
    Result

    A private run gives a hundredth of mu^2 to a count of the clients that answered. It ends in ``ClusterError`` if that
    count says that nobody did (presence.py).
    """
    one_of("unit", unit, UNITS)
    rule = assignment or Hashed()
    if isinstance(rule, Roster):
        _check_roster(rule, plan)
    if plan.schedule.survey_length and plan.budget.adjacency == "replace":
        raise InvalidArgument(
            "Second moments have noise for two contributions of their own form, which are closer than two clips. The "
            "server checks lengths and cannot check that form. Plan with adjacency='add-remove' or 'zero-out', or with "
            "survey='none' and a method that releases gradients."
        )
    if isinstance(plan.method, Surveyed) and plan.method.later == MeasuredSRGD.name:
        raise InvalidArgument(
            "survey='intervals' asks for squares of contributions, which devices do not send. Plan with survey='full': "
            "intervals are then given where its survey is good enough."
        )
    count = Count(plan) if unit == "client" and key is None and plan.budget.private else None
    kept = nullcontext() if checkpoint is None else open_cohorts(Path(checkpoint), plan, unit, rule.digest())
    with kept as store:
        clients = FederatedOracle(plan, transport, unit, rule, store, attendance)
        run = Run(
            plan if count is None else count.training,
            oracle=None,
            start=start,
            key=key,
            checkpoint=None if store is None else store.run,
            resume=resume,
            facts=dataclasses.replace(_facts(plan, unit, count), form=f"{unit} {rule.digest()}"),
        )
        run.rows_read = None  # who came stays secret
        if store is not None:
            store.run_id = run.id

        def feed(part: Portion) -> None:
            if run.needs_rows:
                run.absorb_sum(clients.answer(run.query, part, run.row_map))

        with run:
            try:
                result = drive(run, run.coming(), feed, account=account, on_round=on_round)
            except BaseException:  # behind the last release too, in ``on_round`` say: then no sum stays behind either
                with suppress(DpscoError, OSError):  # while the key cannot be erased, a resumed run needs the answers
                    run.erase_key()
                    if run.complete:
                        _ended(clients, count, store, run.id)
                raise
        nobody = _ended(clients, count, store, run.id)
    refuse_silence(silent=nobody)
    return dataclasses.replace(result, plan=plan)


def _ended(clients: FederatedOracle, count: Count | None, store: CohortStore | None, run: str) -> bool:
    """Return whether nobody answered, and erase the answers: they last no longer than the noise key."""
    nobody = _silent(clients, count, store, run)
    if store is not None:
        store.erase()
    return nobody


def _silent(clients: FederatedOracle, count: Count | None, store: CohortStore | None, run: str) -> bool:
    """Whether nobody answered; decided once and, with a checkpoint, on disk before the answers are erased."""
    counted = clients.counted()
    if count is not None:
        return silent(count.release(counted, None if store is None else store.folder, run, clients.process), count)
    return counted == 0 if store is None else store.silent(found=counted == 0)


def _check_roster(roster: Roster, plan: Plan) -> None:
    if isinstance(plan.method, Surveyed):
        raise InvalidArgument(
            "A roster states the round of each client, and a survey decides on the rounds. Use the hashed assignment, "
            "or plan with survey='none'."
        )
    if plan.budget.adjacency == "add-remove":
        raise InvalidArgument(
            "adjacency='add-remove' needs clients that choose their round by themselves: a roster is a list of who is "
            "there. Use the hashed assignment, or adjacency='zero-out'."
        )
    if any(not isinstance(name, str) or not wire.can_carry(name) for name in roster.rounds):
        raise InvalidArgument(
            f"Expected every id of the roster to be text of at most {wire.LONGEST_ID} printable ASCII "
            "characters: an answer cannot name another one."
        )
    if any(isinstance(t, bool) or not isinstance(t, int) or not 0 <= t < plan.rounds for t in roster.rounds.values()):
        raise InvalidArgument(f"Expected every round of the roster to be a whole number from 0 to {plan.rounds - 1}.")


def _facts(plan: Plan, unit: str, count: Count | None) -> Facts:
    """Return what a federation states in its report; its budget is that of training and count together."""
    trusted: tuple[str, ...] = (
        "the server is trusted: it sees clipped answers before the noise (central differential privacy)",
        "clients are assigned to rounds up front, by public rules, and each keeps to one id",
        "how long one client takes to answer decides for no other whether it is connected, or answers in time",
    )
    if unit == "example":
        trusted += (
            "whether nobody answered is decided by the number of nodes that sent a sum, without noise: no row changes "
            "it, because nodes host the same clients, and gradient functions answer, whatever one row holds",
        )
        return Facts(clipping=Clipping.CLIENTS, trusted=trusted)
    if count is not None:
        trusted += (
            f"{SHARE * SHARE:.0%} of mu^2 went to a private count of the clients that answered, the rest to training"
            + ("" if count.tells else "; with so few clients it cannot tell whether anybody answered"),
        )
    protected = _PROTECTED[plan.budget.adjacency]
    return Facts(clipping=Clipping.SERVER, trusted=trusted, record="client", unit=protected, budget=plan.budget)
