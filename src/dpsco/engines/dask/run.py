"""A run whose sums the workers of a Dask cluster compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from dpsco.accounting.account import Account
from dpsco.clipping import CompiledOracle, MappedOracle, Oracle, linear_oracle
from dpsco.engines.dask.oracle import DaskOracle
from dpsco.engines.dask.stream import ParquetRows, ShardStream
from dpsco.errors import ClusterError, InvalidArgument
from dpsco.parallel import one_blas_thread
from dpsco.planning.plan import Plan
from dpsco.query import Batch
from dpsco.run.facts import Clipping, Facts
from dpsco.run.preconditions import capped_facts
from dpsco.run.result import Diagnostics, Model, Result, Round
from dpsco.run.run import Run
from dpsco.run.train import drive, library_oracle

__all__ = ["train"]

_TRUSTED = (
    "driver, scheduler and workers of the cluster are trusted with rows and un-noised sums, and nobody else reads what "
    "passes between them (TLS, or a closed network)"
)
_UNREADABLE = (
    "rows of files that a worker could not read count as zero rows: whether a file can be read says nothing about its "
    "rows"
)


def train(
    plan: Plan,
    rows: ParquetRows,
    client: Any,
    *,
    oracle: Oracle | None = None,
    start: ArrayLike | Model | None = None,
    key: bytes | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    account: Account | None = None,
    progress: bool = False,
    on_round: Callable[[Round], None] | None = None,
    diagnostics: Diagnostics | None = None,
    facts: Facts | None = None,
) -> Result:
    """Train as ``dpsco.train(plan, ...)`` does, on rows that the workers of ``client`` read.

    Parameters
    ----------
    plan : Plan
        With a method of fresh batches of one size, behind a survey or without one.
    rows : ParquetRows
        Files that every worker can reach.
    client : distributed.Client
        From ``local_cluster(n)``, ``cluster_at(address)``, or your own.
    oracle : Oracle, optional
        What each worker computes clipped sums with; the loss of the plan decides unless given.
    start, key, checkpoint, resume, account, progress, on_round, diagnostics, facts
        As in ``dpsco.train``.

    Returns
    -------
    Result

    Raises
    ------
    ClusterError
        If the cluster is lost, or not a single row could be read (``unreadable="zero"``).
    InvalidArgument, DataError, LedgerError, CheckpointError, AccountError
        As ``dpsco.train``.

    Guarantee: that of ``dpsco.train``, with driver, scheduler and workers inside the trust boundary. The model is that
    of ``dpsco.train(plan, dpsco.stream(FileRows(...)))`` on the same rows, bit for bit if there is noise, whatever the
    number of workers and however many died.
    """
    if not isinstance(plan, Plan):
        raise InvalidArgument("Expected plan to be a dpsco.Plan.")
    if not isinstance(rows, ParquetRows):
        raise InvalidArgument(
            "Expected rows to be a dpsco.engines.dask.ParquetRows: workers read Parquet files themselves."
        )
    stream = ShardStream(rows)
    workers = DaskOracle(client, stream, _one_thread(library_oracle(plan)) if oracle is None else oracle)
    clipping = Clipping.LIBRARY if oracle is None else Clipping.CALLER
    trusted = (_TRUSTED, _UNREADABLE) if rows.unreadable == "zero" else (_TRUSTED,)
    facts = capped_facts(facts, stream.cap)
    facts = dataclasses.replace(facts, clipping=clipping, trusted=(*facts.trusted, *trusted))
    run = Run(
        plan,
        oracle=None,
        start=start,
        key=key,
        checkpoint=checkpoint,
        resume=resume,
        facts=facts,
        diagnostics=diagnostics,
    )

    def feed(batch: Batch) -> None:
        if run.needs_rows:
            if run.second is not None and not isinstance(workers.oracle, MappedOracle):
                later = run.second.plan
                inner = linear_oracle(later.problem, later.n, squares=later.schedule.squares)
                workers.oracle = _one_thread(MappedOracle(inner, run.second.map))
            run.absorb_sum(workers.answer(run.query, batch))
        run.rows_read = stream.rows_read

    try:
        with run, one_blas_thread():
            batches = stream.open(run.layout)
            result = drive(run, batches, feed, account=account, progress=progress, on_round=on_round)
    finally:
        workers.close()
    if rows.unreadable == "zero" and result.report.rows_missing == result.report.rows_planned:
        raise ClusterError(
            "No worker could read a row: the model is noise. The budget is spent. Check that every worker finds the "
            "files under the names that the driver gives them."
        )
    return result


def _one_thread(oracle: Oracle) -> Oracle:
    """Return the oracle of one process with one thread per task: a worker runs a task on each of its threads."""
    if isinstance(oracle, MappedOracle):
        return dataclasses.replace(oracle, inner=_one_thread(oracle.inner))
    return dataclasses.replace(oracle, threads=1) if isinstance(oracle, CompiledOracle) else oracle
