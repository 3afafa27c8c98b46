"""Cost of a new process: import time above that of numpy, first compiled fit above the second. Medians.

python -m benchmarks startup
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

IMPORT_MARK, FIRST_FIT_MARK = 0.3, 1.0

_TWO_FITS = """
import time
import numpy as np
import dpsco
X, y = np.ones((64_000, 64), np.float32) / 8, np.resize([0.0, 1.0], 64_000)
plan = dpsco.Plan(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=64), 64_000, dpsco.Budget(1.0, 1e-6),
                  dpsco.AcceleratedSRGD(rounds=8, beta=0.5, clip=1.0, mechanism="sqrt"))
seconds = []
for _ in range(2):
    start = time.perf_counter()
    dpsco.train(plan, dpsco.stream(X, y), oracle=dpsco.clipping.CompiledOracle(dpsco.Logistic()))
    seconds.append(time.perf_counter() - start)
print(seconds[0] - seconds[1])
"""


def seconds(code: str, repeats: int = 9) -> float:
    """Median wall time of a fresh interpreter that runs ``code``."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def first_fit(repeats: int = 5) -> float:
    """Median seconds that a process's first compiled fit takes more than its second; the cache is warm."""
    command = [sys.executable, "-c", _TWO_FITS]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repeats + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:])  # the first one may compile


def main(repeats: int = 9) -> None:
    base, ours = seconds("import numpy", repeats), seconds("import dpsco", repeats)
    print(
        f"  import numpy {base:.3f} s, import dpsco {ours:.3f} s: {ours - base:.3f} s over numpy, mark {IMPORT_MARK} s"
    )
    fit = first_fit(min(repeats, 5))
    print(f"  first compiled fit of a process: {fit:.2f} s over the second, mark {FIRST_FIT_MARK} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
