"""Opacus on the clipped differences of a network at two points: per-example gradients by its hooks, in parts."""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch
from common import timed
from opacus.grad_sample import GradSampleModule
from torch import nn

PART = 32
kind, count = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(2)
torch.manual_seed(0)
if kind == "mlp":
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
else:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
rng = np.random.default_rng(0)
X, y = torch.from_numpy(rng.random((count, 784), dtype=np.float32)), torch.from_numpy(rng.integers(0, 10, count))
points = [GradSampleModule(copy.deepcopy(model)) for _ in range(2)]


def clipped_sum() -> list[torch.Tensor]:
    totals = [torch.zeros_like(p) for p in model.parameters()]
    for start in range(0, count, PART):
        rows = []
        for weight, point in zip((9.0, -8.0), points, strict=True):
            point.zero_grad()
            outputs = point(X[start : start + PART])
            nn.functional.cross_entropy(outputs, y[start : start + PART], reduction="sum").backward()
            rows.append([weight * p.grad_sample for p in point.parameters()])
        differences = [a + b for a, b in zip(*rows, strict=True)]
        norms = torch.stack([d.flatten(1).norm(dim=1) for d in differences]).norm(dim=0)
        scale = (100.0 / norms).clamp(max=1.0)
        for total, d in zip(totals, differences, strict=True):
            total += torch.einsum("i,i...->...", scale, d)
    return totals


timed(clipped_sum, 1)
