"""Two networks in PyTorch, trained privately in one pass, compared with one-pass DP-SGD and DP-FTRL at equal budget.

    python examples/networks_torch.py                       made-up pictures, a quarter of the settings
    python examples/networks_torch.py mnist.npz             arrays X_train, y_train, X_test, y_test
    python examples/networks_torch.py mnist.npz "two layers"

How they are compared is in _comparison.py.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from _comparison import Network, compare
from torch import nn

import dpsco


def two_layers(side: int) -> nn.Module:
    return nn.Sequential(nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions(side: int) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * ((side + 3) // 4) ** 2, 10),
    )


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def prepared(model: nn.Module) -> Network:
    oracle = dpsco.torch.oracle(model, cross_entropy)

    def guesses(trained: Any, rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return oracle.load(trained)(torch.from_numpy(rows)).argmax(1).numpy()

    return oracle, guesses


def networks(side: int) -> dict[str, Network]:
    torch.manual_seed(0)
    return {"two layers": prepared(two_layers(side)), "convolutions": prepared(convolutions(side))}


if __name__ == "__main__":
    compare(networks, sys.argv[1:])
