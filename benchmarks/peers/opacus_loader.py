"""Opacus as its guide shows it: PrivacyEngine.make_private around a DataLoader, one epoch."""

from __future__ import annotations

import warnings

import torch
from common import ROUNDS, rows, timed
from opacus import PrivacyEngine

warnings.simplefilter("ignore")
features, labels = rows()
dataset = torch.utils.data.TensorDataset(torch.from_numpy(features), torch.from_numpy(labels).float())


def fit() -> None:
    model = torch.nn.Linear(features.shape[1], 1, bias=False)
    loader = torch.utils.data.DataLoader(dataset, batch_size=len(labels) // ROUNDS)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for rows_, labels_ in loader:
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(rows_)[:, 0], labels_).backward()
        optimizer.step()


timed(fit, repeats=1)
