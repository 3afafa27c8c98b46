"""Networks in one pass over MNIST: ``plan_network`` untuned, beside tuned DP-FTRL and DP-SGD and the marks to reach.

    python -m benchmarks networks mnist.npz                       arrays X_train, y_train, X_test, y_test
    python -m benchmarks networks mnist.npz --keys 1 --only mlp   one noise key; of: mlp cnn jax
    python -m benchmarks networks mnist.npz --rivals              with tuned one-pass DP-FTRL and DP-SGD
    python -m benchmarks networks                                 no file: synthetic pictures, no marks

mlp is 784-64-10 and cnn has two convolutions, both by ``dpsco.torch.fit``; jax is mlp by ``dpsco.jax.fit``. Each begins
with (x - 0.13) / 0.31, public constants. The means over keys are shown with the range. A rival tries four settings, one
run each on 5/6 of the training rows, and the best on the other sixth is trained on all rows with every key. That
search would have to be paid for on private data; here it is free.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpsco

MARKS = {("mlp", 1.0): 0.904, ("mlp", 3.0): 0.920, ("cnn", 3.0): 0.925}
EPSILONS = (1.0, 3.0)
CENTRE, SCALE = 0.13, 0.31
Rows = tuple[np.ndarray, np.ndarray]
Options = dict[str, Any]


def pictures(path: str | None) -> tuple[Rows, Rows]:
    """Return the rows to train on and to test on, pixels in [0, 1]: those of a file, or synthetic ones of 8 x 8."""
    if path is None:
        rng = np.random.default_rng(0)
        shapes, labels = rng.normal(size=(10, 1, 8, 8)), rng.integers(0, 10, 5_000)
        X = (shapes[labels] + rng.normal(size=(5_000, 1, 8, 8))).astype(np.float32) / 4
        return (X[:4_000], labels[:4_000]), (X[4_000:], labels[4_000:])
    with np.load(path) as file:
        data = {name.lower(): file[name] for name in file}
    X, Z = (data[name].reshape(-1, 1, 28, 28).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    return (X, data["y_train"].astype(np.int64)), (Z, data["y_test"].astype(np.int64))


def torch_model(name: str, side: int) -> Any:
    """Return the network, which scales its inputs by public constants."""
    from torch import nn

    class Scaled(nn.Module):
        def forward(self, pixels: Any) -> Any:
            return (pixels - CENTRE) / SCALE

    if name == "mlp":
        return nn.Sequential(Scaled(), nn.Flatten(), nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(
        Scaled(),
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * ((side + 3) // 4) ** 2, 10),
    )


def torch_accuracy(name: str, train: Rows, test: Rows, key: int, **how: Any) -> float:
    """Train a network of torch, with a plan or with epsilon and delta, and return its accuracy on ``test``."""
    import torch

    torch.manual_seed(key)
    model = torch_model(name, train[0].shape[-1])
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    dpsco.torch.fit(model, loss, train, classes=10, key=bytes([key]) * 32, **how)
    with torch.no_grad():
        return float(np.mean(model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]))


def jax_accuracy(_: str, train: Rows, test: Rows, key: int, **how: Any) -> float:
    """Train mlp in JAX, from initial weights of torch's law."""
    import jax
    import jax.numpy as jnp

    rng, size = np.random.default_rng(key), train[0].shape[-1] ** 2
    params = {
        name: jnp.asarray(rng.uniform(-1, 1, shape) / math.sqrt(fan_in), jnp.float32)
        for name, shape, fan_in in (
            ("hidden", (size, 64), size),
            ("shift", (64,), size),
            ("out", (64, 10), 64),
            ("last", (10,), 64),
        )
    }

    def apply(p: Any, pixels: Any) -> Any:
        x = (pixels.reshape(len(pixels), -1) - CENTRE) / SCALE
        return jax.nn.relu(x @ p["hidden"] + p["shift"]) @ p["out"] + p["last"]

    def loss(scores: Any, labels: Any) -> Any:
        return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]

    trained, _result = dpsco.jax.fit(apply, params, loss, train, classes=10, key=bytes([key]) * 32, **how)
    return float(np.mean(np.argmax(apply(trained, jnp.asarray(test[0])), axis=1) == test[1]))


