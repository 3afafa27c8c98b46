"""The facts that ``plan_network`` rests on: several networks on small data, each trained with several step sizes.

    python -m benchmarks network_plans                     every problem at epsilon 1, 3 and 8, one key
    python -m benchmarks network_plans --only text --keys 3 --rounds 0.5 1 2
    python -m benchmarks network_plans --mnist mnist.npz   with two networks on MNIST

The step size is stated as the noise that it leaves on each weight of the model, the number that plan_network fixes.
A line shows the accuracy on fresh rows for each of them, the noise that plan_network chooses, and what that choice
loses against the best of the line (``lost``, in points; the best is chosen after the fact, which flatters it).
``--rounds`` multiplies the number of rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import dpsco
from dpsco.planning.network_plan import model_noise

NOISES = (0.04, 0.16, 0.64)
EPSILONS = (1.0, 3.0, 8.0)
Rows = tuple[np.ndarray, np.ndarray]
Made = tuple[Callable[[], Any], Rows, Rows]


def pictures(n: int) -> tuple[Rows, Rows]:
    """8 x 8 pictures of ten shapes, moved by up to two pixels, with noise."""
    rng = np.random.default_rng(1)
    shapes = rng.normal(size=(10, 10, 10))
    shapes = np.stack([np.roll(shapes, k, axis) for k in (0, 1) for axis in (1, 2)]).sum(0)
    total, window = n + 4_000, np.arange(8)
    y, down, right = rng.integers(0, 10, total), rng.integers(0, 3, total), rng.integers(0, 3, total)
    X = shapes[y[:, None, None], (down[:, None] + window)[:, :, None], (right[:, None] + window)[:, None, :]]
    X = (X + 3 * rng.normal(size=X.shape)).astype(np.float32)[:, None] / 4
    return (X[:n], y[:n]), (X[n:], y[n:])


def table(n: int) -> tuple[Rows, Rows]:
    """20 columns, of which six decide one of three classes, through products and thresholds."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n + 4_000, 20)).astype(np.float32)
    score = X[:, 0] + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) - 0.8 + np.where(X[:, 4] > 0, X[:, 5], -X[:, 0])
    y = np.digitize(score + 0.3 * rng.normal(size=len(X)), (-0.7, 0.7))
    return (X[:n], y[:n]), (X[n:], y[n:])


def text(n: int, words: int = 500, length: int = 20, own_share: float = 0.3) -> tuple[Rows, Rows]:
    """20 words of 500; each of four subjects prefers some words."""
    rng = np.random.default_rng(3)
    usual = rng.dirichlet(np.ones(words) / 2)
    y = rng.integers(0, 4, n + 4_000)
    own = [rng.dirichlet(np.ones(words) / 10) for _ in range(4)]
    drawn = [rng.choice(words, size=(len(y), length), p=(1 - own_share) * usual + own_share * each) for each in own]
    X = np.choose(y[:, None], drawn)
    return (X[:n], y[:n]), (X[n:], y[n:])


