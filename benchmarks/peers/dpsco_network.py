"""dpsco: ``plan_network`` untuned, or a setting of DP-FTRL or DP-SGD in one pass, on a network of ``network_task``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from network_task import MOMENTUM, Task, main, torch_model, torch_predictions

import dpsco
from dpsco.methods import Method


def method(task: Task) -> Method:
    """Return the method of a setting."""
    if task.method == "dp-sgd":
        # This DP-SGD has neither momentum nor decay; its steps are as long as those that momentum would lengthen.
        step = task.step_size / (1.0 - MOMENTUM)
        return dpsco.DPSGD(rounds=task.rounds, step_size=step, clip=1.0, iterate="tail" if task.decay else "last")
    return dpsco.DPFTRL(
        rounds=task.rounds,
        step_size=task.step_size,
        clip=1.0,
        momentum=MOMENTUM,
        decay="linear" if task.decay else "none",
        iterate="last",
        mechanism="sqrt",
    )


def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    torch.manual_seed(task.key)
    model = torch_model(task.network, X.shape[-1])
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    options = {"classes": 10, "key": bytes([task.key]) * 32}
    if task.method == "plan_network":
        result = dpsco.torch.fit(model, loss, (X, y), epsilon=task.epsilon, delta=task.delta, **options)
    else:
        size = sum(weights.numel() for weights in model.parameters())
        planned = dpsco.plan_network(size, len(y), dpsco.Budget(task.epsilon, task.delta))
        plan = dataclasses.replace(planned, method=method(task), rule="by hand")
        result = dpsco.torch.fit(model, loss, (X, y), plan=plan, **options)
    task.rounds = result.plan.rounds
    return lambda pixels: torch_predictions(model, pixels)


main(fit)
