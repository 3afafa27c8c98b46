"""Dask on this machine compared with one process on a 2 GB Parquet folder: throughput, memory, a killed worker.

``--parts N`` uses N files of 100 MB. The plan is the planner's own (a survey and its rounds), or one of 64 rounds
without a survey. Everything binds to 127.0.0.1; run it where there is loopback only:

    unshare -rn sh -c 'ip link set lo up; python -m benchmarks cluster'
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from benchmarks.files import WIDTH, file_rows, plan, write_parquet
from dpsco.engines.dask import ParquetRows, local_cluster, train
from dpsco.rows.file_stream import Labels
from dpsco.rows.public_columns import PublicColumns

PART_ROWS, PARTS, WORKERS, KEY, MARK = 500_000, 20, 2, bytes(32), 0.85
COLUMNS = PublicColumns([f"x{j}" for j in range(WIDTH)])


def folder_of(folder: Path, parts: int) -> Path:
    """``parts`` copies of one file: links are refused, since their rows would count twice."""
    one = folder / "part-0000.parquet"
    if not one.exists():
        write_parquet(folder, PART_ROWS, part=PART_ROWS)
    below = Path(tempfile.mkdtemp(dir=folder))
    for k in range(parts):
        shutil.copyfile(one, below / f"part-{k:04}.parquet")
    return below


def planned(n: int) -> dpsco.Plan:
    """The planner's own plan of the same problem."""
    by_hand = plan(n)
    return dpsco.plan(by_hand.problem, n=n, budget=by_hand.budget)


def on_cluster(folder: Path, chosen: dpsco.Plan, client: Any, **options: Any) -> Any:
    rows = ParquetRows(folder, Labels("y", ("0", "1")), COLUMNS, shuffle=options.pop("shuffle", 0))
    return train(chosen, rows, client, key=KEY, **options)


def in_process(folder: Path, chosen: dpsco.Plan, shuffle: int = 0) -> Any:
    return dpsco.train(chosen, dpsco.stream(file_rows(folder, shuffle=shuffle)), key=KEY)


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak_megabytes() -> float:
    with Path("/proc/self/status").open() as lines:
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def throughput(folder: Path, chosen: dpsco.Plan, shuffle: int, repeats: int) -> None:
    """Medians of some interleaved runs of each; the cluster is up and both have their kernels loaded.

    Processor seconds count those of all processes, also of workers that wait.
    """
    n = chosen.n
    times: dict[str, list[float]] = {"one process": [], f"Dask, {WORKERS} workers": []}
    work: dict[str, list[float]] = {name: [] for name in times}
    with local_cluster(WORKERS) as client:

        def processors() -> float:
            """Processor seconds of driver, scheduler and workers so far."""
            return time.process_time() + sum(client.run(time.process_time).values())

        runs = (
            lambda: in_process(folder, chosen, shuffle),
            lambda: on_cluster(folder, chosen, client, shuffle=shuffle),
        )
        for turn in range(repeats + 1):
            for name, run in zip(times, runs, strict=True):
                begun = processors()
                taken = seconds(run)
                if turn:
                    times[name].append(taken)
                    work[name].append(processors() - begun)
    alone, shared = (statistics.median(found) for found in times.values())
    for name, found in times.items():
        rate, best = n / statistics.median(found), n / min(found)
        used = statistics.median(work[name])
        print(f"    {name:<16} {rate:12,.0f} rows/s, best {best:12,.0f}, {used:6.2f} s of processors")
    said = "met" if alone / shared >= MARK else "MISSED"
    print(f"    {alone / shared:.2f} of one process   mark {MARK:g}  {said}", flush=True)


def memory(folders: dict[int, Path]) -> None:
    """Peak memory of each worker of a fresh cluster, after short folders and after long ones."""
    for parts, folder in folders.items():
        with local_cluster(WORKERS) as client:
            on_cluster(folder, plan(parts * PART_ROWS), client)
            peaks = sorted(client.run(peak_megabytes).values())
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        print(f"    {size:.1f} GB of rows: {', '.join(f'{peak:.0f}' for peak in peaks)} MB per worker")


def killed(folder: Path, n: int) -> None:
    """SIGKILL one of the workers while a round is being summed."""
    wanted = in_process(folder, plan(n)).model.coef
    with local_cluster(WORKERS) as client:
        victim = min(client.run(os.getpid).values())
        strike = threading.Timer(0.01, os.kill, (victim, signal.SIGKILL))

        def watch(after: Any) -> None:
            if after.step == 20:
                strike.start()  # round 21 is under way by then

        model = on_cluster(folder, plan(n), client, on_round=watch).model.coef
        strike.join()
        gone = victim not in client.run(os.getpid).values()
    print(f"    worker gone: {gone}; same model, bit for bit: {np.array_equal(model, wanted)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("planned", "throughput", "shuffled", "memory", "killed"))
    args = parser.parse_args()
    n = args.parts * PART_ROWS
    with tempfile.TemporaryDirectory(prefix="dpsco-") as name:
        folder, short = folder_of(Path(name), args.parts), max(1, args.parts // 4)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        print(f"  n = {n:,}, p = {WIDTH} float32, Parquet folder of {size:.1f} GB, {os.cpu_count()} cores")
        if args.only in (None, "planned"):
            chosen = planned(n)
            print(f"  the planner's own plan: {chosen.method.name}, {chosen.rounds} rounds, median of {args.repeats}")
            throughput(folder, chosen, 0, args.repeats)
        if args.only in (None, "throughput"):
            print(f"  64 rounds, median of {args.repeats}")
            throughput(folder, plan(n), 0, args.repeats)
        if args.only in (None, "shuffled"):
            print(f"  64 rounds, rows mixed in blocks of 65,536, median of {args.repeats}")
            throughput(folder, plan(n), 65_536, args.repeats)
        if args.only in (None, "memory"):
            print("  peak memory")
            memory({parts: folder_of(Path(name), parts) for parts in (short, 4 * short, 8 * short)})
        if args.only in (None, "killed"):
            print("  a worker killed with SIGKILL in round 21")
            killed(folder, n)


if __name__ == "__main__":
    main()
