"""jax_privacy: clipped gradients and Gaussian noise of DP-SGD, 32 batches in order, from NumPy arrays as for any fit.

Compilation is not counted (the first fit warms up); handing each batch to JAX is.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from common import ROUNDS, rows, timed
from jax_privacy import clipping, noise_addition

features, labels = rows()
size = len(labels) // ROUNDS
X, y = features, labels.astype("float32")


def loss(x: Any, row: Any, label: Any) -> Any:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(row @ x, label))


gradient = clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=size)
privatizer = noise_addition.gaussian_privatizer(stddev=gradient.sensitivity(), prng_key=jax.random.key(0))


@jax.jit
def step(x: Any, noise: Any, a: Any, b: Any) -> Any:
    mean, noise = privatizer.update(gradient(x, a, b), noise)
    return x - mean, noise


def fit() -> None:
    x = jnp.zeros(features.shape[1])
    noise = privatizer.init(x)
    for start in range(0, size * ROUNDS, size):
        x, noise = step(x, noise, X[start : start + size], y[start : start + size])
    x.block_until_ready()


timed(fit)
