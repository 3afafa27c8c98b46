"""jax_privacy: clipped gradients and Gaussian noise of DP-SGD, compiled, 32 batches in order, rows on the device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from common import ROUNDS, rows, timed
from jax_privacy import clipping, noise_addition

features, labels = rows()
size = len(labels) // ROUNDS
X, y = jnp.asarray(features), jnp.asarray(labels, dtype=jnp.float32)


def loss(x: Any, row: Any, label: Any) -> Any:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(row @ x, label))


gradient = clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=size)
privatizer = noise_addition.gaussian_privatizer(stddev=gradient.sensitivity(), prng_key=jax.random.key(0))


@jax.jit
def step(x: Any, noise: Any, start: Any) -> Any:
    a = jax.lax.dynamic_slice_in_dim(X, start, size)
    mean, noise = privatizer.update(gradient(x, a, jax.lax.dynamic_slice_in_dim(y, start, size)), noise)
    return x - mean, noise


def fit() -> None:
    x = jnp.zeros(features.shape[1])
    noise = privatizer.init(x)
    for start in range(0, size * ROUNDS, size):
        x, noise = step(x, noise, start)
    x.block_until_ready()


timed(fit)
