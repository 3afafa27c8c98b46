"""Time of what users call, ``PrivateLogisticRegression(...).fit(X, y)`` with default arguments, over peers and floors.

    python -m benchmarks default_fit               1e6 rows of 64 and of 256 float32, a small table, intervals
    python -m benchmarks default_fit 100000        fewer rows

Medians of interleaved runs on two threads, compiled code loaded. Beside each fit: one epoch of scikit-learn's
SGDClassifier, a read of the same bytes by two threads, ``dpsco.train`` of the same plan on the same array, the plain
plan (``survey="none"``), and the survey's sum over a bare matrix product of the same rows in float64. Memory is what a
fit adds in a process that has loaded the compiled code by a fit of half of the rows; what that fit added stands beside
it. Processor seconds, of all threads, are what a busy machine measures best. Beside some ratios stands their mark: the
most they should be.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

import dpsco
from benchmarks.speed import dense_rows, in_halves, interleaved, machine, verdict
from benchmarks.speed_floors import read_only
from dpsco.clipping import survey_oracle
from dpsco.methods.surveyed import Surveyed
from dpsco.query import Batch

SGD_MARK, READ_MARK, TRAIN_MARK, SURVEY_MARK, SMALL_MARK, MEMORY_MARK = 0.6, 8.0, 1.5, 1.3, 12.0, 1.15


def estimator(**options: Any) -> Any:
    """Make the estimator of every case."""
    return dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-7, classes=[0, 1], **options)


def large(n: int, width: int) -> None:
    """Print the ratios of one table of ``n`` rows."""
    features, targets = dense_rows(n, width, np.float32)
    labels, flat = targets.astype(np.int64), features.reshape(-1)
    _, code = grown(lambda: estimator().fit(features[: n // 2], labels[: n // 2]))
    fitted, more = grown(lambda: estimator().fit(features, labels))
    memory = 1.0 + more / features.nbytes

    def sgd() -> Any:
        return SGDClassifier(loss="log_loss", max_iter=1, tol=None).fit(features, labels)

    seconds = interleaved(
        {
            "read": lambda: in_halves(lambda start, stop: read_only(flat, start, stop), flat.size),
            "fit": lambda: estimator().fit(features, labels),
            "train": lambda: dpsco.train(fitted.plan_, dpsco.stream(features, targets)),
            "plain": lambda: estimator(survey="none").fit(features, labels),
        },
        5,
    ) | interleaved({"sgd": sgd}, 1)
    print(f"\np = {width}, n = {n:,}, {fitted.plan_.method.name}: fit {seconds['fit']:.3f} s", end="")
    print(f", plain plan {seconds['plain']:.3f} s, read {seconds['read']:.3f} s, SGD epoch {seconds['sgd']:.3f} s")
    own, epoch = (processor(work) for work in (lambda: estimator().fit(features, labels), sgd))
    print(f"  processor seconds              {own:>8.3f}           (SGD epoch {epoch:.3f})")
    print(f"  fit / SGD epoch                {verdict(seconds['fit'] / seconds['sgd'], SGD_MARK)}")
    print(f"  fit / read                     {verdict(seconds['fit'] / seconds['read'], READ_MARK)}")
    print(f"  fit / train                    {verdict(seconds['fit'] / seconds['train'], TRAIN_MARK)}")
    print(
        f"  peak memory / the array        {verdict(memory, MEMORY_MARK)}   first fit {code / 1e6:.0f} MB", flush=True
    )
    if isinstance(fitted.plan_.method, Surveyed):
        survey(fitted.plan_, features, targets)


def survey(plan: dpsco.Plan, features: Any, targets: Any) -> None:
    """Print the time of the survey's sum over the bare product of its rows."""
    few = plan.method.rows
    rows = features[:few]
    query = plan.method.ask(plan.schedule, plan.method.start(plan.schedule, np.zeros(plan.problem.parameters)))
    oracle, wide = survey_oracle(plan.problem, plan.n), rows.astype(np.float64)

    def product(start: int, stop: int) -> None:
        for k in range(start, stop, 4096):
            _ = wide[k : min(k + 4096, stop)].T @ wide[k : min(k + 4096, stop)]

    with threadpool_limits(1, user_api="blas"):
        seconds = interleaved(
            {
                "product": lambda: in_halves(product, few),
                "survey": lambda: oracle.answer(query, Batch(0, [(rows, targets[:few])])),
            }
        )
    print(
        f"  survey of {few:,} rows / product {verdict(seconds['survey'] / seconds['product'], SURVEY_MARK)}", flush=True
    )


def small(n: int = 5000, width: int = 20) -> None:
    """Print the milliseconds of a fit on a small table."""
    features, targets = dense_rows(n, width, np.float64)
    labels = targets.astype(np.int64)
    fit = {"fit": lambda: estimator().fit(features, labels)}
    seconds, own = interleaved(fit, 15)["fit"], processor(fit["fit"], 45)
    print(f"\np = {width}, n = {n:,}: milliseconds of a fit   {verdict(1e3 * seconds, SMALL_MARK)}")
    print(f"  processor milliseconds         {1e3 * own:>8.2f}")


def intervals(n: int = 300_000, width: int = 10) -> None:
    """Print the processor milliseconds of a fit with intervals: its rounds are plain NumPy."""
    features, targets = dense_rows(n, width, np.float64)
    labels = targets.astype(np.int64)
    own = processor(lambda: estimator(survey="intervals").fit(features, labels))
    print(f"\np = {width}, n = {n:,}, survey='intervals': processor milliseconds of a fit {1e3 * own:.0f}", flush=True)


def processor(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median processor seconds of all threads."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def grown(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return a result and the bytes by which the process was larger at most while it was made (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    made = work()
    return made, _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    print(machine())
    print("                                    value    mark")
    for columns in (64, 256):
        large(rows, columns)
    small()
    intervals()
