"""Time of one-pass fits over the least time the machine allows: ratios of medians of interleaved runs.

    python -m benchmarks speed                      4 GB per dense case, and 1 GB of float32
    python -m benchmarks speed 1                    1 GB
    python -m benchmarks speed 4 sparse growth      some of: float32 float64 metric sparse diagonal softmax growth wide

A fit is ``dpsco.train(plan, dpsco.stream(X, y))``: 32 rounds, checks, private noise and updates included, compiled code
loaded; "unchecked" has ``non_finite="zero"``. Floors use as many threads. Dense: a sum over the same bytes; metric: the
same, for 15 rounds in a metric of rank 32; sparse: one pass that only gathers and one that only scatters, a plain loop
with a float64 sum each, as one writes it in numba; diagonal: the same rounds without a metric; softmax: the bare matrix
products. Beside each ratio stands its mark: the most it should be.
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
from dpsco.clipping.diagonal_map import diagonal_map
from dpsco.clipping.low_rank_map import LowRankMap
from dpsco.methods import InGeometry
from dpsco.query import Batch, Query

ROUNDS, REPEATS, LEAST_SECONDS = 32, 7, 3.0
THREADS = 2
DENSE_MARKS = {32: 2.4, 256: 1.5, 2048: 1.5}
METRIC_MARK, SPARSE_MARK, DIAGONAL_MARK, SOFTMAX_MARK, GROWTH_MARK = 4.0, 1.2, 1.3, 1.4, 0.05


def verdict(value: float, mark: float) -> str:
    """The value, its mark, and whether it is met."""
    return f"{value:>8.2f}{mark:>8.2f}  {'met' if value <= mark else 'MISSED'}"


def machine() -> str:
    """Processor, cores and versions, in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{model}, {os.cpu_count()} cores, numpy {np.__version__}"


def interleaved(
    tasks: dict[str, Callable[[], Any]], repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each task, run in turn so that a disturbance meets all of them; short tasks more often."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    begun, done = time.perf_counter(), 0
    while done <= repeats or time.perf_counter() < begun + LEAST_SECONDS:
        done += 1
        for name, task in tasks.items():
            start = clock()
            task()
            times[name].append(clock() - start)
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
    return dpsco.Plan(problem, n, budget, dpsco.AcceleratedSRGD(rounds=rounds, beta=0.5, clip=1.0, mechanism="sqrt"))


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
            "fit": lambda: dpsco.train(plan, dpsco.stream(features, labels)),
            "unchecked": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero")),
        }
    ) | interleaved({"naive": lambda: naive(plan, features, labels)}, 1)
    fit, unchecked, slow = (seconds[name] / seconds["read"] for name in ("fit", "unchecked", "naive"))
    speed = features.nbytes / seconds["read"] / 1e9
    print(f"  {width:>6}  {np.dtype(dtype).name:<8}{speed:>10.1f}{unchecked:>10.2f}{slow:>10.2f}", end="")
    print(verdict(fit, DENSE_MARKS[width]), flush=True)


def metric_case(width: int, gigabytes: float, rank: int = 32, rounds: int = 15) -> None:
    """Print the time of rounds in a public metric over a read of the same bytes."""
    n = int(gigabytes * 2**30 / (4 * width)) // rounds * rounds
    features, labels = dense_rows(n, width, np.float32)
    directions = np.linalg.qr(np.random.default_rng(2).standard_normal((width, rank)))[0]
    row_map = LowRankMap(np.zeros((width, 0)), 1.0, 0.0, directions, np.linspace(0.2, 0.9, rank), 1.0)
    later = dpsco.AcceleratedSRGD(rounds=rounds, beta=0.5, clip=1.0, mechanism="sqrt")
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=width)
    method = InGeometry(map=row_map, later=later, source="public rows")
    plan, flat = dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-6), method), features.reshape(-1)
    seconds = interleaved(
        {
            "read": lambda: in_halves(lambda start, stop: read_only(flat, start, stop), flat.size),
            "fit": lambda: dpsco.train(plan, dpsco.stream(features, labels)),
        },
        5,
    )
    print(f"  {width:>6}{verdict(seconds['fit'] / seconds['read'], METRIC_MARK)}", flush=True)


