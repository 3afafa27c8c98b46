"""dpsco in JAX: ``plan_network`` untuned on two layers, from initial weights of torch's law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from network_task import CENTRE, SCALE, Task, main

import dpsco


def apply(p: Any, pixels: Any) -> Any:
    x = (pixels.reshape(len(pixels), -1) - CENTRE) / SCALE
    return jax.nn.relu(x @ p["hidden"] + p["shift"]) @ p["out"] + p["last"]


def loss(scores: Any, labels: Any) -> Any:
    return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    rng, size = np.random.default_rng(task.key), X.shape[-1] ** 2
    shapes = {"hidden": ((size, 64), size), "shift": ((64,), size), "out": ((64, 10), 64), "last": ((10,), 64)}
    params = {
        name: jnp.asarray(rng.uniform(-1, 1, shape) / math.sqrt(fan_in), jnp.float32)
        for name, (shape, fan_in) in shapes.items()
    }
    budget = {"epsilon": task.epsilon, "delta": task.delta}
    trained, result = dpsco.jax.fit(apply, params, loss, (X, y), classes=10, key=bytes([task.key]) * 32, **budget)
    task.rounds = result.plan.rounds
    return lambda pixels: np.argmax(apply(trained, jnp.asarray(pixels)), axis=1)


main(fit)
