"""One-pass DP-SGD and DP-FTRL for many settings at once, for the comparison at a fixed number of rounds.

Both clip one gradient per row to ``clip`` and spend the whole budget on it. Batches are disjoint: the noise of DP-SGD
is independent, and DP-FTRL uses the square-root Toeplitz mechanism on the prefix sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.planner_simulator import Columns, noises, project

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Baseline:
    """What is tuned: step size, momentum, and which iterate is returned."""

    rounds: int
    rate: float
    clip: float
    momentum: float = 0.0
    output: str = "last"  # or "average", "tail" (the second half)
    mechanism: str = "independent"


def descend(columns: Columns, settings: Sequence[Baseline], keys: Sequence[int]) -> Array:
    """x <- Proj(x - rate m), m <- momentum m + noisy gradient; DP-FTRL differs in its noise alone (and in
    projecting the sum of all gradients from the start)."""
    rounds = settings[0].rounds
    lazy = settings[0].mechanism != "independent"
    size, p = len(columns.labels) // rounds, columns.problem.parameters
    rate, clip, momentum = (
        np.repeat([getattr(s, k) for s in settings], len(keys)) for k in ("rate", "clip", "momentum")
    )
    noise, ones = noises(columns, settings, keys), np.ones(len(rate))
    x = velocity = moved = np.zeros((len(rate), p))
    trail = []
    for t in range(rounds):
        gradient = (columns.sums(slice(t * size, (t + 1) * size), [(x, ones)], clip) + noise[:, t]) / size
        velocity = momentum[:, None] * velocity + gradient
        moved = (moved if lazy else x) - rate[:, None] * velocity
        x = project(moved, columns.problem.radius)
        trail.append(x)
    path = np.array(trail)
    outputs = {"last": path[-1], "average": path.mean(axis=0), "tail": path[rounds // 2 :].mean(axis=0)}
    chosen = np.array([outputs[settings[i // len(keys)].output][i] for i in range(len(rate))])
    return chosen.reshape(len(settings), len(keys), p)
