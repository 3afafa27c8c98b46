"""Small pictures of three classes, a network for them, and a dataset in which one row may be odd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    Dataset,
)

N, CLASSES, SHAPE = 600, 3, (1, 4, 4)
KEY = bytes(32)
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
DECLARED: dict[str, Any] = {**BUDGET, "classes": CLASSES}
"""What a loader needs beside n."""


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def pictures(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.normal(size=(n, *SHAPE)).astype(np.float32)
    X[np.arange(n), 0, y, 0] += 4.0
    return X, y


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(64, CLASSES))


def weights(model: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().double().flatten() for p in model.parameters()]).numpy()


class Rows(Dataset):
    """A dataset whose rows are what they are: one of them may be odd."""

    def __init__(self, odd: Any = None) -> None:
        X, y = pictures()
        self.rows: list[Any] = [(torch.from_numpy(x), int(label)) for x, label in zip(X, y, strict=True)]
        if odd is not None:
            self.rows[7] = odd

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        return self.rows[place]
