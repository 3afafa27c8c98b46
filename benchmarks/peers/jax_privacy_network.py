"""jax_privacy: DP-FTRL with noise of a buffered Toeplitz matrix made for the passes, on a network of ``network_task``.

Batches come in one fixed order, the same in every pass, so a row comes back after as many rounds as a pass has. The
matrix has three buffers, which jax_privacy recommends. Making it takes longer than a fit, so the runs of one command
share it: only the first of them has it in its seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dp_accounting import get_sigma_gaussian
from jax_privacy import clipping, noise_addition
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
from network_task import CENTRE, MOMENTUM, SCALE, Task, main, weight

jax.config.update("jax_enable_x64", True)  # buffered_toeplitz asks for it; weights and rows are float32
BUFFERS = 3


def noising_matrix(rounds: int, per_pass: int, passes: int, folder: Path) -> tuple[Any, float]:
    """Return the matrix made for rows that come back once per pass, and its sensitivity."""
    file = folder / f"matrix-{rounds}-{per_pass}.npz"
    if file.exists():
        with np.load(file) as numbers:
            made = buffered_toeplitz.BufferedToeplitz.build(**{name: jnp.asarray(numbers[name]) for name in numbers})
    else:
        few = {"min_buffers": BUFFERS, "max_buffers": BUFFERS}
        made = buffered_toeplitz.optimize(n=rounds, min_sep=per_pass, max_participations=passes, **few)
        np.savez(file, buf_decay=made.buf_decay, output_scale=made.output_scale)
    squared = toeplitz.minsep_sensitivity_squared(made.toeplitz_coefs(rounds), per_pass, passes, rounds)
    return made.inverse_as_streaming_matrix(), float(squared) ** 0.5


def network(name: str, side: int, rng: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Return initial weights of torch's law, and the function of weights and pictures."""

    def layer(fan_in: int, *shape: int) -> tuple[Any, Any]:
        each = [rng.uniform(-1, 1, size) / math.sqrt(fan_in) for size in (shape, shape[-1:])]
        return jnp.asarray(each[0], jnp.float32), jnp.asarray(each[1], jnp.float32)

    def linear(x: Any, own: Any) -> Any:
        return x.reshape(len(x), -1) @ own[0] + own[1]

    def convolution(x: Any, own: Any, padding: int) -> Any:
        pads = [(padding, padding)] * 2
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, own[0], (2, 2), pads, dimension_numbers=layout) + own[1]

    def mlp(p: Any, x: Any) -> Any:
        return linear(jax.nn.relu(linear(x, p[0])), p[1])

    def cnn(p: Any, x: Any) -> Any:
        x = jax.nn.relu(convolution(x.transpose(0, 2, 3, 1), p[0], 2))
        return linear(jax.nn.relu(convolution(x, p[1], 1)), p[2])

    if name == "mlp":
        return [layer(side**2, side**2, 64), layer(64, 64, 10)], mlp
    size = 16 * ((side + 3) // 4) ** 2
    return [layer(25, 5, 5, 1, 8), layer(72, 3, 3, 8, 16), layer(size, size, 10)], cnn


def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(task.key)
    params, apply = network(task.network, X.shape[-1], rng)
    per_pass = task.rounds // task.passes
    task.rounds, size = per_pass * task.passes, len(y) // per_pass
    matrix, sensitivity = noising_matrix(task.rounds, per_pass, task.passes, Path(task.file).parent)
    sigma = get_sigma_gaussian(task.epsilon, task.delta)

    def loss(p: Any, pixels: Any, labels: Any) -> Any:
        scores = apply(p, (pixels - CENTRE) / SCALE)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    few = next(rows for rows in range(32, 0, -1) if size % rows == 0)  # gradients of few rows fit into the cache
    gradient = clipping.clipped_grad(
        loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=size, microbatch_size=few
    )
    privatizer = noise_addition.matrix_factorization_privatizer(
        matrix,
        stddev=float(gradient.sensitivity()) * sensitivity * sigma,
        prng_key=jax.random.key(task.key),
    )

    @jax.jit
    def step(p: Any, velocity: Any, noise: Any, pixels: Any, labels: Any, length: Any) -> Any:
        mean, noise = privatizer.update(gradient(p, pixels, labels), noise)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, mean)
        return jax.tree.map(lambda w, v: w - length * v, p, velocity), velocity, noise

    order = rng.permutation(len(y))[: per_pass * size].reshape(per_pass, size)
    velocity, noise = jax.tree.map(jnp.zeros_like, params), privatizer.init(params)
    for t in range(task.rounds):
        rows, length = order[t % per_pass], jnp.float32(task.step_size * weight(task, t))
        params, velocity, noise = step(params, velocity, noise, X[rows], y[rows], length)
    jax.block_until_ready(params)
    return lambda pixels: np.argmax(apply(params, (jnp.asarray(pixels) - CENTRE) / SCALE), axis=1)


main(fit)
