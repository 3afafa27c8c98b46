"""How far noise on the parameters moves the outputs of ``apply``: as ``clipping/torch/output_change.py`` in JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dpsco.clipping.jax.pytrees import Layout, x64
from dpsco.query import Array

__all__ = ["output_change"]

ROWS, DRAWS = 64, 2


def output_change(
    apply: Callable[[Any, Any], Any], layout: Layout, start: Array, shape: tuple[int, ...], inputs: np.dtype[Any]
) -> Callable[[float], float] | None:
    """Return the function of sigma; None if rows are not whole numbers, or the outputs of random words are not finite.

    A table is a parameter like any other here, so words go up to the longest first axis of one. JAX takes the last
    word for those beyond a table, or NaN; then words are 0 and 1. Both understate how much a mean of words averages.

    Guarantee: no data. The same ``apply`` and parameters give the same numbers.
    Cost: four forward passes over 64 rows per value.
    """
    if inputs.kind == "f":
        return None

    def outputs(point: Array, rows: Any) -> Array:
        with x64(layout.double):
            found = jax.vmap(lambda row: apply(layout.tree_of(point), row[None]))(rows)
        parts = [np.asarray(leaf, dtype=np.float64).reshape(ROWS, -1) for leaf in jax.tree.leaves(found)]
        return np.concatenate(parts, axis=1)

    for words in (max((size[0] for size in layout.shapes if len(size) > 1), default=2), 2):
        rows = np.random.default_rng(0).integers(0, words, (ROWS, *shape)).astype(inputs)
        first = outputs(start, rows)
        if np.all(np.isfinite(first)):
            break
    else:
        return None

    def change(deviation: float) -> float:
        squares = 0.0
        for draw in range(DRAWS):
            noise = np.random.default_rng(draw).standard_normal(start.size)
            moved = outputs(start + deviation * noise, rows) - first
            squares += float(np.mean(np.square(moved - moved.mean(0))))
        return math.sqrt(squares / DRAWS) if math.isfinite(squares) else math.inf

    return change