def sparse_rows(n: int, width: int, stored: int, seed: int) -> Any:
    """Rows of ``stored`` values in increasing columns, float32; a sixteenth drawn, then repeated."""
    from scipy.sparse import csr_array

    rng, few = np.random.default_rng(seed), max(1, n // 16)
    columns = np.sort(rng.integers(0, width - stored, (few, stored), dtype=np.int32), axis=1)
    columns = np.resize(columns + np.arange(stored, dtype=np.int32), (n, stored))
    values = np.resize(rng.random(few * stored, dtype=np.float32) / np.float32(stored**0.5), n * stored)
    return csr_array((values, columns.ravel(), np.arange(n + 1, dtype=np.int32) * stored), shape=(n, width))


def sparse_case(n: int = 12_000_000, width: int = 100_000, stored: int = 50) -> None:
    features = sparse_rows(n, width, stored, 1)
    labels, plan = np.resize([0.0, 1.0, 1.0], n), private_plan(n, width, dpsco.Logistic())
    points = np.random.default_rng(1).random(2 * width, dtype=np.float32)
    parts = features.data, features.indices, features.indptr
    oracle = dpsco.clipping.CompiledOracle(dpsco.Logistic())
    asked = Query(1, (points[:width], points[width:]), (2.0, -1.0), 1.0, n, grid=plan.schedule.calibration.grid)
    seconds = interleaved(
        {
            "gather": lambda: in_halves(lambda start, stop: gather_only(*parts, start, stop, points), n),
            "scatter": lambda: in_halves(lambda start, stop: scatter_only(*parts, start, stop, np.zeros(width)), n),
            "round": lambda: oracle.answer(asked, Batch(1, [(features, labels)])),
            "fit": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero")),
        },
        5,
    )
    floor = seconds["gather"] + seconds["scatter"]
    print(f"\nCSR, p = {width:,}, {stored} per row, n = {n:,}: over a gather-only + a scatter-only pass   mark")
    print(f"  all rows in one round {verdict(seconds['round'] / floor, SPARSE_MARK)}")
    print(f"  fit, {ROUNDS} rounds        {verdict(seconds['fit'] / floor, SPARSE_MARK)}", end="")
    print(f"   (gather {seconds['gather']:.3f} s, scatter {seconds['scatter']:.3f} s)", flush=True)


def diagonal_case(n: int = 1_000_000, width: int = 100_000, stored: int = 50, rounds: int = 15) -> None:
    """Print the time of rounds on sparse rows in a diagonal metric over the same rounds without it."""
    features, labels = sparse_rows(n, width, stored, 1), np.resize([0.0, 1.0, 1.0], n)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=width)
    later = dpsco.AcceleratedSRGD(rounds=rounds, beta=0.5, clip=1.0, mechanism="sqrt")
    row_map = diagonal_map(np.random.default_rng(2).uniform(0.2, 1.0, width), 1.0, 0.0)
    methods = {"without": later, "with": InGeometry(map=row_map, later=later, source="public rows")}
    plans = {name: dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-6), method) for name, method in methods.items()}
    tasks = {name: functools.partial(_sparse_fit, plan, features, labels) for name, plan in plans.items()}
    print(f"\nCSR, p = {width:,}, {stored} per row, n = {n:,}, {rounds} rounds: a diagonal metric over none   mark")
    for name, clock in (("fit", time.perf_counter), ("its processor time", time.process_time)):
        seconds = interleaved(tasks, 5, clock)
        print(f"  {name:<22}{verdict(seconds['with'] / seconds['without'], DIAGONAL_MARK)}", end="")
        print(f"   (without {seconds['without']:.3f} s)", flush=True)


def _sparse_fit(plan: dpsco.Plan, features: Any, labels: Any) -> None:
    dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero"))


def softmax_case(gigabytes: float, width: int = 784, classes: int = 10) -> None:
    print(f"\nsoftmax, K = {classes}, p = {width}, {gigabytes:g} GB: fit over bare matrix products, mark")
    for dtype in (np.float32, np.float64):
        n = int(gigabytes * 2**30 / (width * np.dtype(dtype).itemsize)) // ROUNDS * ROUNDS
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
        print(f"  {np.dtype(dtype).name:<8}{verdict(seconds['fit'] / seconds['products'], SOFTMAX_MARK)}", flush=True)