NETWORKS: dict[str, Callable[..., float]] = {"mlp": torch_accuracy, "cnn": torch_accuracy, "jax": jax_accuracy}


def rivals(n: int) -> dict[str, list[Any]]:
    """Return the four settings of each rival: DP-FTRL as it is usually run, and DP-SGD, both with clip 1."""
    root = math.isqrt(n)
    usual: Options = {"clip": 1.0, "momentum": 0.9, "iterate": "last", "mechanism": "sqrt"}
    ftrl = ((root // 2, 0.5), (root, 0.25), (root, 0.5), (root, 1.0))
    sgd = ((root // 8, 4.0), (root // 8, 8.0), (root // 4, 2.0), (root // 4, 4.0))
    return {
        "DP-FTRL": [dpsco.DPFTRL(rounds=T, step_size=step, **usual) for T, step in ftrl],
        "DP-SGD": [dpsco.DPSGD(rounds=T, step_size=step, clip=1.0, iterate="last") for T, step in sgd],
    }


def tuned(
    name: str, train: Rows, test: Rows, epsilon: float, settings: list[Any], keys: int
) -> tuple[list[float], str]:
    """Choose a setting on held-out training rows, and return the test accuracies it has with every key."""
    order, part = np.random.default_rng(1).permutation(len(train[1])), len(train[1]) * 5 // 6
    first, held = ((train[0][rows], train[1][rows]) for rows in (order[:part], order[part:]))
    size = sum(weights.numel() for weights in torch_model(name, train[0].shape[-1]).parameters())

    def accuracy(rows: Rows, check: Rows, setting: Any, key: int) -> float:
        planned = dpsco.plan_network(size, len(rows[1]), dpsco.Budget(epsilon, delta=1e-5))
        plan = dataclasses.replace(planned, method=setting, rule="by hand")
        return torch_accuracy(name, rows, check, key, plan=plan)

    best = settings[int(np.argmax([accuracy(first, held, setting, key=100) for setting in settings]))]
    return [accuracy(train, test, best, key) for key in range(keys)], f"T {best.rounds}, step size {best.step_size:g}"


def show(name: str, method: str, epsilon: float, found: list[float], seconds: float, words: str) -> None:
    spread = f"({min(found):.1%} to {max(found):.1%})"
    print(
        f"{name}  epsilon {epsilon:g}  {method:<13}{np.mean(found):.2%}  {spread}  {seconds:.0f} s  {words}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks networks")
    parser.add_argument("file", nargs="?", help="mnist.npz")
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--only", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--rivals", action="store_true", help="tune and train DP-FTRL and DP-SGD too")
    options = parser.parse_args()
    if options.file is not None and not Path(options.file).is_file():
        parser.exit(0, f"Skipped: there is no file {options.file}.\n")
    train, test = pictures(options.file)
    print(f"{len(train[1]):,} pictures, one pass, delta = 1e-5, {options.keys} keys", flush=True)
    for name in options.only:
        for epsilon in options.epsilons:
            began, keys = time.perf_counter(), range(options.keys)
            found = [NETWORKS[name](name, train, test, key, epsilon=epsilon, delta=1e-5) for key in keys]
            seconds = (time.perf_counter() - began) / options.keys
            mark = MARKS.get((name, epsilon)) if options.file else None
            words = "" if mark is None else f"mark {mark:.1%}: {'reached' if np.mean(found) >= mark else 'missed'}"
            show(name, "plan_network", epsilon, found, seconds, words)
            for method, settings in rivals(len(train[1])).items() if options.rivals and name != "jax" else ():
                began = time.perf_counter()
                found, words = tuned(name, train, test, epsilon, settings, options.keys)
                runs = len(settings) + options.keys
                show(name, method, epsilon, found, (time.perf_counter() - began) / runs, f"tuned: {words}")


if __name__ == "__main__":
    main()
