"""dpsco in JAX: ``plan_network`` untuned on two layers, with the initial weights and the noise of the PyTorch line.

Parameters have torch's layout and order, so one key gives both lines the same noise on the same weights. What remains
between them is the arithmetic of the two libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from network_task import CENTRE, SCALE, Task, main, torch_model

import dpsco


def apply(p: Any, pixels: Any) -> Any:
    x = (pixels.reshape(len(pixels), -1) - CENTRE) / SCALE
    hidden, shift, out, last = p
    return jax.nn.relu(x @ hidden.T + shift) @ out.T + last


def loss(scores: Any, labels: Any) -> Any:
    return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    torch.manual_seed(task.key)
    params = [jnp.asarray(weights.detach().numpy()) for weights in torch_model("mlp", X.shape[-1]).parameters()]
    budget = {"epsilon": task.epsilon, "delta": task.delta}
    trained, result = dpsco.jax.fit(apply, params, loss, (X, y), classes=10, key=bytes([task.key]) * 32, **budget)
    task.rounds = result.plan.rounds
    return lambda pixels: np.argmax(apply(trained, jnp.asarray(pixels)), axis=1)


main(fit)
