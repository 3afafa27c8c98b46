"""What ``dpsco.torch.fit`` and ``dpsco.jax.fit`` share: the plan, the stream, and the checks before a row is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

from dpsco.accounting.account import Account
from dpsco.accounting.budget import Budget
from dpsco.clipping import Oracle
from dpsco.errors import InvalidArgument
from dpsco.planning.network_plan import plan_network
from dpsco.planning.plan import Plan
from dpsco.query import Array
from dpsco.rows.shaped import Shape, ShapedChunks, flat_rows
from dpsco.rows.stream import Stream, stream
from dpsco.run.result import Diagnostics, Result, Round
from dpsco.run.train import train

__all__ = ["NetworkOracle", "TrainOptions", "check_classes_declared", "fit_network", "rows_of"]


class TrainOptions(TypedDict, total=False):
    """Options of ``dpsco.train`` that ``fit`` passes on."""

    key: bytes | None
    checkpoint: str | Path | None
    resume: bool
    account: Account | None
    progress: bool
    on_round: Callable[[Round], None] | None
    diagnostics: Diagnostics | None


class NetworkOracle(Oracle, Protocol):
    """An oracle that knows its initial parameters."""

    @property
    def size(self) -> int:
        """Number of trainable parameters."""

    @property
    def start(self) -> Array:
        """Initial parameters as a vector."""

    @property
    def tensors(self) -> list[Array]:
        """Initial parameters, an array per tensor."""


def rows_of(data: Any, shape: Shape, dtype: str) -> Stream:
    """Return the stream of ``data``: a ``Stream``, a pair of arrays (X, y), or an iterable of chunks (X, y).

    Arrays are mixed by a fixed permutation of their positions: one pass over sorted rows learns what comes last.
    """
    if isinstance(data, Stream):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return stream(flat_rows(data[0], shape), data[1], dtype=dtype, width=math.prod(shape), shuffle=True)
    if hasattr(data, "shape") or not hasattr(data, "__iter__"):
        raise InvalidArgument(
            "Expected data to be a pair (X, y), a loader or another iterable of chunks (X, y), or a dpsco.stream."
        )
    return stream(data if isinstance(data, ShapedChunks) else ShapedChunks(data, shape, dtype))


def check_classes_declared(data: Any) -> None:
    """Raise InvalidArgument if ``data`` comes in chunks: their labels cannot be checked in advance."""
    if not isinstance(data, (Stream, tuple)):
        raise InvalidArgument(
            "Expected classes=..., the public number of classes: the labels of a loader are not seen before they are "
            "spent, and rows of classes that the model has no output for would count as zero. Nothing was spent."
        )


def fit_network(
    oracle: NetworkOracle,
    rows: Stream,
    *,
    epsilon: float | None,
    delta: float | None,
    n: int | None,
    plan: Plan | None,
    outputs: Callable[[float], float] | None,
    **options: Unpack[TrainOptions],
) -> Result:
    """Train ``oracle`` from its initial parameters, by ``plan`` or by ``plan_network``, which takes ``outputs``.

    Raises
    ------
    InvalidArgument
        If a plan comes with epsilon, delta or n, or neither comes; if nobody declares n; if the plan is of another
        size.
    """
    if plan is None:
        if epsilon is None or delta is None:
            raise InvalidArgument("Expected epsilon=... and delta=..., or plan=dpsco.plan_network(...).")
        if (n := rows.rows_available if n is None else n) is None:
            raise InvalidArgument(
                "Expected n=..., the public number of rows: the noise is made for it, and the length of a loader "
                "decides nothing. Rows beyond n are not read; missing ones count as zero rows."
            )
        plan = plan_network(oracle.size, n, Budget(epsilon, delta), start=oracle.tensors, outputs=outputs)
    elif epsilon is not None or delta is not None or n is not None:
        raise InvalidArgument("plan= states epsilon, delta and n already: leave them out.")
    elif plan.problem.parameters != oracle.size:
        raise InvalidArgument(
            f"Expected a plan of {oracle.size} parameters, as many as are trainable, got {plan.problem.parameters}. "
            "Plan with dpsco.plan_network(oracle.size, ...)."
        )
    return train(plan, rows, oracle=oracle, start=oracle.start, **options)
