"""Two networks in JAX, trained privately in one pass: accelerated SRGD beside one-pass DP-SGD and DP-FTRL.

    python examples/networks_jax.py                a small made-up data set of pictures
    python examples/networks_jax.py mnist.npz      arrays x_train, y_train, x_test, y_test

Each method is tuned on as many settings as the others, and the best of each is shown: good for comparing methods, not
for a promise. A private run has its settings fixed beforehand, or pays for every run it looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpsco
from dpsco.algorithms import ALGORITHMS

Rows = tuple[np.ndarray, np.ndarray]


def made_up(n: int, seed: int) -> Rows:
    """Pictures of 8 x 8: one of ten smooth shapes, moved a little, with noise on top."""
    shapes = np.random.default_rng(0).normal(size=(10, 10, 10))
    shapes = np.stack([np.roll(shapes, k, axis) for k in (0, 1) for axis in (1, 2)]).sum(0)
    rng = np.random.default_rng(seed)
    labels, down, right = rng.integers(0, 10, n), rng.integers(0, 3, n), rng.integers(0, 3, n)
    window = np.arange(8)
    pictures = shapes[
        labels[:, None, None], (down[:, None] + window)[:, :, None], (right[:, None] + window)[:, None, :]
    ]
    return (pictures + rng.normal(size=pictures.shape)).reshape(n, 64).astype(np.float32) / 8, labels


def read(path: str) -> tuple[Rows, Rows]:
    with np.load(path) as file:
        data = {name.lower(): file[name] for name in file}
    pictures = [data["x_train"], data["x_test"]]
    largest = [255.0 if x.dtype.kind in "iu" else 1.0 for x in pictures]  # how pictures are stored is public
    x = [(x.reshape(len(x), -1) / most).astype(np.float32) for x, most in zip(pictures, largest, strict=True)]
    order = np.random.default_rng(0).permutation(len(x[0]))
    return (x[0][order], data["y_train"][order].astype(np.int64)), (x[1], data["y_test"].astype(np.int64))


def two_layers(p: Any, pixels: Any) -> Any:
    return jnp.tanh(pixels @ p["hidden"] + p["shift"]) @ p["out"]


def convolutional(p: Any, pixels: Any) -> Any:
    side = int(pixels.shape[-1] ** 0.5)
    pictures = pixels.reshape(-1, side, side, 1)
    for kernel in (p["first"], p["second"]):
        layout = ("NHWC", "HWIO", "NHWC")
        pictures = jnp.tanh(jax.lax.conv_general_dilated(pictures, kernel, (2, 2), "SAME", dimension_numbers=layout))
    return pictures.reshape(*pixels.shape[:-1], -1) @ p["dense"]


def networks(pixels: int) -> Iterator[tuple[str, Callable[[Any, Any], Any], dict[str, Any]]]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1])), jnp.float32)

    hidden, last = 64, -(-int(pixels**0.5) // 4)
    yield (
        "two layers",
        two_layers,
        {"hidden": normal(pixels, hidden), "shift": jnp.zeros(hidden), "out": normal(hidden, 10)},
    )
    kernels = {"first": normal(5, 5, 1, 8), "second": normal(3, 3, 8, 16)}
    yield "convolutional", convolutional, {**kernels, "dense": normal(16 * last**2, 10)}


def methods(short: bool) -> dict[str, list[tuple[Any, dict[str, float]]]]:
    """Settings of each method: as many for one as for another."""
    steps = (1.0, 4.0) if short else (1.0, 2.0, 4.0, 8.0)
    pairs = ((1.0, 2.0), (4.0, 2.0)) if short else ((2.0, 4.0), (2.0, 8.0), (4.0, 8.0), (4.0, 16.0))
    return {
        "accelerated-srgd": [("accelerated-srgd", {"beta": beta, "clip": clip}) for beta, clip in pairs],
        "dp-sgd": [(ALGORITHMS["dp-sgd"](step=step), {"clip": 1.0}) for step in steps],
        "dp-ftrl": [(ALGORITHMS["dp-ftrl"](step=step), {"clip": 1.0}) for step in steps],
    }


def main(path: str | None = None) -> None:
    train, test = read(path) if path else (made_up(6_000, seed=1), made_up(2_000, seed=2))
    print(f"{len(train[1]):,} rows to train on, once; accuracy on {len(test[1]):,} others, the best setting of each")
    for name, network, params in networks(train[0].shape[1]):

        def loss(p: Any, row: Any, network: Any = network) -> Any:
            scores = network(p, row[0]).reshape(10)
            return jax.nn.logsumexp(scores) - scores[row[1]]

        oracle = dpsco.jax.oracle(loss, params)
        print(f"\n{name}, {oracle.size:,} parameters\n{oracle.describe((train[0][0], train[1][0]))}")
        for epsilon in (1.0, 3.0):
            budget = dpsco.Budget(epsilon=epsilon, delta=1e-5)
            line = f"  epsilon = {epsilon:g}:"
            for method, settings in methods(short=path is None).items():
                best = 0.0
                for algorithm, choice in settings:
                    plan = dpsco.plan_network(oracle.size, len(train[1]), budget, **choice)
                    result = dpsco.train(
                        plan, dpsco.stream(*train), algorithm=algorithm, oracle=oracle, start=oracle.start
                    )
                    scores = network(oracle.weights(result.model), jnp.asarray(test[0])).reshape(-1, 10)
                    best = max(best, float(np.mean(np.argmax(scores, axis=1) == test[1])))
                line += f"   {method} {best:.1%}"
            print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
