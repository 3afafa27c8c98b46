"""Rows and timing for the fits of other libraries. Each script runs in its own environment."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 32


def rows() -> tuple[Any, Any]:
    """float32 rows of norm about 1 and labels 0 or 1, n and p from the command line."""
    n, width = int(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, width), dtype=np.float32) / np.float32(width**0.5)
    return features, (features[:, 0] + 0.1 * rng.standard_normal(n) > 0).astype(np.int64)


def timed(fit: Callable[[], Any], repeats: int = 3) -> None:
    """Print the median seconds of ``fit`` after one run to warm up."""
    fit()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        fit()
        seconds.append(time.perf_counter() - start)
    print(statistics.median(seconds))
