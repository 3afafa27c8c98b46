"""Two networks in JAX, trained privately in one pass, compared with one-pass DP-SGD and DP-FTRL at equal budget.

    python examples/networks_jax.py                         made-up pictures, a quarter of the settings
    python examples/networks_jax.py mnist.npz               arrays X_train, y_train, X_test, y_test
    python examples/networks_jax.py mnist.npz "two layers"

How they are compared is in _comparison.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _comparison import Network, compare

import dpsco


def two_layers(p: Any, pixels: Any) -> Any:
    return jax.nn.relu(pixels @ p["hidden"] + p["shift"]) @ p["out"]


def convolutions(p: Any, pixels: Any) -> Any:
    side = int(pixels.shape[-1] ** 0.5)
    pictures = pixels.reshape(-1, side, side, 1)
    for kernel in (p["first"], p["second"]):
        layout = ("NHWC", "HWIO", "NHWC")
        pictures = jax.nn.relu(jax.lax.conv_general_dilated(pictures, kernel, (2, 2), "SAME", dimension_numbers=layout))
    return pictures.reshape(*pixels.shape[:-1], -1) @ p["dense"]


def prepared(network: Callable[[Any, Any], Any], params: dict[str, Any]) -> Network:
    def loss(p: Any, row: Any) -> Any:
        scores = network(p, row[0])
        return jax.nn.logsumexp(scores) - scores[row[1]]

    oracle = dpsco.jax.oracle(loss, params)
    return oracle, lambda trained, rows: np.argmax(network(oracle.weights(trained), jnp.asarray(rows)), axis=1)


def networks(side: int) -> dict[str, Network]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1])), jnp.float32)

    dense = {"hidden": normal(side * side, 64), "shift": jnp.zeros(64), "out": normal(64, 10)}
    kernels = {
        "first": normal(5, 5, 1, 8),
        "second": normal(3, 3, 8, 16),
        "dense": normal(16 * (-(-side // 4)) ** 2, 10),
    }
    return {"two layers": prepared(two_layers, dense), "convolutions": prepared(convolutions, kernels)}


if __name__ == "__main__":
    compare(networks, sys.argv[1:])
