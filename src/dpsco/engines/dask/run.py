"""``train`` with the workers of a cluster as its oracle."""

from __future__ import annotations

import dataclasses
from typing import Any

from dpsco.clipping import CompiledOracle, Oracle, linear_oracle
from dpsco.engines.dask.oracle import DaskOracle
from dpsco.engines.dask.stream import ParquetRows, ShardStream
from dpsco.errors import InvalidArgument
from dpsco.parallel import one_blas_thread
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss
from dpsco.run.result import Result
from dpsco.run.train import train as train_here

__all__ = ["train"]

_TRUSTED = (
    "driver, scheduler and workers of the cluster are trusted with rows and un-noised sums, and nobody else reads what "
    "passes between them (TLS, or a closed network)"
)


def train(plan: Plan, rows: ParquetRows, client: Any, *, oracle: Oracle | None = None, **options: Any) -> Result:
    """Train as ``dpsco.train(plan, ...)`` does, on rows that the workers of ``client`` read.

    ``client``
        a ``distributed.Client``: from ``local_cluster(n)``, ``cluster_at(address)``, or your own.
    ``oracle``
        what each worker computes clipped sums with; the loss of the plan decides unless given.
    ``options``
        those of ``dpsco.train``: ``key``, ``checkpoint``, ``resume``, ``progress`` and so on.

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
    dask = DaskOracle(client, stream, _of_workers(plan) if oracle is None else oracle)
    try:
        with one_blas_thread():
            result = train_here(plan, stream, oracle=dask, **options)
    finally:
        dask.close()
    report = result.report
    ours = oracle is None  # then what the report assumes of a caller's oracle is no assumption
    kept = tuple(text for text in report.assumptions if not (ours and "the caller's oracle" in text))
    return dataclasses.replace(result, report=dataclasses.replace(report, assumptions=(*kept, _TRUSTED)))


def _of_workers(plan: Plan) -> Oracle:
    """The oracle that one process would use, with one thread a task: a worker runs as many tasks as it has threads."""
    if isinstance(plan.problem.loss, CustomLoss):
        raise InvalidArgument("A CustomLoss needs its gradients: pass oracle=dpsco.PerExample(gradient).")
    oracle = linear_oracle(plan.problem, plan.n)
    return dataclasses.replace(oracle, threads=1) if isinstance(oracle, CompiledOracle) else oracle
