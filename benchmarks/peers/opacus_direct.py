"""Opacus without a loader: per-example gradients, clipping and noise of its optimiser, 32 batches in order."""

from __future__ import annotations

import torch
from common import ROUNDS, rows, timed
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

features, labels = rows()
X, y = torch.from_numpy(features), torch.from_numpy(labels).float()


def fit() -> None:
    model = GradSampleModule(torch.nn.Linear(X.shape[1], 1, bias=False))
    size = len(y) // ROUNDS
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = DPOptimizer(plain, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=size)
    for start in range(0, size * ROUNDS, size):
        optimizer.zero_grad()
        scores = model(X[start : start + size])[:, 0]
        torch.nn.functional.binary_cross_entropy_with_logits(scores, y[start : start + size]).backward()
        optimizer.step()


timed(fit)
