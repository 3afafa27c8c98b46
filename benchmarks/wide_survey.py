"""The diagonal survey on sparse tables of very many columns, against the plain plan: test loss, rounds, time, memory.

    python -m benchmarks wide_survey                     eight regimes, 2 runs each
    python -m benchmarks wide_survey 1e5 1e4 1           one: rows, columns, epsilon
    python -m benchmarks wide_survey memory              what a fit adds to the memory of its process, n and 4 n rows

Rows are like texts: about 50 stored values in columns whose frequencies fall as 1 / rank, logarithms of counts, norm 1
(float32). Labels follow a logistic model with normal coefficients for every column. ``PrivateLogisticRegression`` with
defaults but for ``survey``; delta = 1e-6. "base" predicts the share of the classes, "truth" is the loss of the model
behind the labels, which no number of rows of this size reaches: most columns are rare.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import dpsco

REGIMES = (
    (1e4, 5e3, 1.0),
    (3e4, 1e4, 1.0),
    (3e4, 1e5, 1.0),
    (3e4, 5e3, 4.0),
    (1e5, 1e4, 0.3),
    (1e5, 1e4, 1.0),
    (1e5, 1e5, 1.0),
    (3e5, 1e5, 1.0),
)
RUNS = 2
STORED, SIGNAL, OFFSET = 50, 1.5, -0.5

_PEAK = """
import sys
from pathlib import Path
from benchmarks.wide_survey import fitted, peak, texts
n, p, survey = int(float(sys.argv[1])), int(float(sys.argv[2])), sys.argv[3]
small = texts(10_000, p, 5)[:2]
fitted(*small, survey, 1.0)
rows, labels, _ = texts(n, p, 0)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = peak()
fitted(rows, labels, survey, 1.0)
print(before, peak(), (rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes) / 2**20)
"""


def texts(n: int, p: int, seed: int) -> tuple[Any, Any, float]:
    """Rows, labels, and the loss of the model behind the labels."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    edges = np.cumsum(1 / np.arange(1.0, p + 1))
    counts = rng.poisson(STORED, n) + 1
    column = np.minimum(np.searchsorted(edges / edges[-1], rng.random(counts.sum())), p - 1)
    place, times = np.unique(np.repeat(np.arange(n), counts) * p + column, return_counts=True)
    row, column = place // p, (place % p).astype(np.int32)
    values = 1 + np.log(times)
    values = (values / np.sqrt(np.bincount(row, values**2, n))[row]).astype(np.float32)
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int32)
    rows = csr_array((values, column, ends), shape=(n, p))
    scores = SIGNAL * (rows @ np.random.default_rng(12345).standard_normal(p)) + OFFSET
    labels = (rng.random(n) < 1 / (1 + np.exp(-scores))).astype(np.int64)
    return rows, labels, float(np.mean(np.logaddexp(0, scores) - labels * scores))


def fitted(rows: Any, labels: Any, survey: str, epsilon: float) -> Any:
    """A fitted estimator, with noise of its own."""
    return dpsco.PrivateLogisticRegression(epsilon=epsilon, delta=1e-6, classes=[0, 1], survey=survey).fit(rows, labels)


def loss_of(model: Any, rows: Any, labels: Any) -> float:
    scores = np.ravel(rows @ model.coef_.ravel()) + float(np.ravel(model.intercept_)[0])
    return float(np.mean(np.logaddexp(0, scores) - labels * scores))


def regime(n: int, p: int, epsilon: float) -> None:
    """Print one line."""
    rows, labels, _ = texts(n, p, 0)
    fresh, truth, least = texts(50_000, p, 1)
    share = truth.mean()
    base = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    print(f"{n:>8,}{p:>9,}{epsilon:>7g}{base:>9.4f}{least:>8.4f}", end="")
    for survey in ("none", "diagonal"):
        found, seconds = [], []
        for _ in range(RUNS):
            start = time.perf_counter()
            model = fitted(rows, labels, survey, epsilon)
            seconds.append(time.perf_counter() - start)
            found.append(loss_of(model, fresh, truth))
        print(f"{np.mean(found):>10.4f}{model.privacy_.rounds:>4}{min(seconds):>7.2f}", end="")
    print(f"   {'none' if fitted(rows, labels, 'auto', epsilon).geometry_ is None else 'diagonal'}", flush=True)


def peak() -> float:
    """Peak resident memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def memory(p: float = 1e5, n: float = 1e5) -> None:
    """Print what a fit adds to the peak of a process that holds its table, for n and 4 n rows."""
    for rows in (n, 4 * n):
        for survey in ("none", "diagonal"):
            given = [sys.executable, "-W", "ignore", "-c", _PEAK, str(rows), str(p), survey]
            done = subprocess.run(given, capture_output=True, text=True, check=True)
            before, after, table = map(float, done.stdout.split())
            print(f"n = {int(rows):,}, survey={survey!r}: table {table:.0f} MB, a fit adds {after - before:.0f} MB")


def main(*given: str) -> None:
    if given[:1] == ("memory",):
        memory(*map(float, given[1:]))
        return
    print(f"{'n':>8}{'p':>9}{'eps':>7}{'base':>9}{'truth':>8}{'none':>10}{'T':>4}{'s':>7}", end="")
    print(f"{'diagonal':>10}{'T':>4}{'s':>7}   auto")
    for n, p, epsilon in [tuple(map(float, given))] if given else REGIMES:
        regime(int(n), int(p), epsilon)


if __name__ == "__main__":
    main(*sys.argv[1:])
