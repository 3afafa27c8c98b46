"""Import time of dpsco over numpy's, in fresh processes, medians."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(code: str, repeats: int = 9) -> float:
    """Median wall time of a fresh interpreter that runs ``code``."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    base, ours = seconds("import numpy"), seconds("import dpsco")
    print(f"  import numpy {base:.3f} s, import dpsco {ours:.3f} s: {ours - base:.3f} s over numpy")


if __name__ == "__main__":
    main()
