"""Runs of a network in a process of their own: tasks from the command line, what comes out as one line of JSON each.

A task names a file of rows (X, y, X_check, y_check), a network, epsilon, delta, a key, and a setting: passes, rounds of
all passes together (``fit`` states how many there were), the mean step size, whether steps fall linearly to 0. Clip 1
and momentum 0.9 throughout. Seconds are CPU seconds of the fit, with compilation and calibration. Memory is the peak
during the fit, above what was there before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

CENTRE, SCALE = 0.13, 0.31
MOMENTUM = 0.9
Task = SimpleNamespace


def weight(task: Task, step: int) -> float:
    """Return what the step size of round ``step`` is multiplied with: 1, or 2 (T - t) / (T + 1)."""
    return 2.0 * (task.rounds - step) / (task.rounds + 1) if task.decay else 1.0


def torch_model(name: str, side: int) -> Any:
    """Return the network, which scales its inputs by public constants."""
    from torch import nn

    class Scaled(nn.Module):
        def forward(self, pixels: Any) -> Any:
            return (pixels - CENTRE) / SCALE

    if name == "mlp":
        return nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(
        Scaled(),
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * ((side + 3) // 4) ** 2, 10),
    )


def torch_predictions(model: Any, X: np.ndarray) -> np.ndarray:
    """Return the most likely classes."""
    import torch

    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(X)).argmax(1).numpy()
    return found


def main(fit: Callable[[Task, np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]) -> None:
    """For each task fit and print accuracy, CPU seconds and peak memory; ``fit`` returns a function to classes."""
    for each in json.loads(sys.argv[1]):
        task = Task(**each)
        with np.load(task.file) as file:
            X, y, X_check, y_check = (file[name] for name in ("X", "y", "X_check", "y_check"))
        Path("/proc/self/clear_refs").write_text("5")
        before, began = _peak(), time.process_time()
        predict = fit(task, X, y)
        seconds, megabytes = time.process_time() - began, _peak() - before
        accuracy = float(np.mean(predict(X_check) == y_check))
        found = {"accuracy": accuracy, "rounds": task.rounds, "seconds": seconds, "megabytes": megabytes}
        print(json.dumps(found), flush=True)


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
