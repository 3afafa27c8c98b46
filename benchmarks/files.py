"""Throughput of training from files and from the same rows in memory, and training within 1 GiB of address space."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import dpsco
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

WIDTH = 50


def write_parquet(folder: Path, rows: int, *, part: int = 250_000, seed: int = 0) -> None:
    """``rows`` rows of ``WIDTH`` float32 columns and a label, in parts of ``part`` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    optimum = rng.standard_normal(WIDTH)
    for k, start in enumerate(range(0, rows, part)):
        size = min(part, rows - start)
        x = rng.standard_normal((size, WIDTH), dtype=np.float32) / np.float32(WIDTH**0.5)
        y = (rng.random(size) < 1 / (1 + np.exp(-3 * (x @ optimum)))).astype(np.int8)
        columns = {f"x{j}": x[:, j] for j in range(WIDTH)}
        # Random floats do not compress: stored plainly, the file is as large as the rows.
        table = pa.table({**columns, "y": y})
        pq.write_table(
            table, folder / f"part-{k:04}.parquet", row_group_size=65_536, compression="none", use_dictionary=False
        )


def file_rows(folder: Path, **options: int) -> FileRows:
    columns = PublicColumns([f"x{j}" for j in range(WIDTH)])
    return FileRows(folder, Labels("y", ("0", "1")), columns, **options)


def plan(n: int) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), WIDTH, intercept=True)
    return dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-7), dpsco.AcceleratedSRGD(rounds=64, beta=0.25, clip=1.0))


def rates(folder: Path, n: int, repeats: int = 3) -> dict[str, float]:
    """Rows a second, best of some runs, interleaved."""
    from dpsco.estimators import PrivateLogisticRegression

    x, y = (np.concatenate(part) for part in zip(*file_rows(folder), strict=True))
    best: dict[str, float] = {}
    fit = PrivateLogisticRegression(epsilon=1.0, delta=1e-7, classes=[0, 1], rounds=64).fit
    runs = {
        "arrays, estimator": lambda: fit(x, y),  # checks, permutes and scales rows as reading a file does
        "arrays, ready rows": lambda: dpsco.train(plan(n), dpsco.stream(x, y)),
        "files": lambda: dpsco.train(plan(n), dpsco.stream(file_rows(folder))),
        "files, mixed order": lambda: dpsco.train(plan(n), dpsco.stream(file_rows(folder, shuffle=65_536))),
    }
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = max(best.get(name, 0.0), n / (time.perf_counter() - start))
    return best


_LIMITED = """
import resource, sys
limit = int(sys.argv[3])
import dpsco
from benchmarks.files import file_rows, plan
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
n = int(sys.argv[2])
dpsco.train(plan(n), dpsco.stream(file_rows(Path(sys.argv[1]))))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss counts the parent's too
print(int(peak.split()[1]) / 1024)
"""


def within(folder: Path, n: int, limit: int) -> float:
    """Peak resident megabytes of a process that trains within ``limit`` bytes of address space."""
    # Arrow's default allocator reserves a gigabyte of addresses before it needs any.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-c", _LIMITED, str(folder), str(n), str(limit)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=root)
    return float(done.stdout)


def main(n: int = 2_000_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_parquet(folder, n)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        found = rates(folder, n)
        print(f"n = {n:,}, p = {WIDTH} float32, Parquet folder of {size:.0f} MB, T = 64; best of 3")
        for label, rate in found.items():
            share = (
                f"{rate / found['arrays, estimator']:.2f} of the estimator, {rate / found['arrays, ready rows']:.2f}"
            )
            print(f"  {label:<20} {rate:12,.0f} rows/s   {share} of ready rows")
        limit = 1 << 30
        print(f"  peak memory within {limit >> 20} MiB of addresses: {within(folder, n, limit):.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
