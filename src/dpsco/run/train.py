"""``dpsco.train``: one run, fed from a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from numpy.typing import ArrayLike

from dpsco.accounting.account import Account
from dpsco.clipping import (
    CompiledOracle,
    LinearOracle,
    MappedOracle,
    Oracle,
    SurveyOracle,
    linear_oracle,
    survey_oracle,
)
from dpsco.errors import InvalidArgument
from dpsco.methods import InGeometry
from dpsco.parallel import one_blas_thread
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss
from dpsco.query import Batch
from dpsco.rows.stream import Stream
from dpsco.run.facts import Clipping, Facts
from dpsco.run.preconditions import capped_facts
from dpsco.run.progress import progress_bar
from dpsco.run.result import Diagnostics, Model, Result, Round
from dpsco.run.run import Run

__all__ = ["drive", "library_oracle", "train"]

T = TypeVar("T")

_OWN_ORACLES = (CompiledOracle, LinearOracle, MappedOracle, SurveyOracle)
"""Oracles with threads of their own: those of BLAS would only be in their way."""


def train(
    plan: Plan,
    stream: Stream,
    *,
    start: ArrayLike | Model | None = None,
    oracle: Oracle | None = None,
    key: bytes | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    account: Account | None = None,
    progress: bool = False,
    on_round: Callable[[Round], None] | None = None,
    diagnostics: Diagnostics | None = None,
    facts: Facts | None = None,
) -> Result:
    """Train as ``plan`` says, on the rows of ``stream``.

    Parameters
    ----------
    plan : Plan
        Problem, number of rows, budget and method. Some methods go over the rows more than once (the stream must then
        be of arrays), and some are private for convex losses only: ``docs/methods.md``.
    stream : Stream
        The rows, from ``dpsco.stream``.
    start : array or Model, optional
        x_0, projected into the domain; 0 unless given. An array must not depend on the rows of the stream. The report
        says of a ``Model``, of an earlier run, that its own guarantee adds up.
    oracle : Oracle, optional
        Computes clipped sums; the loss of the plan decides unless given (``PerExample(gradient)`` takes any).
    key : bytes, optional
        32 bytes that fix the noise, for research: the report then says "not private".
    checkpoint : path, optional
        A folder that survives a killed process: after each round the release is on disk.
    resume : bool
        Go on with the run in ``checkpoint``, with the same plan and a stream of the same rows, bit for bit. Other rows
        are refused. A run that is complete is given back as it was, whatever the stream holds.
    account : Account, optional
        Charged before the first release.
    progress : bool
        Show a progress bar.
    on_round : callable, optional
        Called with each ``Round``.
    diagnostics : Diagnostics, optional
        Filled with tallies that are NOT PRIVATE, for whoever may see the data.
    facts : Facts, optional
        What the report states beyond the plan.

    Returns
    -------
    Result

    Raises
    ------
    InvalidArgument, DataError, LedgerError, CheckpointError, AccountError
        If the arguments, the rows, the checkpoint or the account do not fit the plan.

    Guarantee: model, trace, report, counts, checkpointed releases and everything passed to ``on_round`` together
    satisfy the plan's budget.
    Cost (of the default method): one read of the rows, two gradients each; memory of a chunk and a few p-vectors.
    """
    if not isinstance(plan, Plan):
        raise InvalidArgument("Expected plan to be a dpsco.Plan.")
    if not isinstance(stream, Stream):
        raise InvalidArgument("Expected stream to be a dpsco.stream(...): it is what guards the single pass.")
    clipping = Clipping.LIBRARY if oracle is None else Clipping.CALLER
    facts = dataclasses.replace(capped_facts(facts, stream.cap), clipping=clipping)
    oracle = oracle or library_oracle(plan, slow_source=not stream.fast)
    run = Run(
        plan,
        oracle=oracle,
        start=start,
        key=key,
        checkpoint=checkpoint,
        resume=resume,
        facts=facts,
        diagnostics=diagnostics,
    )

    # Kernels of one score count every row that is not finite or has another label; those of others may not see it.
    counts_unfit = type(oracle) is CompiledOracle and oracle.slope is None and oracle.loss.outputs == 1

    def feed(batch: Batch) -> None:
        if run.needs_rows:
            zero_rows = run.absorb(batch)
            if counts_unfit:
                stream.answered(zero_rows)
            stream.confirm()  # the release of this round comes next
        run.rows_read = stream.rows_read

    # Limit BLAS to one thread: the library's oracles parallelise themselves.
    calm = one_blas_thread() if isinstance(oracle, _OWN_ORACLES) else nullcontext()
    with run, calm:
        if not run.needs_rows:  # complete on disk: its rows may be gone, and none of them is looked at
            return drive(run, run.coming(), lambda _: None, account=account, progress=progress, on_round=on_round)
        layout = dataclasses.replace(run.layout, label_rule=getattr(oracle, "label_rule", None))
        batches = stream.open(layout, run.sample)
        run.rows_read, run.rows_available = stream.rows_read, stream.rows_available
        if account is not None:
            stream.confirm()
        return drive(run, batches, feed, account=account, progress=progress, on_round=on_round)


def drive(
    run: Run,
    rounds: Iterable[T],
    feed: Callable[[T], None],
    *,
    account: Account | None = None,
    progress: bool = False,
    on_round: Callable[[Round], None] | None = None,
) -> Result:
    """Take ``run`` to its end.

    Parameters
    ----------
    run : Run
        A run before its first round.
    rounds : iterable
        One item per round.
    feed : callable
        Answers the run's query of a round from the round's item.
    account, progress, on_round
        As in ``train``.
    """
    method = run.plan.method
    if on_round is not None and method.releases == "last iterate":
        raise InvalidArgument(
            f"method={method.name!r} may show its last iterate and nothing before it, and on_round shows every round. "
            "Leave on_round out."
        )
    if account is not None:
        run.charge(account)
    with progress_bar(run.plan.rounds, run.plan.n, show=progress) as advance:
        for item in rounds:
            feed(item)
            seen = run.finish_round()
            if on_round is not None and seen is not None:
                on_round(seen)
            if progress:
                advance(run.plan.rounds if run.second is None else 1 + run.second.plan.rounds)
    return run.result


def library_oracle(plan: Plan, *, slow_source: bool = False) -> Oracle:
    """Return the library's oracle for the plan's loss.

    Raises
    ------
    InvalidArgument
        If the loss is a ``CustomLoss``, whose gradients the library does not know.
    """
    if isinstance(plan.problem.loss, CustomLoss):
        raise InvalidArgument("A CustomLoss needs its gradients: pass oracle=dpsco.PerExample(gradient).")
    if plan.schedule.survey_length:
        return survey_oracle(plan.problem, plan.n, slow_source=slow_source)
    squares = plan.schedule.squares
    if isinstance(plan.method, InGeometry):
        inner = linear_oracle(plan.schedule.problem, plan.n, slow_source=slow_source, squares=squares)
        return MappedOracle(inner, plan.method.map)
    if plan.method.needs == "convexity":  # its proof counts on float64 in every step
        return LinearOracle(plan.problem.loss, plan.problem.intercept)
    return linear_oracle(plan.problem, plan.n, slow_source=slow_source, squares=squares)
