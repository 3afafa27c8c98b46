"""Networks trained by ``plan_network``, untuned, in one pass over MNIST: test accuracy beside the marks to reach.

    python -m benchmarks networks mnist.npz                       arrays X_train, y_train, X_test, y_test
    python -m benchmarks networks mnist.npz --keys 1 --only mlp   one noise key; of: mlp cnn jax
    python -m benchmarks networks                                 no file: synthetic pictures, no marks

mlp is 784-64-10 and cnn has two convolutions, both by ``dpsco.torch.fit``; jax is mlp by ``dpsco.jax.fit``. The means
over keys are shown with the range. Tuned one-pass DP-FTRL and DP-SGD are in ``examples/networks_torch.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpsco

MARKS = {("mlp", 1.0): 0.904, ("mlp", 3.0): 0.920, ("cnn", 3.0): 0.925}
EPSILONS = (1.0, 3.0)
Rows = tuple[np.ndarray, np.ndarray]


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


def torch_accuracy(name: str, train: Rows, test: Rows, epsilon: float, key: int) -> float:
    import torch
    from torch import nn

    torch.manual_seed(key)
    side = train[0].shape[-1]
    if name == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(side * side, 64), nn.ReLU(), nn.Linear(64, 10))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * ((side + 3) // 4) ** 2, 10),
        )
    loss = nn.CrossEntropyLoss(reduction="none")
    dpsco.torch.fit(model, loss, train, epsilon=epsilon, delta=1e-5, classes=10, key=bytes([key]) * 32)
    with torch.no_grad():
        return float(np.mean(model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]))


def jax_accuracy(_: str, train: Rows, test: Rows, epsilon: float, key: int) -> float:
    import jax
    import jax.numpy as jnp

    rng, size = np.random.default_rng(key), train[0].shape[-1] ** 2
    params = {
        "hidden": jnp.asarray(rng.uniform(-1, 1, (size, 64)) / np.sqrt(size), jnp.float32),
        "shift": jnp.zeros(64),
        "out": jnp.asarray(rng.uniform(-1, 1, (64, 10)) / 8, jnp.float32),
        "last": jnp.zeros(10),
    }

    def apply(p: Any, x: Any) -> Any:
        return jax.nn.relu(x.reshape(len(x), -1) @ p["hidden"] + p["shift"]) @ p["out"] + p["last"]

    def loss(scores: Any, labels: Any) -> Any:
        return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]

    noise = bytes([key]) * 32
    trained, _result = dpsco.jax.fit(apply, params, loss, train, epsilon=epsilon, delta=1e-5, classes=10, key=noise)
    return float(np.mean(np.argmax(apply(trained, jnp.asarray(test[0])), axis=1) == test[1]))


NETWORKS: dict[str, Callable[..., float]] = {"mlp": torch_accuracy, "cnn": torch_accuracy, "jax": jax_accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks networks")
    parser.add_argument("file", nargs="?", help="mnist.npz")
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--only", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    options = parser.parse_args()
    if options.file is not None and not Path(options.file).is_file():
        parser.exit(0, f"Skipped: there is no file {options.file}.\n")
    train, test = pictures(options.file)
    print(f"{len(train[1]):,} pictures, one pass, delta = 1e-5, {options.keys} keys, plan_network untuned", flush=True)
    for name in options.only:
        for epsilon in options.epsilons:
            began = time.perf_counter()
            found = [NETWORKS[name](name, train, test, epsilon, key) for key in range(options.keys)]
            seconds = (time.perf_counter() - began) / options.keys
            mark = MARKS.get((name, epsilon)) if options.file else None
            words = "" if mark is None else f"  mark {mark:.1%}: {'reached' if np.mean(found) >= mark else 'missed'}"
            spread = f"({min(found):.1%} to {max(found):.1%})"
            print(f"{name}  epsilon {epsilon:g}  {np.mean(found):.1%}  {spread}  {seconds:.0f} s{words}", flush=True)


if __name__ == "__main__":
    main()
