"""Algorithm 1 for many configurations at once: the columns of one matrix product.

The arithmetic of ``dpsco.train`` with float32 products, without the grid and with a plain generator, to score grids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import dpsco
from dpsco.methods import Schedule
from dpsco.methods.adaptive_beta import adapted_beta
from dpsco.release.mechanisms.toeplitz import SquareRoot
from dpsco.release.mechanisms.workload import Workload

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Setting:
    """What a grid search varies."""

    rounds: int
    beta: float
    clip: float
    z_step: str = "halved"
    mechanism: str = "workload"
    adaptive: Schedule | None = None
    """The schedule, if beta follows released values."""


@lru_cache(maxsize=256)
def noise_matrix(name: str, rounds: int, z_step: str) -> Array:
    """Differences of sensitivity * B: noise on increments at unit clip and mu = 1."""
    if name == "independent":
        return np.eye(rounds)
    made: Any = SquareRoot(rounds) if name == "sqrt" else Workload(rounds, z_step)
    decoder = made.sensitivity * made.decoder()
    return np.diff(decoder, axis=0, prepend=0.0)


def setting_of(plan: dpsco.Plan) -> Setting:
    """A plan as a setting."""
    method = plan.method
    follows = plan.schedule if method.adaptive else None
    return Setting(method.rounds, method.beta, method.clip, method.z_step, method.mechanism, follows)


class Columns:
    """Settings and keys side by side: clipped sums of all of them in one product per block."""

    def __init__(self, problem: dpsco.Problem, budget: dpsco.Budget, features: Array, labels: Array) -> None:
        self.loss, self.problem, self.budget = problem.loss, problem, budget
        self.features, self.labels = features, labels
        self.norms = np.linalg.norm(features, axis=1).astype(np.float32)
        self.k = problem.loss.outputs

    def sums(self, rows: slice, points: Sequence[tuple[Array, Array]], clips: Array) -> Array:
        """sum over rows of clip(sum_j w_j grad f(x_j)), for each column; points are ((m, P) iterates, (m,) weights)."""
        m = len(clips)
        total = np.zeros((m, self.problem.parameters))
        step = max(256, 2_000_000 // (m * self.k))
        for start in range(rows.start, rows.stop, step):
            block = slice(start, min(rows.stop, start + step))
            a, y = self.features[block], self.labels[block]
            c = sum(np.float32(1) * self._slope(a, y, x) * w.astype(np.float32)[None, :, None] for x, w in points)
            length = np.abs(c[:, :, 0]) if self.k == 1 else np.sqrt(np.einsum("rmk,rmk->rm", c, c))
            length *= self.norms[block, None]
            np.maximum(length / clips.astype(np.float32), 1.0, out=length)
            c /= length[:, :, None]
            total += (c.reshape(len(y), -1).T @ a).reshape(m, -1)
        return total

    def _slope(self, a: Array, y: Array, x: Array) -> Array:
        m, k = len(x), self.k
        scores = (a @ x.reshape(m * k, -1).T.astype(np.float32)).reshape(len(a), m, k)
        kind = self.loss.kind
        if kind == "softmax":
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=2, keepdims=True)
            scores[np.arange(len(a)), :, y] -= 1
            return scores
        if kind == "logistic":
            scores *= 0.5
            np.tanh(scores, out=scores)
            scores += 1
            scores *= 0.5
            scores -= y[:, None, None].astype(np.float32)
            return scores
        if kind in ("huber", "squared"):
            scores -= y[:, None, None].astype(np.float32)
            return scores if kind == "squared" else np.clip(scores, -self.loss.width, self.loss.width, out=scores)
        return self.loss.slope(scores, y[:, None, None]).astype(np.float32)


def project(x: Array, radius: float) -> Array:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.minimum(1.0, radius / np.maximum(norms, 1e-300))


def accelerated(columns: Columns, settings: Sequence[Setting], keys: Sequence[int]) -> Array:
    """y_T of Algorithm 1 for every setting (all of one T) and key: shape (settings, keys, p)."""
    rounds = settings[0].rounds
    size, p, radius = len(columns.labels) // rounds, columns.problem.parameters, columns.problem.radius
    beta, clip = (np.repeat([getattr(s, name) for s in settings], len(keys)) for name in ("beta", "clip"))
    half = np.repeat([1.0 if s.z_step == "listed" else 2.0 for s in settings], len(keys))
    noise = noises(columns, settings, keys)
    x = z = before = total = np.zeros((len(beta), p))
    y = x
    ones = np.ones(len(beta))
    followers = [i for i in range(len(beta)) if settings[i // len(keys)].adaptive is not None]
    last = x
    for t in range(rounds):
        points = [(x, (t + 1) * ones)] + ([(before, -t * ones)] if t else [])
        total = total + columns.sums(slice(t * size, (t + 1) * size), points, clip) + noise[:, t]
        nabla = total / (size * (t + 1))
        for i in followers if t else ():
            beta[i] = adapted_beta(
                settings[i // len(keys)].adaptive,
                t,
                beta[i],
                x=x[i],
                x_before=before[i],
                nabla=nabla[i],
                nabla_before=last[i],
            )
        last = nabla
        z = project(z - ((t + 1) / (half * beta))[:, None] * nabla, radius)
        y = project(x - nabla / beta[:, None], radius)
        tau = 2 / (t + 3)
        x, before = (1 - tau) * y + tau * z, x
    return y.reshape(len(settings), len(keys), p)


def noises(columns: Columns, settings: Sequence[Any], keys: Sequence[int]) -> Array:
    rounds, p, budget = settings[0].rounds, columns.problem.parameters, columns.budget
    draws = [np.random.default_rng([key, 17]).standard_normal((rounds, p)) for key in keys]
    unit = budget.clips_apart / budget.mu_per_record if budget.private else 0.0
    rows = [
        unit * s.clip * (noise_matrix(s.mechanism, rounds, getattr(s, "z_step", "halved")) @ z)
        for s in settings
        for z in draws
    ]
    return np.array(rows)


def score(
    columns: Columns,
    settings: Sequence[Any],
    keys: Sequence[int],
    excess: Callable[[Array], Array],
    run: Any = accelerated,
) -> Array:
    """Mean excess over the keys of each setting; settings of the same T run together, at most 128 columns at a time."""
    result = np.empty(len(settings))
    by_rounds: dict[int, list[int]] = {}
    for i, s in enumerate(settings):
        by_rounds.setdefault(s.rounds, []).append(i)
    for indices in by_rounds.values():
        width = max(1, 128 // (len(keys) * columns.k))
        for start in range(0, len(indices), width):
            part = indices[start : start + width]
            coefs = run(columns, [settings[i] for i in part], keys)
            for i, c in zip(part, coefs, strict=True):
                result[i] = np.mean(excess(c))
    return result
