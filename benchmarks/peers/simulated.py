"""Simulated rows for the time to a test loss, and what each script prints. Needs NumPy alone."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

EPSILON, DELTA = 1.0, 1e-6


def simulated_rows(n: int, width: int, seed: int = 0) -> tuple[Any, Any]:
    """float32 rows of norm at most 1 with correlated columns of different scales, and labels 0 or 1."""
    model = np.random.default_rng(12345)
    mixing = model.standard_normal((width, width)) * np.arange(1, width + 1) ** -0.5
    mixing /= np.sqrt(np.sum(mixing**2))
    optimum = 12 * model.standard_normal(width) / np.sqrt(width) * 2
    rng = np.random.default_rng(seed)
    rows, labels = np.empty((n, width), dtype=np.float32), np.empty(n, dtype=np.int64)
    for start in range(0, n, 1 << 16):
        part = rng.standard_normal((min(1 << 16, n - start), width)) @ mixing.T
        part /= np.maximum(1.0, np.sqrt(np.sum(part**2, axis=1)))[:, None]
        rows[start : start + len(part)] = part
        labels[start : start + len(part)] = rng.random(len(part)) < 1 / (1 + np.exp(-(part @ optimum) - 0.5))
    return rows, labels


def asked() -> tuple[Any, Any, dict[str, Any]]:
    """Rows and settings that the command line states."""
    n, width, settings = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    return *simulated_rows(n, width), settings


def told(seconds: list[float], coefficients: list[Any], **settings: float) -> None:
    """Print seconds and coefficients, the intercept last, after each epoch."""
    flat = [[float(value) for value in x] for x in coefficients]
    print(json.dumps({"seconds": seconds, "coefficients": flat, "settings": settings}))