def digits() -> tuple[Rows, Rows]:
    """scikit-learn's: 1,797 pictures of 8 x 8, a quarter of them to test on."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(4).permutation(len(y))
    X, y = X[order].astype(np.float32) / 16, y[order]
    return (X[:1_350], y[:1_350]), (X[1_350:], y[1_350:])


def perceptron(*widths: int) -> Callable[[], Any]:
    """Linear layers with ReLU between them."""

    def make() -> Any:
        from torch import nn

        layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers[:-1])

    return make


def convolutions(side: int, first: int) -> Callable[[], Any]:
    """Two convolutions of stride 2 and a linear layer."""

    def make() -> Any:
        from torch import nn

        return nn.Sequential(
            nn.Conv2d(1, first, 5 if side > 8 else 3, stride=2, padding=2 if side > 8 else 1),
            nn.ReLU(),
            nn.Conv2d(first, 2 * first, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * first * ((side + 3) // 4) ** 2, 10),
        )

    return make


def embedding(deviation: float, *hidden: int, words: int = 500, width: int = 16, length: int = 20) -> Callable[[], Any]:
    """The mean of the embeddings of a text, and linear layers; initial embeddings of a standard deviation."""

    def make() -> Any:
        from torch import nn

        table = nn.Embedding(words, width)
        nn.init.normal_(table.weight, std=deviation)
        return nn.Sequential(table, nn.AvgPool2d((length, 1)), *perceptron(width, *hidden, 4)())

    return make


def windows(deviation: float) -> Callable[[], Any]:
    """Embeddings, a convolution over three words, the mean and a linear layer."""

    def make() -> Any:
        from torch import nn

        table = nn.Embedding(500, 16)
        nn.init.normal_(table.weight, std=deviation)
        over = nn.Conv2d(1, 16, (3, 16))
        return nn.Sequential(
            table, nn.Unflatten(1, (1, 20)), over, nn.ReLU(), nn.AvgPool2d((18, 1)), nn.Flatten(), nn.Linear(16, 4)
        )

    return make


def encoder(deviation: float) -> Callable[[], Any]:
    """A transformer encoder of one layer: attention over 20 words, two heads, the mean, a linear layer."""

    def make() -> Any:
        from torch import nn

        table = nn.Embedding(500, 16)
        nn.init.normal_(table.weight, std=deviation)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        return nn.Sequential(table, layer, nn.AvgPool2d((20, 1)), nn.Flatten(), nn.Linear(16, 4))

    return make


def problems(mnist: str | None) -> dict[str, Made]:
    """Return every problem: how its network is made, rows to train on, rows to test on."""
    seen = pictures(12_000)
    made: dict[str, Made] = {
        "few rows, digits, 2 layers": (perceptron(64, 32, 10), *digits()),
        "pictures, 2 layers": (perceptron(64, 64, 10), *seen),
        "pictures, 3 layers": (perceptron(64, 64, 32, 10), *seen),
        "pictures, convolutions": (convolutions(8, 8), *seen),
        "table, 4 layers": (perceptron(20, 64, 64, 32, 3), *table(20_000)),
        "few rows, table, 2 layers": (perceptron(20, 32, 3), *table(2_000)),
        "few rows, pictures, convolutions": (convolutions(8, 8), *pictures(3_000)),
        "text, embedding": (embedding(1.0), *text(20_000)),
        "text, short embedding": (embedding(0.1), *text(20_000)),
        "text, shortest embedding": (embedding(0.02), *text(20_000)),
        "text, short embedding, 2 layers": (embedding(0.1, 32), *text(20_000)),
        "text, short embedding, windows": (windows(0.1), *text(20_000)),
        "few rows, text, short embedding": (embedding(0.1), *text(3_000)),
        "long text, short embedding": (
            embedding(0.1, words=2_000, width=32, length=80),
            *text(20_000, words=2_000, length=80, own_share=0.15),
        ),
        "text, encoder": (encoder(1.0), *text(20_000)),
        "text, encoder, short embedding": (encoder(0.1), *text(20_000)),
    }
    if mnist:
        from benchmarks.networks import pictures as read

        made["mnist, 2 layers"] = (perceptron(784, 64, 10), *read(mnist))
        made["mnist, convolutions"] = (convolutions(28, 8), *read(mnist))
    return made


def accuracy(problem: Made, plan: dpsco.Plan, key: int) -> float:
    """Return the accuracy on fresh rows after one run."""
    import torch

    make, train, test = problem
    torch.manual_seed(key)
    model = make()
    dpsco.torch.fit(model, torch.nn.functional.cross_entropy, train, plan=plan, key=bytes([key]) * 32)
    with torch.no_grad():
        return float(np.mean(model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]))


def line(name: str, problem: Made, epsilon: float, keys: int, times: float, noises: tuple[float, ...]) -> None:
    """Print the accuracies of one problem at one epsilon."""
    import torch

    make, (rows, labels), _ = problem
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(make(), torch.nn.functional.cross_entropy, input_shape=rows.shape[1:])
    facts: dict[str, Any] = {
        "size": oracle.size,
        "n": len(labels),
        "budget": dpsco.Budget(epsilon, 1e-5),
        "start": oracle.tensors,
        "outputs": oracle.output_change(rows[0].size),
    }
    chosen = dpsco.plan_network(**facts)
    if times != 1.0:
        chosen = dpsco.plan_network(**facts, rounds=round(times * chosen.rounds))
    noise_of_plan, step = model_noise(chosen), chosen.method.step_size
    seeds = [zlib.crc32(name.encode()) % 200 + key for key in range(keys)]

    def mean(plan: dpsco.Plan) -> float:
        return 100 * float(np.mean([accuracy(problem, plan, key) for key in seeds]))

    def with_noise(noise: float) -> dpsco.Plan:
        return dataclasses.replace(
            chosen, method=dataclasses.replace(chosen.method, step_size=step * noise / noise_of_plan)
        )

    found, ours = [mean(with_noise(noise)) for noise in noises], mean(chosen)
    words = " ".join(f"{value:5.1f}" for value in found)
    print(
        f"{name:<33}{epsilon:>3g}{chosen.rounds:>5} {words}   {noise_of_plan:.3f} {ours:5.1f}"
        f"   lost {max(0.0, max(found) - ours):.1f}   step size {step:.3g}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks network_plans")
    parser.add_argument("--only", help="problems whose name contains it")
    parser.add_argument("--mnist", help="mnist.npz: adds two networks on it")
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--noises", type=float, nargs="+", default=NOISES)
    parser.add_argument("--rounds", type=float, nargs="+", default=(1.0,))
    options = parser.parse_args()
    print(
        "noise on a weight:                 T "
        + " ".join(f"{noise:5g}" for noise in options.noises)
        + "   plan_network"
    )
    for name, problem in problems(options.mnist).items():
        if options.only is None or options.only in name:
            for epsilon in options.epsilons:
                for times in options.rounds:
                    line(name, problem, epsilon, options.keys, times, tuple(options.noises))


if __name__ == "__main__":
    main()
