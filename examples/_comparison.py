"""Shared by networks_torch.py and networks_jax.py: images, the settings each method may try, and the comparison.

Every method has twelve settings: two numbers of rounds, three steps, two clips. The best of them on a held-out part of
the training rows is trained anew on all of them, with two other noise keys, and the mean test accuracy is shown. A
search like this on private data has to be paid for; here it only makes the comparison even.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import dpsco
from dpsco.methods import DPFTRL, DPSGD, AcceleratedSRGD, Method

Rows = tuple[np.ndarray, np.ndarray]
Setting = Method
Network = tuple[Any, Callable[[Any, np.ndarray], np.ndarray]]
"""An oracle, and a function that returns the predictions of a trained model."""


def made_up(n: int, seed: int) -> Rows:
    """Return 8 x 8 images: one of ten smooth shapes, moved by up to two pixels, plus noise."""
    shapes = np.random.default_rng(0).normal(size=(10, 10, 10))
    shapes = np.stack([np.roll(shapes, k, axis) for k in (0, 1) for axis in (1, 2)]).sum(0)
    rng = np.random.default_rng(seed)
    labels, down, right = rng.integers(0, 10, n), rng.integers(0, 3, n), rng.integers(0, 3, n)
    across, window = labels[:, None, None], np.arange(8)
    pictures = shapes[across, (down[:, None] + window)[:, :, None], (right[:, None] + window)[:, None, :]]
    return (pictures + rng.normal(size=pictures.shape)).reshape(n, 64).astype(np.float32) / 4, labels


def read(path: str) -> tuple[Rows, Rows]:
    """Return shuffled rows to train on and rows to test on: X_train, y_train, X_test, y_test, pixels up to 255."""
    with np.load(path) as file:
        data = {name.lower(): file[name] for name in file}
    X, Z = (data[name].reshape(len(data[name]), -1).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    order = np.random.default_rng(1).permutation(len(X))
    return (X[order], data["y_train"][order].astype(np.int64)), (Z, data["y_test"].astype(np.int64))


def settings(n: int, *, short: bool) -> Mapping[str, list[Setting]]:
    """Return the configurations of each method with rounds and clip; a quarter of them if ``short``."""
    root = math.isqrt(n)

    def grid(make: Callable[..., Setting], rounds: Any, steps: Any, clips: Any) -> Iterator[Setting]:
        for T, step, clip in itertools.product(rounds[: 1 if short else 2], steps, clips[: 1 if short else 2]):
            yield make(step, rounds=T, clip=clip)

    def srgd(beta: float, **more: Any) -> Setting:
        return AcceleratedSRGD(beta=beta, **more)

    def sgd(step_size: float, **more: Any) -> Setting:
        return DPSGD(step_size=step_size, iterate="last", **more)

    def ftrl(step_size: float, **more: Any) -> Setting:
        return DPFTRL(step_size=step_size, momentum=0.9, iterate="last", **more)

    return {
        "accelerated SRGD": list(grid(srgd, (root // 4, root // 2), (4.0, 8.0, 16.0), (8.0, 16.0))),
        "DP-SGD": list(grid(sgd, (root // 4, root // 8), (2.0, 4.0, 8.0), (1.0, 2.0))),
        "DP-FTRL": list(grid(ftrl, (root // 2, root), (0.25, 0.5, 1.0), (1.0, 2.0))),
    }


def accuracy(network: Network, train: Rows, test: Rows, epsilon: float, setting: Setting, key: int) -> float:
    """Return the accuracy of one run. Fixed keys make runs comparable; the report says "not private"."""
    oracle, guesses = network
    planned = dpsco.plan_network(oracle.size, len(train[1]), dpsco.Budget(epsilon, delta=1e-5))
    plan = dataclasses.replace(planned, method=setting, rule="by hand")
    rows, noise = dpsco.stream(*train), bytes([key]) * 32
    result = dpsco.train(plan, rows, oracle=oracle, start=oracle.start, key=noise)
    return float(np.mean(guesses(result.model, test[0]) == test[1]))


def compare(networks: Callable[[int], Mapping[str, Network]], arguments: list[str]) -> None:
    """Print a table for ``networks(pixels per side)`` on simulated images, or on those of the file named first."""
    train, test = read(arguments[0]) if arguments else (made_up(12_000, seed=1), made_up(4_000, seed=2))
    part = len(train[1]) * 5 // 6
    first, held = (train[0][:part], train[1][:part]), (train[0][part:], train[1][part:])
    side = round(train[0].shape[1] ** 0.5)
    print(f"{len(train[1]):,} pictures of {side} x {side}, one pass, delta = 1e-5; mean test accuracy of two runs")
    for name, network in networks(side).items():
        if arguments[1:] and name not in arguments[1:]:
            continue
        for epsilon in (1.0, 3.0):
            print(f"{name}, {network[0].size:,} parameters, epsilon = {epsilon:g}", flush=True)
            for method, choices in settings(part, short=not arguments).items():
                found = [accuracy(network, first, held, epsilon, each, key=0) for each in choices]
                best = choices[int(np.argmax(found))]
                final = [accuracy(network, train, test, epsilon, best, key) for key in (1, 2)]
                chosen = {name: getattr(best, name) for name in (*best.tunable, "rounds", "clip")}
                words = " ".join(f"{name} {value:g}" for name, value in chosen.items())
                print(f"  {method:<18}{np.mean(final):.1%}   ({words})", flush=True)


if __name__ == "__main__":
    sys.exit("Run networks_torch.py or networks_jax.py.")
