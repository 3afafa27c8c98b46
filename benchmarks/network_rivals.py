"""Rivals of ``plan_network``, tuned: DP-FTRL and DP-SGD of three libraries. ``python -m benchmarks networks --rivals``.

Every rival has the same budget of runs: eight settings (two numbers of rounds, two step sizes each, steps constant or
falling linearly to 0), one run each on 5/6 of the training rows. The best on the other sixth is trained on all rows
with every key. On private data that search would have to be paid for; here it is free. Runs take place in processes of
their own (``peers/network_task.py``), those of other libraries in environments of their own.

    DP-FTRL               dpsco, square-root Toeplitz noise, one pass
    DP-FTRL, jax_privacy  buffered Toeplitz noise made for one pass or for five
    DP-SGD                dpsco, independent noise, fresh batches, one pass; a mean of the last half in place of decay
    DP-SGD, Opacus        Poisson batches and their amplification, one pass or five
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed_peers import HERE, TORCH, environment

Rows = tuple[np.ndarray, np.ndarray]
Settings = dict[str, Any]
JAX_PRIVACY = ["jax_privacy", "jax", "optax"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run printed."""

    accuracy: float
    rounds: int
    seconds: float
    megabytes: float


@dataclasses.dataclass(frozen=True)
class Rival:
    """Its script, what its environment needs beside NumPy, and its settings: (rounds, step sizes), for 60,000 rows."""

    name: str
    script: str
    packages: tuple[str, ...]
    passes: int
    tried: tuple[tuple[int, tuple[float, ...]], ...]
    method: str = ""

    def settings(self, n: int) -> list[Settings]:
        """Return the settings; rounds grow with sqrt(n)."""
        return [
            {"passes": self.passes, "method": self.method, "rounds": rounds, "step_size": step, "decay": decay}
            for T, steps in self.tried
            for step, decay in itertools.product(steps, (False, True))
            for rounds in [self.passes * max(1, round(T / self.passes * math.sqrt(n / 60_000)))]
        ]


RIVALS = (
    Rival("DP-FTRL", "dpsco_network", (), 1, ((120, (0.4, 0.8)), (240, (0.4, 0.8))), "dp-ftrl"),
    Rival("DP-FTRL, jax_privacy", "jax_privacy_network", tuple(JAX_PRIVACY), 1, ((120, (0.4, 0.8)), (240, (0.4, 0.8)))),
    Rival("DP-SGD", "dpsco_network", (), 1, ((30, (0.4, 0.8)), (60, (0.2, 0.4))), "dp-sgd"),
    Rival("DP-SGD, Opacus", "opacus_network", tuple(TORCH), 1, ((120, (0.25, 0.5)), (240, (0.12, 0.25)))),
    Rival("DP-FTRL, jax_privacy", "jax_privacy_network", tuple(JAX_PRIVACY), 5, ((300, (0.4, 0.8)), (600, (0.2, 0.4)))),
    Rival("DP-SGD, Opacus", "opacus_network", tuple(TORCH), 5, ((300, (0.25, 0.5)), (600, (0.12, 0.25)))),
)


PLANNED = (
    Rival("plan_network", "dpsco_network", (), 1, (), "plan_network"),
    Rival("plan_network", "dpsco_network_jax", (), 1, (), "plan_network"),
)


def run(
    rival: Rival, rows: Rows, check: Rows, facts: Settings, keys: Iterable[int], folder: Path
) -> list[Outcome] | str:
    """Train with every key in one process and return what came out; a reason if it cannot run here."""
    return _outcomes(rival, rows, check, [{"method": rival.method, **facts, "key": key} for key in keys], folder)


def best_setting(rival: Rival, train: Rows, facts: Settings, folder: Path) -> tuple[Settings, str]:
    """Return the setting that is best on held-out training rows, and words on all of them."""
    order, part = np.random.default_rng(1).permutation(len(train[1])), len(train[1]) * 5 // 6
    first, held = ((train[0][rows], train[1][rows]) for rows in (order[:part], order[part:]))
    settings = rival.settings(len(train[1]))
    found = _outcomes(rival, first, held, [{**facts, **each, "key": 100} for each in settings], folder)
    if isinstance(found, str):
        return {}, found
    accuracies = [each.accuracy for each in found]
    best = settings[int(np.argmax(accuracies))]
    held_out = " ".join(f"{accuracy:.1%}" for accuracy in accuracies)
    return best, f"step size {best['step_size']:g}, {'falling' if best['decay'] else 'constant'}; held out: {held_out}"


def _outcomes(rival: Rival, rows: Rows, check: Rows, tasks: list[Settings], folder: Path) -> list[Outcome] | str:
    python = environment(list(rival.packages)) if rival.packages else Path(sys.executable)
    if python is None:
        return f"skipped: {', '.join(rival.packages)} cannot be installed here"
    file = folder / "rows.npz"
    np.savez(file, X=rows[0], y=rows[1], X_check=check[0], y_check=check[1])
    command = [str(python), f"{rival.script}.py", json.dumps([{**task, "file": str(file)} for task in tasks])]
    done = subprocess.run(command, cwd=HERE / "peers", capture_output=True, text=True, check=False, timeout=14_400)
    if done.returncode:
        return f"skipped: it stopped with an error: {done.stderr.strip().splitlines()[-1]}"
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]
