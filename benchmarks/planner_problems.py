"""A varied family of problems whose excess population risk can be measured without label noise.

Rows are drawn fresh, divided by max(1, norm); labels follow a model at ``optimum``. Risk is the conditional
expectation of the loss over the label, averaged over fresh rows, so that risk(optimum) is the exact minimum.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsco

Array = np.ndarray[Any, Any]

FRESH = 40_000
NOISE = np.array([-1.5, -0.8, -0.4, -0.1, 0.1, 0.4, 0.8, 1.5])  # label noise of the regression problems


@dataclass(frozen=True)
class Case:
    """One problem of the family."""

    name: str
    loss: str
    n: int
    p: int
    epsilon: float
    spectrum: str  # "isotropic", "i^-1/2", "i^-1": scale of feature i; "groups": one-hot groups and an intercept
    radius: float = 10.0
    optimum_norm: float = 5.0  # above ``radius``: the minimiser lies outside the ball
    scale: float = 1.0  # shrinks the rows inside the unit ball
    classes: int = 2

    @property
    def problem(self) -> dpsco.Problem:
        losses = {
            "logistic": dpsco.Logistic(),
            "huber": dpsco.Huber(),
            "softmax": dpsco.Softmax(self.classes),
            "smoothed-hinge": dpsco.SmoothedHinge(),
            "squared": dpsco.Squared(label_bound=3.0),
        }
        return dpsco.Problem(loss=losses[self.loss], domain=dpsco.L2Ball(radius=self.radius), dimension=self.p)

    @property
    def budget(self) -> dpsco.Budget:
        return dpsco.Budget(epsilon=self.epsilon, delta=self.n**-1.1)


FAMILY = (
    Case("reference", "logistic", 200_000, 50, 1.0, "i^-1/2"),
    Case("small n", "logistic", 10_000, 20, 1.0, "i^-1/2"),
    Case("small n, low eps", "logistic", 10_000, 10, 0.3, "isotropic", optimum_norm=3.0),
    Case("small n, high eps", "logistic", 10_000, 50, 8.0, "isotropic"),
    Case("wide", "logistic", 30_000, 500, 1.0, "i^-1/2"),
    Case("wide isotropic", "logistic", 100_000, 500, 4.0, "isotropic", optimum_norm=8.0),
    Case("wide fast decay", "logistic", 50_000, 300, 0.5, "i^-1"),
    Case("large n", "logistic", 500_000, 30, 0.3, "i^-1"),
    Case("large n isotropic", "logistic", 500_000, 100, 2.0, "isotropic"),
    Case("outside", "logistic", 100_000, 50, 1.0, "i^-1/2", radius=3.0, optimum_norm=8.0),
    Case("outside isotropic", "logistic", 50_000, 20, 2.0, "isotropic", radius=2.0, optimum_norm=6.0),
    Case("groups", "logistic", 50_000, 100, 1.0, "groups", radius=20.0),
    Case("groups, high eps", "logistic", 30_000, 60, 8.0, "groups", radius=20.0),
    Case("huber", "huber", 100_000, 50, 1.0, "i^-1/2", optimum_norm=3.0),
    Case("huber isotropic", "huber", 30_000, 20, 2.0, "isotropic", optimum_norm=2.0),
    Case("huber outside", "huber", 50_000, 100, 4.0, "i^-1", radius=1.5, optimum_norm=4.0),
    Case("huber groups", "huber", 200_000, 80, 0.5, "groups"),
    Case("softmax", "softmax", 100_000, 30, 1.0, "i^-1/2", classes=5, optimum_norm=8.0, radius=20.0),
    Case("softmax isotropic", "softmax", 50_000, 50, 4.0, "isotropic", classes=10, optimum_norm=15.0, radius=20.0),
    Case("softmax groups", "softmax", 200_000, 60, 1.0, "groups", classes=3, radius=20.0),
)


@dataclass(frozen=True)
class Data:
    """Rows to train on, fresh rows to measure with."""

    case: Case
    features: Array
    labels: Array
    fresh: Array
    targets: Array  # conditional law of the fresh labels: probabilities, or the regression function
    best: Array

    def risk(self, coefs: Array) -> Array:
        """F of each row of ``coefs``, up to a constant of the problem."""
        return np.array([self._risk(c) for c in np.atleast_2d(coefs)])

    def excess(self, coefs: Array) -> Array:
        return self.risk(coefs) - self.risk(self.best)

    def _risk(self, coef: Array) -> float:
        return risk(self.case.problem.loss, self.fresh, self.targets, coef)[0]


def risk(loss: Any, rows: Array, targets: Array, coef: Array) -> tuple[float, Array]:
    """Expected loss and its gradient."""
    k = loss.outputs
    scores = rows @ coef.reshape(k, -1).T.astype(rows.dtype)
    if loss.kind == "softmax":
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        value = np.log(total[:, 0]) + top[:, 0] - np.sum(targets * scores, axis=1)
        slope = weights / total - targets
    elif loss.kind in ("huber", "squared"):
        labels = targets[:, None] + NOISE[None, :]
        value = np.mean(loss.value(scores, labels), axis=1)
        slope = np.mean(loss.slope(scores, labels), axis=1)[:, None]
    else:
        m = scores[:, 0]
        value = targets * loss.value(m, np.ones(1)) + (1 - targets) * loss.value(m, np.zeros(1))
        slope = (targets * loss.slope(m, np.ones(1)) + (1 - targets) * loss.slope(m, np.zeros(1)))[:, None]
    gradient = (slope.T.astype(rows.dtype) @ rows).astype(np.float64) / len(rows)
    return float(np.mean(value, dtype=np.float64)), gradient.ravel()


def minimise(
    loss: Any, rows: Array, targets: Array, radius: float, smoothness: float, start: Array, steps: int = 400
) -> Array:
    """Projected accelerated gradient with restarts."""
    x = y = start
    k = 1
    last = np.inf
    for _ in range(steps):
        value, gradient = risk(loss, rows, targets, y)
        if value > last:
            k, y = 1, x
            value, gradient = risk(loss, rows, targets, y)
        last = value
        new = y - gradient / smoothness
        norm = np.linalg.norm(new)
        new = new * (radius / norm) if norm > radius else new
        if np.linalg.norm(new - y) * smoothness < 1e-7:
            return new
        y = new + (k - 1) / (k + 2) * (new - x)
        x, k = new, k + 1
    return x


def draw_rows(case: Case, count: int, rng: np.random.Generator) -> Array:
    """Rows of norm at most ``scale``."""
    if case.spectrum == "groups":
        return _groups(case.p, count, rng) * case.scale
    power = {"isotropic": 0.0, "i^-1/2": 0.5, "i^-1": 1.0}[case.spectrum]
    rows = rng.standard_normal((count, case.p), dtype=np.float32)
    rows *= (np.arange(1, case.p + 1) ** -power).astype(np.float32)
    if power == 0.0:
        rows /= np.float32(np.sqrt(case.p))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    return rows * np.float32(case.scale)


def _groups(p: int, count: int, rng: np.random.Generator) -> Array:
    """An intercept, correlated numbers, and one-hot groups with skewed levels: a table as people have them."""
    numbers = max(2, p // 12)
    rest = p - 1 - numbers
    groups = max(2, rest // 12)
    sizes = np.diff(np.linspace(0, rest, groups + 1).astype(int))
    common = rng.standard_normal((count, 1))
    parts = [np.ones((count, 1)), np.clip(0.5 + 0.15 * common + 0.2 * rng.standard_normal((count, numbers)), 0, 1)]
    for g, size in enumerate(sizes):
        weights = 1.0 / np.arange(1, size + 1)
        edges = np.cumsum(weights / weights.sum())
        level = np.searchsorted(edges, np.clip(rng.random(count) + 0.05 * (g % 3) * common[:, 0], 0, 1 - 1e-9))
        parts.append(np.eye(size)[np.minimum(level, size - 1)])
    rows = np.hstack(parts)
    return (rows / np.sqrt(1 + numbers + groups)).astype(np.float32)


def draw(case: Case, seed: int = 0) -> Data:
    """The rows and labels of a case."""
    rng = np.random.default_rng([seed, case.n, case.p])
    loss, k = case.problem.loss, case.problem.loss.outputs
    optimum = rng.standard_normal((k, case.p))
    optimum *= case.optimum_norm / np.linalg.norm(optimum)
    features, fresh = draw_rows(case, case.n, rng), draw_rows(case, FRESH, rng)
    scores, truth = features @ optimum.T, fresh @ optimum.T
    if loss.kind == "softmax":
        labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
        targets = np.exp(truth - truth.max(axis=1, keepdims=True))
        targets /= targets.sum(axis=1, keepdims=True)
    elif loss.kind in ("huber", "squared"):
        labels = scores[:, 0] + rng.choice(NOISE, size=case.n)
        targets = truth[:, 0]
    else:
        labels = (rng.random(case.n) < 1 / (1 + np.exp(-scores[:, 0]))).astype(np.int64)
        targets = 1 / (1 + np.exp(-truth[:, 0]))
    best = optimum.ravel()
    if case.optimum_norm > case.radius or loss.kind == "smoothed-hinge":
        start = best * min(1.0, case.radius / case.optimum_norm)
        top = float(np.linalg.eigvalsh(fresh.T @ fresh / len(fresh))[-1]) * case.problem.smoothness
        best = minimise(loss, fresh, targets, case.radius, top * 1.01, start)
    return Data(case, features, labels, fresh, targets, best)


def real(folder: Path, name: str, epsilon: float, seed: int = 0) -> Data:
    """Adult (logistic, with intercept) or MNIST (softmax), rows of norm 1, drawn with replacement.

    The table's own law is the population, so that the excess risk is known. ``folder`` holds a ``load.py`` with
    ``load(name) -> X, y, X_test, y_test``.
    """
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y, x_test, y_test = module.load(name)
    rows, labels = np.vstack([x, x_test]), np.concatenate([y, y_test]).astype(np.int64)
    if name == "adult":
        rows = np.hstack([rows, np.ones((len(rows), 1), np.float32)])
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    softmax = name == "mnist"
    case = Case(
        f"{name} (real)",
        "softmax" if softmax else "logistic",
        len(x),
        rows.shape[1],
        epsilon,
        "real",
        radius=20.0,
        classes=10 if softmax else 2,
    )
    loss = case.problem.loss
    targets = np.eye(10, dtype=np.float32)[labels] if softmax else labels.astype(np.float32)
    drawn = np.random.default_rng(seed).integers(len(rows), size=case.n)
    best = minimise(loss, rows, targets, 20.0, 0.5 * case.problem.smoothness, np.zeros(case.problem.parameters), 600)
    return Data(case, rows[drawn], labels[drawn], rows, targets, best)
