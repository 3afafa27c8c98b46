"""What was tried for networks: one change of ``plan_network`` at a time, two layers (784-64-10) on MNIST.

    python -m benchmarks network_trials mnist.npz                  every trial at epsilon 1 and 3, one key
    python -m benchmarks network_trials mnist.npz --only momentum
    python -m benchmarks network_trials                            no file: synthetic pictures

Trained on 5/6 of the training rows, accuracy on the other sixth. Where a change would shorten the way (no momentum,
half the rounds, another clip), the step size makes up for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from benchmarks.network_rivals import Rows
from benchmarks.networks import pictures
from benchmarks.peers.network_task import torch_model
from dpsco.methods import Method


@dataclasses.dataclass(frozen=True)
class Trial:
    """Changes of the method of plan_network, or another method, and of the model."""

    change: dict[str, Any] = dataclasses.field(default_factory=dict)
    times: float = 1.0
    other: Method | None = None
    rounds: float = 1.0
    scaled: bool = True
    smoothing: float = 0.0
    last: float = 1.0


def trials(n: int) -> dict[str, Trial]:
    """Return every trial by name."""
    quarter = math.isqrt(n) // 4
    srgd: dict[str, Any] = {"rounds": quarter, "clip": 4.0, "mechanism": "workload"}
    return {
        "plan_network": Trial(),
        "accelerated SRGD, beta 4": Trial(other=dpsco.AcceleratedSRGD(beta=4.0, **srgd)),
        "accelerated SRGD, beta 8": Trial(other=dpsco.AcceleratedSRGD(beta=8.0, **srgd)),
        "square-root noise": Trial({"mechanism": "sqrt"}),
        "constant steps": Trial({"decay": "none"}),
        "constant steps, average of the last half": Trial({"decay": "none", "iterate": "tail"}),
        "no momentum": Trial({"momentum": 0.0}, times=10.0),
        "half the rounds": Trial(rounds=0.5, times=2.0),
        "raw pixels": Trial(scaled=False),
        "label smoothing 0.1": Trial(smoothing=0.1),
        "clip 4": Trial({"clip": 4.0}, times=0.25),
        "last layer begins at 0": Trial(last=0.0),
        "unaccelerated SRGD": Trial(other=dpsco.UnacceleratedSRGD(beta=2.0, **{**srgd, "mechanism": "sqrt"})),
    }


def accuracy(trial: Trial, train: Rows, held: Rows, epsilon: float) -> float:
    """Train once and return the accuracy on ``held``."""
    import torch

    torch.manual_seed(0)
    model = torch_model("mlp", train[0].shape[-1])
    if not trial.scaled:
        model = model[1:]
    with torch.no_grad():
        model[-1].weight.mul_(trial.last)
    size, n = sum(weights.numel() for weights in model.parameters()), len(train[1])
    plan = dpsco.plan_network(size, n, dpsco.Budget(epsilon, 1e-5), rounds=max(1, round(trial.rounds * math.isqrt(n))))
    method = trial.other
    if method is None:
        method = dataclasses.replace(plan.method, step_size=trial.times * plan.method.step_size, **trial.change)
    loss = torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=trial.smoothing)
    plan = dataclasses.replace(plan, method=method, rule="by hand")
    dpsco.torch.fit(model, loss, train, plan=plan, classes=10, key=bytes(32))
    with torch.no_grad():
        return float(np.mean(model(torch.from_numpy(held[0])).argmax(1).numpy() == held[1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks network_trials")
    parser.add_argument("file", nargs="?", help="mnist.npz")
    parser.add_argument("--only", default="", help="trials whose name contains it")
    parser.add_argument("--epsilons", type=float, nargs="+", default=(1.0, 3.0))
    options = parser.parse_args()
    if options.file is not None and not Path(options.file).is_file():
        parser.exit(0, f"Skipped: there is no file {options.file}.\n")
    (X, y), _ = pictures(options.file)
    order, part = np.random.default_rng(1).permutation(len(y)), len(y) * 5 // 6
    train, held = ((X[rows], y[rows]) for rows in (order[:part], order[part:]))
    print(f"{'epsilon':<44}" + "".join(f"{epsilon:>8g}" for epsilon in options.epsilons), flush=True)
    for name, trial in trials(part).items():
        if options.only in name:
            found = [accuracy(trial, train, held, epsilon) for epsilon in options.epsilons]
            print(f"{name:<44}" + "".join(f"{value:>8.1%}" for value in found), flush=True)


if __name__ == "__main__":
    main()
