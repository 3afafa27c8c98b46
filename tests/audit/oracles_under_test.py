"""One oracle that keeps the contract and eight that break it, each in one place."""

from __future__ import annotations

import numpy as np

from dpsco.query import Array, Batch, Clipped, Query, to_grid


def gradient(x: Array, features: Array, label: float) -> Array:
    """Squared loss: its slope changes sign, so two gradients of one row may point apart."""
    return (features @ x - label) * features


class Right:
    """A user's oracle as it should be."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        total, count = np.zeros(query.points[0].size), 0
        with np.errstate(all="ignore"):
            for features, labels in batch.chunks:
                for a, y in zip(features, labels, strict=True):
                    gradients = [gradient(point, a, y) for point in query.points]
                    usable = np.all(np.isfinite(gradients)) and np.max(np.abs(gradients)) < 1e140
                    total += self.contribution(query, gradients) if usable else 0.0
                    count += 1
            return Clipped(to_grid(self.finish(total, count), query.grid), count)

    def contribution(self, query: Query, gradients: list[Array]) -> Array:
        return clip(sum(w * g for w, g in zip(query.weights, gradients, strict=True)), query.clip)

    def finish(self, total: Array, count: int) -> Array:
        return total


def clip(vector: Array, bound: float) -> Array:
    return vector * min(1.0, bound * (1 - 1e-12) / max(float(np.linalg.norm(vector)), 1e-300))


class ClipsApart(Right):
    def contribution(self, query: Query, gradients: list[Array]) -> Array:
        return sum(clip(w * g, query.clip) for w, g in zip(query.weights, gradients, strict=True))


class ClipsBeforeWeighting(Right):
    def contribution(self, query: Query, gradients: list[Array]) -> Array:
        return sum(w * clip(g, query.clip) for w, g in zip(query.weights, gradients, strict=True))


class ForgetsToClip(Right):
    def contribution(self, query: Query, gradients: list[Array]) -> Array:
        return sum(w * g for w, g in zip(query.weights, gradients, strict=True))


class DividesByRows(Right):
    def finish(self, total: Array, count: int) -> Array:
        return total / max(1, count)


class LooksAtOtherRows(Right):
    def answer(self, query: Query, batch: Batch) -> Clipped:
        with np.errstate(all="ignore"):
            centred = [(features - np.mean(features, axis=0), labels) for features, labels in batch.chunks]
        return super().answer(query, Batch(batch.step, centred))


class LooksAtLargeBatches(LooksAtOtherRows):
    def answer(self, query: Query, batch: Batch) -> Clipped:
        chunks = list(batch.chunks)
        many = sum(len(labels) for _, labels in chunks) > 10
        return (LooksAtOtherRows if many else Right).answer(self, query, Batch(batch.step, chunks))


class Remembers(Right):
    def __init__(self) -> None:
        self.momentum: Array | float = 0.0

    def contribution(self, query: Query, gradients: list[Array]) -> Array:
        self.momentum = 0.9 * self.momentum + super().contribution(query, gradients)
        return clip(np.asarray(self.momentum), query.clip)


class RaisesOnOddLabels(Right):
    def answer(self, query: Query, batch: Batch) -> Clipped:
        chunks = list(batch.chunks)
        if any(np.any(np.abs(labels) > 10) for _, labels in chunks):
            raise KeyError
        return super().answer(query, Batch(batch.step, chunks))
