"""Peak memory of a run on an iterable against the number of rows; each run has its own process."""

from __future__ import annotations

import subprocess
import sys

_RUN = """
import sys
import numpy as np
import dpsco
n, width = int(sys.argv[1]), 20
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=width)
plan = dpsco.Plan(problem, n, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=16, beta=0.2, clip=1.0))
rng = np.random.default_rng(0)
def chunks():
    for _ in range(0, n, 10_000):
        x = rng.standard_normal((10_000, width), dtype=np.float32) / width**0.5
        yield x, (x[:, 0] > 0).astype(np.int8)
dpsco.train(plan, dpsco.stream(chunks()))
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) / 1024)
"""


def peak_megabytes(n: int) -> float:
    """Peak resident memory of a process that trains on ``n`` streamed rows of 20 features."""
    done = subprocess.run([sys.executable, "-c", _RUN, str(n)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(n: int = 10_000_000) -> None:
    few, many = peak_megabytes(n // 100), peak_megabytes(n)
    rows = f"(the rows alone: {n // 100 * 80e-6:.3g} MB, {n * 80e-6:.3g} MB)"
    print(f"  n = {n // 100:.0e}: {few:.0f} MB   n = {n:.0e}: {many:.0f} MB   ratio {many / few:.3f}   {rows}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
