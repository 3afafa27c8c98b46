"""Rows of a regime with a known minimiser, drawn chunk by chunk.

    a ~ N(0, diag(s^2)), divided by max(1, ||a||),    y ~ Bernoulli(sigmoid(<a, x*>)),    s_j ~ j^-1/2

Badly scaled columns are multiplied by factors from 1/100 to 1. All columns count alike: x*_j ~ N(0, 1.5^2 / p) / s_j.
Large data sets are in single precision, and the largest are drawn again by every run instead of kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.stream import Stream, stream
from dpsco.run import Model

__all__ = ["Rows", "simulated_rows"]

FRESH = 20_000
"""Rows that excess risk is measured on."""
KEPT = 2e8
"""Numbers of a data set up to which it is kept in memory."""
_SINGLE = 2e7
"""Numbers of a data set beyond which it is in single precision."""
_CHUNK = 20_000
"""Rows that are drawn at once."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A data set, and the excess risk of a model on it."""

    chunks: Callable[[], Iterator[tuple[Any, Any]]]
    excess: Callable[[Model], float]
    kept: tuple[Any, Any] | None = None
    """Features and labels, where they are kept."""

    def stream(self) -> Stream:
        """Return the rows for one pass."""
        return stream(self.chunks()) if self.kept is None else stream(*self.kept)

    def arrays(self) -> tuple[Any, Any]:
        """Return the rows for many passes."""
        if self.kept is None:
            raise DataError(f"Data sets of more than {KEPT:.0e} numbers are drawn again by every run, for one pass.")
        return self.kept


def simulated_rows(n: int, p: int, badly_scaled: bool, role: str, key: int) -> Rows:
    """Return n rows of p columns: a function of the arguments."""
    return (_large if float(n) * p > _SINGLE else _small)(n, p, badly_scaled, role, key)


def _drawn(n: int, p: int, badly_scaled: bool, role: str, key: int) -> Rows:
    public = np.random.default_rng([p, badly_scaled])
    scale = np.arange(1.0, p + 1) ** -0.5
    scale /= np.linalg.norm(scale)
    if badly_scaled:
        scale *= 10.0 ** public.uniform(-2.0, 0.0, p)
    truth = public.standard_normal(p) * 1.5 / (scale * math.sqrt(p))
    single = float(n) * p > _SINGLE
    sides, optimum = (part.astype(np.float32) if single else part for part in (scale, truth))

    def chunk(number: int, rows: int) -> tuple[Any, Any, Array]:
        """Features, labels and scores: a function of the number."""
        rng = np.random.default_rng([n, p, badly_scaled, role == "tuning", key, number])
        features = rng.standard_normal((rows, p), dtype=sides.dtype)
        features *= sides
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
        scores = np.asarray(features @ optimum, dtype=np.float64)
        return features, (rng.random(rows) < 0.5 * (1 + np.tanh(scores / 2))).astype(sides.dtype), scores

    def chunks() -> Iterator[tuple[Any, Any]]:
        for number, first in enumerate(range(0, n, _CHUNK), start=1):
            yield chunk(number, min(_CHUNK, n - first))[:2]

    fresh, _, scores = chunk(0, FRESH)
    chance = 0.5 * (1 + np.tanh(scores / 2))
    least = float(np.mean(np.logaddexp(0.0, scores) - chance * scores))

    def excess(model: Model) -> float:
        other: Array = fresh @ np.ravel(model.coef)
        return float(np.mean(np.logaddexp(0.0, other) - chance * other)) - least

    if float(n) * p > KEPT:
        return Rows(chunks, excess)
    features, labels = np.empty((n, p), sides.dtype), np.empty(n, sides.dtype)
    for number, (some, of_some) in enumerate(chunks()):
        place = slice(number * _CHUNK, number * _CHUNK + len(some))
        features[place], labels[place] = some, of_some
    return Rows(chunks, excess, (features, labels))


_small, _large = lru_cache(maxsize=12)(_drawn), lru_cache(maxsize=3)(_drawn)
