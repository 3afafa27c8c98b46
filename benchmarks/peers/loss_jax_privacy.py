"""jax_privacy: DP-SGD with the batches, rate and noise of another run; clipped gradients and noise are its own.

Batches hold a fixed number of rows drawn at random: shapes that change would be compiled again.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import clipping, noise_addition
from simulated import asked, told

features, labels, settings = asked()
X, y = features, labels.astype("float32")
n, batch, epochs = len(y), min(int(settings["batch"]), len(y) // 4), int(settings["epochs"])
steps = n // batch


def loss(x: Any, row: Any, label: Any) -> Any:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(row @ x[:-1] + x[-1], label))


gradient = clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=batch)
privatizer = noise_addition.gaussian_privatizer(
    stddev=settings["noise"] * gradient.sensitivity(), prng_key=jax.random.key(0)
)


@jax.jit
def step(x: Any, noise: Any, a: Any, b: Any) -> Any:
    mean, noise = privatizer.update(gradient(x, a, b), noise)
    return x - settings["rate"] * mean, noise


def fit(epochs: int) -> tuple[list[float], list[Any]]:
    rng, seconds, coefficients, spent = np.random.default_rng(0), [], [], 0.0
    x = jnp.zeros(X.shape[1] + 1)
    noise = privatizer.init(x)
    for _ in range(epochs):
        start = time.perf_counter()
        for _ in range(steps):
            rows = rng.choice(n, batch, replace=False, shuffle=False)
            x, noise = step(x, noise, X[rows], y[rows])
        x.block_until_ready()
        spent += time.perf_counter() - start
        seconds.append(spent)
        coefficients.append(np.asarray(x))
    return seconds, coefficients


fit(1)
told(*fit(epochs), batch=batch, rate=settings["rate"], noise=settings["noise"])
