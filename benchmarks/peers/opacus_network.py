"""Opacus: DP-SGD with batches by Poisson sampling, as its guide shows it, on a network of ``network_task``."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from network_task import MOMENTUM, Task, main, torch_model, torch_predictions, weight
from opacus import PrivacyEngine

warnings.simplefilter("ignore")


def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    torch.manual_seed(task.key)
    model = torch_model(task.network, X.shape[-1])
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(dataset, batch_size=round(len(y) * task.passes / task.rounds))
    private, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=task.step_size, momentum=MOMENTUM),
        data_loader=loader,
        epochs=task.passes,
        target_epsilon=task.epsilon,
        target_delta=task.delta,
        max_grad_norm=1.0,
    )
    task.rounds, step = task.passes * len(loader), 0
    for _ in range(task.passes):
        for rows, labels in loader:
            for group in optimizer.param_groups:
                group["lr"] = task.step_size * weight(task, step)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private(rows), labels).backward()
            optimizer.step()
            step += 1
    return lambda pixels: torch_predictions(model, pixels)


main(fit)
