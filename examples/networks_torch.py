"""Two networks in PyTorch, trained privately in one pass, beside one-pass DP-SGD and DP-FTRL at the same budget.

python examples/networks_torch.py                a made-up set of pictures
python examples/networks_torch.py mnist.npz      arrays X_train, y_train, X_test, y_test

Each method takes the best of its own short list of settings, chosen by test accuracy as papers do: a search like that
on private data has to be paid for.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import nn

import dpsco
from dpsco.algorithms import DPFTRL, DPSGD

Pictures = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def pictures(arguments: list[str]) -> Pictures:
    """Training rows and labels, test rows and labels; pixels from 0 to 1, in a random order."""
    if arguments:
        with np.load(arguments[0]) as file:
            X, y, Z, z = (file[name] for name in ("X_train", "y_train", "X_test", "y_test"))
        X, Z = (part.reshape(len(part), -1).astype(np.float32) / 255 for part in (X, Z))
    else:
        rng = np.random.default_rng(0)
        shapes, labels = rng.random((10, 64)), rng.integers(0, 10, 7_000)
        rows = (shapes[labels] + 0.7 * rng.standard_normal((7_000, 64))).astype(np.float32)
        X, y, Z, z = rows[:6_000], labels[:6_000], rows[6_000:], labels[6_000:]
    order = np.random.default_rng(1).permutation(len(y))
    return X[order], y[order].astype(np.int64), Z, z


def two_layers(side: int) -> nn.Module:
    return nn.Sequential(nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions(side: int) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * ((side + 3) // 4) ** 2, 10),
    )


def settings(quick: bool) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
    """For each method, what it may try: the algorithm, and rounds, beta and clip of the plan."""
    rounds = (16,) if quick else (32, 48)
    many = (32,) if quick else (61, 120)
    plans = [(T, beta, clip) for T in rounds for beta in (2.0, 4.0) for clip in ((8.0,) if quick else (8.0, 16.0))]
    steps = [(T, step) for T in many for step in ((4.0, 8.0) if quick else (2.0, 4.0, 8.0))]
    return {
        "SRGD": [("accelerated-srgd", {"rounds": T, "beta": b, "clip": C}) for T, b, C in plans],
        "DP-SGD": [(DPSGD(step=step, iterate="last"), {"rounds": T, "clip": 1.0}) for T, step in steps],
        "DP-FTRL": [
            (DPFTRL(step=step / 8, momentum=0.9, iterate="last"), {"rounds": T, "clip": 1.0}) for T, step in steps
        ],
    }


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def accuracy(model: nn.Module, data: Pictures, epsilon: float, algorithm: Any, options: dict[str, Any]) -> float:
    """Test accuracy of one private run."""
    X, y, Z, z = data
    oracle = dpsco.torch.oracle(model, cross_entropy)
    plan = dpsco.plan_network(oracle.size, len(y), dpsco.Budget(epsilon, delta=1e-5), **options)
    rows = dpsco.stream(X, y)
    result = dpsco.train(plan, rows, algorithm=algorithm, oracle=oracle, start=oracle.start)
    with torch.no_grad():
        guesses = oracle.load(result.model)(torch.from_numpy(Z)).argmax(1).numpy()
    return float(np.mean(guesses == z))


def main(arguments: list[str]) -> None:
    data = pictures(arguments)
    side = round(data[0].shape[1] ** 0.5)
    print(f"{len(data[1]):,} pictures of {side} x {side}; test accuracy, one pass, delta = 1e-5")
    for name, network in (("two layers", two_layers), ("convolutions", convolutions)):
        for epsilon in (1.0, 3.0):
            line = f"  {name:<14} epsilon {epsilon:g}:"
            for method, tries in settings(quick=not arguments).items():
                torch.manual_seed(0)
                model = network(side)
                best = max((accuracy(model, data, epsilon, *each), str(each[1])) for each in tries)
                line += f"   {method} {best[0]:.1%} {best[1]}"
            print(line, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