def growth() -> None:
    """Exponent of time in n of a streamed fit, nothing subtracted; in p and T above the cost of a fit without rows."""
    features, labels = dense_rows(1 << 23, 32, np.float32)  # 1 GB, handed out again and again: more than any cache

    def streamed(gigabytes: int) -> float:
        plan = private_plan(gigabytes * len(labels), 32, dpsco.Logistic())
        pieces = np.arange(0, len(labels), 1 << 18)

        def chunks() -> Any:
            for _ in range(gigabytes):
                for start in pieces.tolist():
                    yield features[start : start + (1 << 18)], labels[start : start + (1 << 18)]

        oracle = dpsco.clipping.CompiledOracle(dpsco.Logistic())
        return interleaved({"": lambda: dpsco.train(plan, dpsco.stream(chunks()), oracle=oracle)}, 1)[""]

    def seconds(n: int, width: int, rounds: int = ROUNDS) -> float:
        features, labels = dense_rows(n, width, np.float32)
        plan = private_plan(n, width, dpsco.Logistic(), rounds)
        oracle = dpsco.clipping.CompiledOracle(dpsco.Logistic())
        fit = {"fit": lambda: dpsco.train(plan, dpsco.stream(features, labels, non_finite="zero"), oracle=oracle)}
        return interleaved(fit, 5)["fit"]

    in_n = math.log(streamed(100) / streamed(1)) / math.log(100)
    empty = {width: seconds(ROUNDS, width) for width in (64, 1024)}
    in_p = math.log((seconds(640_000, 1024) - empty[1024]) / (seconds(640_000, 64) - empty[64])) / math.log(16)
    in_rounds = math.log(seconds(128, 64, 128) / seconds(128, 64, 8)) / math.log(16)
    print("\ngrowth of time")
    print(f"  exponent in n {in_n:.3f} from 8.4e6 to 8.4e8 streamed rows, 1 to 100 GB, nothing subtracted;", end="")
    print(f" mark 1.00 +- {GROWTH_MARK}  {'met' if abs(in_n - 1.0) <= GROWTH_MARK else 'MISSED'}")
    print(f"  exponent in p {in_p:.2f} (64 to 1024), above the cost of a fit without rows")
    print(
        f"  without rows: {1e3 * empty[64] / ROUNDS:.2f} ms per round, exponent in T {in_rounds:.2f} (8 to 128)",
        flush=True,
    )


def wide_case(n: int = 8_000_000, width: int = 1_000_000, stored: int = 50, rounds: int = 64) -> None:
    """How much of a fit with many parameters is spent on data."""
    features = sparse_rows(n, width, stored, 2)

    class Timed(dpsco.clipping.CompiledOracle):
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
    print(f"\np = {width:,}, T = {rounds}, n = {n:,} sparse rows of {stored}: {share:.0%} of the time on data,", end="")
    print(f" mark 50%  {'met' if share >= 0.5 else 'MISSED'}", flush=True)


def dense_cases(dtype: Any, gigabytes: float) -> None:
    print(
        f"\n{np.dtype(dtype).name} fits over a {THREADS}-thread read of the same bytes; T = {ROUNDS}, {gigabytes:g} GB"
    )
    print(f"  {'p':>6}  {'rows':<8}{'GB/s read':>10}{'unchecked':>10}{'naive':>10}{'fit':>8}{'mark':>8}")
    for width in DENSE_MARKS:
        dense_case(width, dtype, gigabytes)


def metric_cases(gigabytes: float) -> None:
    print(
        f"\n15 rounds in a metric of rank 32 over a {THREADS}-thread read of the same bytes; float32, {gigabytes:g} GB"
    )
    print(f"  {'p':>6}{'fit':>8}{'mark':>8}")
    for width in (256, 2048):
        metric_case(width, gigabytes)


SECTIONS: dict[str, Callable[[float], Any]] = {
    "float32": lambda gigabytes: [dense_cases(np.float32, size) for size in sorted({min(1.0, gigabytes), gigabytes})],
    "float64": lambda gigabytes: dense_cases(np.float64, gigabytes),
    "metric": lambda gigabytes: metric_cases(gigabytes),
    "sparse": lambda _: sparse_case(),
    "diagonal": lambda _: diagonal_case(),
    "softmax": softmax_case,
    "growth": lambda _: growth(),
    "wide": lambda _: wide_case(),
}


def main(gigabytes: str = "4", *sections: str) -> None:
    print(machine())
    for name in sections or SECTIONS:
        SECTIONS[name](float(gigabytes))


if __name__ == "__main__":
    main(*sys.argv[1:])
