"""Training from files over the bare decoding of the same files by pyarrow, and training within 1 GiB of address space.

    python -m benchmarks files              files of 2,000 MB
    python -m benchmarks files 200          files of 200 MB

Two tables, each as one Parquet file with pyarrow's own options and as one CSV file: 50 columns of float32, and 12 of
float64, 6 of integers and 6 of text. Beside each: pyarrow alone decodes the columns that are used, with as many threads
(Parquet in batches that are dropped, CSV as a whole table). Medians of interleaved runs, in the page cache, compiled
code loaded. In brackets: the time of all processors, which other work on the machine disturbs less, and its ratio.
``dpsco fit`` is the whole command without the start of its process: it counts the rows, plans, surveys,
mixes the rows in blocks and writes the model.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

WIDTH = 50
PART_ROWS = 250_000
MARKS = {".parquet": 0.6, ".csv": 0.5}
NUMBERS = [f"x{j}" for j in range(WIDTH)]
LEVELS = {f"c{j}": [f"level{k}" for k in range(4 + j)] for j in range(6)}


def write_parquet(folder: Path, rows: int, *, part: int = PART_ROWS, seed: int = 0) -> None:
    """``rows`` rows of ``WIDTH`` float32 columns and a label, in parts of ``part`` rows."""
    import pyarrow.parquet as pq

    for k, start in enumerate(range(0, rows, part)):
        table = numbers_table(min(part, rows - start), seed + k)
        # Random floats do not compress: stored plainly, the file is as large as the rows.
        pq.write_table(
            table, folder / f"part-{k:04}.parquet", row_group_size=65_536, compression="none", use_dictionary=False
        )


def numbers_table(rows: int, seed: int = 0) -> Any:
    """Columns of float32 and a label of 0 or 1."""
    import pyarrow as pa

    optimum, rng = np.random.default_rng(0).standard_normal(WIDTH), np.random.default_rng(seed)
    x = rng.standard_normal((rows, WIDTH), dtype=np.float32) / np.float32(WIDTH**0.5)
    y = (rng.random(rows) < 1 / (1 + np.exp(-3 * (x @ optimum)))).astype(np.int8)
    return pa.table({**{name: x[:, j] for j, name in enumerate(NUMBERS)}, "y": y})


def mixed_table(rows: int) -> Any:
    """Numbers with and without a range, text of few levels, and a label in text."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((rows, 12)) / 12**0.5
    counts = rng.integers(0, 100, (rows, 6))
    texts = {name: np.array(levels)[rng.integers(0, len(levels), rows)] for name, levels in LEVELS.items()}
    score = numbers.sum(axis=1) + (texts["c0"] == "level1")
    named = {f"x{j}": numbers[:, j] for j in range(12)} | {f"k{j}": counts[:, j] for j in range(6)}
    return pa.table({**named, **texts, "y": np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no")})


@dataclass(frozen=True)
class Case:
    """A table, what is declared of it, and the options that declare the same to the command."""

    name: str
    table: Callable[[int], Any]
    columns: PublicColumns
    classes: tuple[str, str]
    options: tuple[str, ...]


CASES = (
    Case("50 numbers", numbers_table, PublicColumns(NUMBERS), ("0", "1"), ("--features", ",".join(NUMBERS))),
    Case(
        "18 numbers and 6 texts",
        mixed_table,
        PublicColumns(NUMBERS[:12], ranges={f"k{j}": (0, 100) for j in range(6)}, categories=LEVELS),
        ("no", "yes"),
        (
            *("--features", ",".join(NUMBERS[:12])),
            *(word for j in range(6) for word in ("--range", f"k{j}=0:100")),
            *(word for name, levels in LEVELS.items() for word in ("--categories", f"{name}={'|'.join(levels)}")),
        ),
    ),
)


def written(path: Path, table: Any, megabytes: float) -> int:
    """Write the rows of ``table`` again and again into one file; return the number of rows."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    rows, size = 0, megabytes * 1e6
    if path.suffix == ".parquet":
        with pq.ParquetWriter(path, table.schema) as writer:
            while not rows or path.stat().st_size < size:
                writer.write_table(table)
                rows += table.num_rows
        return rows
    text = io.BytesIO()
    pa_csv.write_csv(table, text)
    with path.open("wb") as file:
        file.write(text.getvalue())
        behind = text.getvalue().index(b"\n") + 1
        for _ in range(max(1, round(size / len(text.getvalue())))):
            rows += table.num_rows
            if rows > table.num_rows:
                file.write(memoryview(text.getvalue())[behind:])
    return rows


def decode(path: Path, columns: list[str]) -> None:
    """Decode the columns of a file by pyarrow alone, on all processors."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(include_columns=columns))
        return
    with pq.ParquetFile(path, memory_map=True) as file:
        for _ in file.iter_batches(batch_size=65_536, columns=columns, use_threads=True):
            pass


def command(case: Case, path: Path, *options: str) -> None:
    """Run ``dpsco fit`` in this process."""
    from dpsco.cli import main as dpsco_command

    told, classes = io.StringIO(), ",".join(case.classes)
    out = ["--out", str(path.with_suffix(".json")), "--epsilon", "1", "--delta", "1e-7", "--json", *options]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = dpsco_command(["fit", str(path), "--label", "y", "--classes", classes, *case.options, *out])
    if code:
        raise RuntimeError(told.getvalue())


def trained(case: Case, path: Path, n: int, shuffle: int) -> None:
    """Train 64 rounds on the rows of a file."""
    rows = FileRows(path, Labels("y", case.classes), case.columns, feature_norm=5.0, shuffle=shuffle)
    dpsco.train(plan(n, case.columns.width), dpsco.stream(rows))


def measured(case: Case, path: Path, megabytes: float, repeats: int) -> None:
    """Print the seconds of each way to read a file, and the rate of decoding that it reaches."""
    n = written(path, case.table(min(PART_ROWS, int(2000 * megabytes))), megabytes)
    used = [*case.columns.names, "y"]
    runs: dict[str, Callable[[], None]] = {
        "pyarrow alone": lambda: decode(path, used),
        "train, order of the file": lambda: trained(case, path, n, 0),
        "train, mixed order": lambda: trained(case, path, n, 65_536),
        "dpsco fit --rows N": lambda: command(case, path, "--rows", str(n)),
        "dpsco fit": lambda: command(case, path),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    work: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start, begun = time.perf_counter(), time.process_time()
            run()
            if turn:  # the first loads the file and compiled code
                seconds[name].append(time.perf_counter() - start)
                work[name].append(time.process_time() - begun)
    floor, mark = statistics.median(seconds["pyarrow alone"]), MARKS[path.suffix]
    least = statistics.median(work["pyarrow alone"])
    size = path.stat().st_size / 1e6
    print(f"\n{case.name}, {path.suffix[1:]}, {size:,.0f} MB, n = {n:,}, {len(os.sched_getaffinity(0))} threads")
    for name, found in seconds.items():
        taken, used_up = statistics.median(found), statistics.median(work[name])
        ratio = floor / taken
        said = "" if name == "pyarrow alone" else f"   mark {mark:g}  {'met' if ratio >= mark else 'MISSED'}"
        print(
            f"  {name:<26}{taken:8.3f} s {size / taken:8,.0f} MB/s {ratio:6.2f} of decoding"
            f" ({used_up:6.3f} s of processors, {least / used_up:.2f}){said}",
            flush=True,
        )
    if path.suffix == ".parquet":
        print(f"  peak memory of dpsco fit in a process of its own: {peak_of_fit(case, path):.0f} MB", flush=True)
    path.unlink()


_FIT = """
import sys
from pathlib import Path
from benchmarks.files import CASES, command
command(next(case for case in CASES if case.name == sys.argv[1]), Path(sys.argv[2]))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024)
"""


def peak_of_fit(case: Case, path: Path) -> float:
    """Peak resident megabytes of a process that runs ``dpsco fit``; mapped pages of the file count."""
    given = [sys.executable, "-c", _FIT, case.name, str(path)]
    root = Path(__file__).parents[1]
    return float(subprocess.run(given, capture_output=True, text=True, check=True, cwd=root).stdout)


def file_rows(folder: Path, **options: int) -> FileRows:
    """Rows of the folder of ``write_parquet``."""
    return FileRows(folder, Labels("y", ("0", "1")), PublicColumns(NUMBERS), **options)


def plan(n: int, width: int = WIDTH) -> dpsco.Plan:
    """A plan of 64 rounds."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), width, intercept=True)
    return dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-7), dpsco.AcceleratedSRGD(rounds=64, beta=0.25, clip=1.0))


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


def main(megabytes: float = 2000.0, *only: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            for suffix in MARKS:
                if not only or suffix[1:] in only or case.name.split()[1] in only:
                    measured(case, folder / f"rows{suffix}", megabytes, 3)
        limit = 1 << 30
        for size in () if only else (megabytes / 4, megabytes):
            n = int(size * 1e6 / (4 * WIDTH))
            below = folder / str(n)
            below.mkdir()
            write_parquet(below, n)
            print(
                f"\npeak memory within {limit >> 20} MiB of addresses, {size:,.0f} MB: {within(below, n, limit):.0f} MB"
            )


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:2]), *sys.argv[2:])
