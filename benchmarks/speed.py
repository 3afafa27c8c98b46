"""Whole one-pass fits against what the machine can do at best, in ratios of medians of interleaved runs.

    python -m benchmarks speed              4 GB for each dense case
    python -m benchmarks.speed 1            1 GB

A fit is ``dpsco.train``: 32 rounds, private noise and updates included, compiled code loaded; "checked" also looks
for values that are not finite first, a second read. Floors use as many threads. Dense: a sum over the same bytes;
sparse: one pass that only gathers and one that only scatters; softmax: the bare matrix products.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import dpsco
from benchmarks.speed_floors import gather_only, read_only, scatter_only

ROUNDS, REPEATS = 32, 7
THREADS = 2


def machine() -> str:
    """Processor, cores and versions, in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{model}, {os.cpu_count()} cores, numpy {np.__version__}"


def interleaved(tasks: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Median seconds of each task, run in turn so that a disturbance meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}  # the first run warms up


def in_halves(work: Callable[[int, int], Any], size: int) -> None:
    """``work(start, stop)`` on equal parts, a thread each."""
    edges = np.linspace(0, size, THREADS + 1).astype(int)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, edges[:-1].tolist(), edges[1:].tolist()))


def private_plan(n: int, width: int, loss: Any, rounds: int = ROUNDS) -> dpsco.Plan:
    """A private plan of fixed rounds: what it learns does not matter here."""
    problem = dpsco.Problem(loss, dpsco.L2Ball(10.0), dimension=width)
    budget = dpsco.Budget(1.0, 1e-6)
    return dpsco.Plan(problem, n, budget, rounds=rounds, beta=0.5, clip=1.0, mechanism="sqrt")


def dense_rows(n: int, width: int, dtype: Any) -> tuple[Any, Any]:
    """Rows of norm about 1; one block drawn, then repeated: the values do not matter to the time."""
    block = np.random.default_rng(0).normal(size=(min(n, 4096), width)) / math.sqrt(width)
    return np.resize(block.astype(dtype), (n, width)), np.resize([0.0, 1.0, 1.0], n)


def naive(plan: dpsco.Plan, features: Any, labels: Any) -> Any:
    """The rounds as one would write them in NumPy, without privacy's exact arithmetic, noise or blocks."""
    x = before = total = np.zeros(features.shape[1], features.dtype)
    for t in range(plan.rounds):
        rows = slice(t * plan.batch_size, (t + 1) * plan.batch_size)
        a, y = features[rows], labels[rows].astype(features.dtype)
        c = (t + 1) * (1 / (1 + np.exp(-(a @ x))) - y) - t * (1 / (1 + np.exp(-(a @ before))) - y)
        c *= np.minimum(1.0, plan.clip / np.maximum(np.abs(c) * np.linalg.norm(a, axis=1), 1e-30)).astype(a.dtype)
        total = total + c @ a
        x, before = x - total / (plan.batch_size * (t + 1)), x
    return x


def dense_case(width: int, dtype: Any, gigabytes: float) -> None:
    n = int(gigabytes * 2**30 / (width * np.dtype(dtype).itemsize)) // ROUNDS * ROUNDS
    features, labels = dense_rows(n, width, dtype)
    plan, flat = private_plan(n, width, dpsco.Logistic()), features.reshape(-1)
    seconds = interleaved(
        {
            "read": lambda: in_halves(lambda start, stop: read_only(flat, start, stop), flat.size),
            "fit": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero")),
            "checked": lambda: dpsco.train(plan, dpsco.stream(features, labels)),
        }
    ) | interleaved({"naive": lambda: naive(plan, features, labels)}, 1)
    ratios = "".join(f"{seconds[name] / seconds['read']:>10.2f}" for name in ("fit", "checked", "naive"))
    print(
        f"  {width:>6}  {np.dtype(dtype).name:<8}{features.nbytes / seconds['read'] / 1e9:>10.1f}{ratios}", flush=True
    )


