"""Rivals of ``plan_network``, tuned: DP-FTRL and DP-SGD of three libraries. ``python -m benchmarks networks --rivals``.

Every rival is tuned by the same search with the same budget, at most RUNS runs on 5/6 of the training rows. From a
first guess, with steps constant and falling linearly to 0, it tries half and twice the step size and the rounds of the
best so far, and its other kind of steps, until the best has all of these neighbours (it is bracketed) or the budget is
spent. The best on the other sixth is trained on all rows with every key. On private data that search would have to be
paid for; here it is free. Runs take place in processes of their own (``peers/network_task.py``), those of other
libraries in environments of their own, made under build/peers. A rival that cannot be installed is left out.

    DP-FTRL               dpsco, square-root Toeplitz noise, one pass
    DP-FTRL, jax_privacy  buffered Toeplitz noise made for one pass or for five
    DP-SGD                dpsco, independent noise, fresh batches, one pass; a mean of the last half in place of decay
    DP-SGD, Opacus        Poisson batches and their amplification, one pass or five
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed_peers import HERE, TORCH, environment

Rows = tuple[np.ndarray, np.ndarray]
Settings = dict[str, Any]
Place = tuple[int, int, bool]
"""Doublings of the step size, doublings of the rounds, whether steps fall."""
RUNS = 14
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
    """Its script, what its environment needs beside NumPy, and where its search begins, for 60,000 rows."""

    name: str
    script: str
    packages: tuple[str, ...]
    passes: int
    rounds: int = 0
    step_size: float = 0.0
    method: str = ""

    def settings(self, place: Place, n: int) -> Settings:
        """Return the setting at a place of the grid; rounds grow with sqrt(n)."""
        longer, more, decay = place
        per_pass = max(1, round(2.0**more * self.rounds / self.passes * math.sqrt(n / 60_000)))
        step = {"step_size": 2.0**longer * self.step_size, "decay": decay}
        return {"passes": self.passes, "method": self.method, "rounds": self.passes * per_pass, **step}


RIVALS = (
    Rival("DP-FTRL", "dpsco_network", (), 1, 240, 0.8, "dp-ftrl"),
    Rival("DP-FTRL, jax_privacy", "jax_privacy_network", tuple(JAX_PRIVACY), 1, 240, 0.8),
    Rival("DP-SGD", "dpsco_network", (), 1, 60, 0.4, "dp-sgd"),
    Rival("DP-SGD, Opacus", "opacus_network", tuple(TORCH), 1, 120, 0.25),
    Rival("DP-FTRL, jax_privacy", "jax_privacy_network", tuple(JAX_PRIVACY), 5, 300, 0.4),
    Rival("DP-SGD, Opacus", "opacus_network", tuple(TORCH), 5, 300, 0.25),
)


PLANNED = (
    Rival("plan_network", "dpsco_network", (), 1, method="plan_network"),
    Rival("plan_network", "dpsco_network_jax", (), 1, method="plan_network"),
)


def run(
    rival: Rival, rows: Rows, check: Rows, facts: Settings, keys: Iterable[int], folder: Path
) -> list[Outcome] | str:
    """Train with every key in one process and return what came out; a reason if it cannot run here."""
    return _outcomes(rival, rows, check, [{"method": rival.method, **facts, "key": key} for key in keys], folder)


def best_setting(rival: Rival, train: Rows, facts: Settings, folder: Path, budget: int = RUNS) -> tuple[Settings, str]:
    """Return the setting that is best on held-out training rows, and words on the search; {} and why if none ran."""
    order, part = np.random.default_rng(1).permutation(len(train[1])), len(train[1]) * 5 // 6
    first, held = ((train[0][rows], train[1][rows]) for rows in (order[:part], order[part:]))

    def accuracies(places: list[Place]) -> list[float] | str:
        tasks = [{**facts, **rival.settings(place, len(train[1])), "key": 100} for place in places]
        found = _outcomes(rival, first, held, tasks, folder)
        return found if isinstance(found, str) else [each.accuracy for each in found]

    found, open_ends = search(accuracies, budget)
    if isinstance(found, str):
        return {}, found
    best = max(found, key=found.__getitem__)
    setting = rival.settings(best, len(train[1]))
    state = f"neighbours left to try: {len(open_ends)}" if open_ends else "bracketed"
    kind = "falling" if setting["decay"] else "constant"
    return (
        setting,
        f"step size {setting['step_size']:g}, {kind}; {state} in {len(found)} runs, held out {found[best]:.1%}",
    )


def search(
    accuracies: Callable[[list[Place]], list[float] | str], budget: int
) -> tuple[dict[Place, float] | str, list[Place]]:
    """Return the accuracy of every place tried, and the neighbours of the best that the budget left out."""
    found: dict[Place, float] = {}
    following: list[Place] = [(0, 0, False), (0, 0, True)]
    while following and len(found) < budget:
        following = following[: budget - len(found)]
        came = accuracies(following)
        if isinstance(came, str):
            return came, []
        found.update(zip(following, came, strict=True))
        longer, more, decay = max(found, key=found.__getitem__)
        around = [(longer + 1, more, decay), (longer - 1, more, decay), (longer, more + 1, decay)]
        around += [(longer, more - 1, decay), (longer, more, not decay)]
        following = [place for place in around if place not in found]
    return found, following


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