def sparse_case(n: int = 4_000_000, width: int = 100_000, stored: int = 50) -> None:
    rng = np.random.default_rng(1)
    from scipy.sparse import csr_array

    columns = np.resize(np.sort(rng.integers(0, width, (n // 16, stored), dtype=np.int32), axis=1), (n, stored))
    values = np.resize(rng.random(n // 16 * stored, dtype=np.float32), n * stored)
    features = csr_array(
        (values, columns.ravel(), np.arange(n + 1, dtype=np.int32) * stored),
        shape=(n, width),
    )
    labels, plan = np.resize([0.0, 1.0, 1.0], n), private_plan(n, width, dpsco.Logistic())
    points = rng.random(2 * width, dtype=np.float32)
    parts = features.data, features.indices, features.indptr
    seconds = interleaved(
        {
            "gather": lambda: in_halves(lambda start, stop: gather_only(*parts, start, stop, points), n),
            "scatter": lambda: in_halves(lambda start, stop: scatter_only(*parts, start, stop, np.zeros(width)), n),
            "fit": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero")),
        }
    )
    floor = seconds["gather"] + seconds["scatter"]
    print(f"\nCSR, p = {width:,}, {stored} a row, n = {n:,}: fit over gather-only + scatter-only pass")
    print(f"  {seconds['fit'] / floor:.2f}   (gather {seconds['gather']:.3f} s, scatter {seconds['scatter']:.3f} s)")


def softmax_case(n: int = 320_000, width: int = 784, classes: int = 10) -> None:
    print(f"\nsoftmax, K = {classes}, p = {width}, n = {n:,}: fit over bare matrix products")
    for dtype in (np.float32, np.float64):
        features, _ = dense_rows(n, width, dtype)
        labels, plan = np.resize(np.arange(classes), n), private_plan(n, width, dpsco.Softmax(classes))
        points, slopes = np.ones((width, 2 * classes), dtype), np.ones((n, classes), dtype)

        def products(start: int, stop: int, rows: Any = features, points: Any = points, slopes: Any = slopes) -> None:
            for k in range(start, stop, 1024):
                _, _ = rows[k : k + 1024] @ points, slopes[k : k + 1024].T @ rows[k : k + 1024]

        def fit(plan: Any = plan, features: Any = features, labels: Any = labels) -> None:
            dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero"))

        with threadpool_limits(1, user_api="blas"):
            seconds = interleaved({"products": functools.partial(in_halves, products, n), "fit": fit})
        print(f"  {np.dtype(dtype).name:<8}{seconds['fit'] / seconds['products']:>8.2f}", flush=True)


def growth() -> None:
    """Exponents of time in n and p above the cost of a fit without rows, and that cost's in T."""

    def seconds(n: int, width: int, rounds: int = ROUNDS) -> float:
        features, labels = dense_rows(n, width, np.float32)
        plan = private_plan(n, width, dpsco.Logistic(), rounds)
        oracle = dpsco.oracles.FusedOracle(dpsco.Logistic())
        fit = {"fit": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero"), oracle=oracle)}
        return interleaved(fit, 5)["fit"]

    empty = {width: seconds(ROUNDS, width) for width in (32, 64, 1024)}
    in_n = math.log((seconds(32_000_000, 32) - empty[32]) / (seconds(320_000, 32) - empty[32])) / math.log(100)
    in_p = math.log((seconds(640_000, 1024) - empty[1024]) / (seconds(640_000, 64) - empty[64])) / math.log(16)
    in_rounds = math.log(seconds(128, 64, 128) / seconds(128, 64, 8)) / math.log(16)
    print("\ngrowth of time: exponents above the cost of a fit without rows")
    print(f"  n: {in_n:.2f} (3.2e5 to 3.2e7, p = 32)   p: {in_p:.2f} (64 to 1024)")
    print(f"  without rows: {1e3 * empty[32] / ROUNDS:.2f} ms a round, exponent in T {in_rounds:.2f} (8 to 128)")


def wide_case(n: int = 4_000_000, width: int = 1_000_000, stored: int = 20, rounds: int = 64) -> None:
    """How much of a fit with many parameters is spent on data."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(2)
    columns = np.sort(rng.integers(0, width, (n // 16, stored), dtype=np.int32), axis=1)
    columns = np.resize(columns, (n, stored))
    values = np.full(n * stored, 0.2, np.float32)
    features = csr_array((values, columns.ravel(), np.arange(n + 1, dtype=np.int32) * stored), shape=(n, width))

    class Timed(dpsco.oracles.FusedOracle):
        seconds = 0.0

        def answer(self, query: Any, batch: Any) -> Any:
            start = time.perf_counter()
            answer = super().answer(query, batch)
            Timed.seconds += time.perf_counter() - start
            return answer

    plan, labels = private_plan(n, width, dpsco.Logistic(), rounds), np.resize([0.0, 1.0], n)
    start = time.perf_counter()
    dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero"), oracle=Timed(dpsco.Logistic()))
    total = time.perf_counter() - start
    share = Timed.seconds / total
    print(f"\np = {width:,}, T = {rounds}, n = {n:,} sparse rows of {stored}: {share:.0%} of the time on data")


def main(gigabytes: float = 4.0) -> None:
    print(machine())
    print(f"\nfits over a {THREADS}-thread read of the same bytes; T = {ROUNDS}, {gigabytes:g} GB")
    print(f"  {'p':>6}  {'rows':<8}{'GB/s read':>10}{'fit':>10}{'checked':>10}{'naive':>10}")
    for dtype in (np.float32, np.float64):
        for width in (32, 256, 2048):
            dense_case(width, dtype, gigabytes)
    sparse_case()
    softmax_case()
    growth()
    wide_case()


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:]))
