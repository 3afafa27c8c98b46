"""Run benchmarks, each in a process of its own.

    python -m benchmarks                       all of them
    python -m benchmarks --quick               all of them at a small size: shows that they run, measures nothing
    python -m benchmarks NAME [options]        one, with options of its own
    python -m benchmarks --quick NAME          one at a small size

A benchmark that fails does not stop the others. Exit code: 0 if all ran, 1 with the failures listed at the end, 2 for a
name that does not exist.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK: dict[str, list[str]] = {
    "reference": ["1"],
    "memory": ["100000"],
    "startup": ["1"],
    "mechanisms": ["1000"],
    "discrete_gaussian": ["500"],
    "planner": ["--quick", "--only", "low eps"],
    "speed": ["0.01", "float32", "softmax"],
    "default_fit": ["20000"],
    "files": ["10"],
    "adult": [],
    "survey": ["--quick"],
    "survey_pictures": ["build/pictures", "--quick"],
    "wide_survey": ["4000", "5000", "4"],
    "intervals": ["--quick"],
    "tables": ["--keys", "1", "--rows", "4000"],
    "solvers": ["--keys", "1", "--only", "2"],
    "rates": ["--quick"],
    "federation": ["--only", "simulation", "--devices", "2e4", "--keys", "1"],
    "cluster": ["--parts", "1", "--repeats", "1", "--only", "planned"],
    "ghost_jax": ["mlp", "time", "quick"],
    "speed_peers": ["4096", "16", "sklearn_sgd"],
    "time_to_loss": ["20000", "8", "dpsco", "objective"],
    "ghost_torch": ["mlp", "time", "quick"],
    "network_plans": ["--keys", "1", "--epsilons", "3", "--only", "digits", "--noises", "0.04"],
    "network_trials": ["--only", "raw", "--epsilons", "3"],
    "networks": ["--keys", "1", "--epsilons", "3", "--only", "mlp"],
}
"""Every benchmark, and the options that make it quick."""


def run(name: str, options: list[str]) -> int:
    """Run one benchmark in a process of its own and return its exit code."""
    print(f"\n== {name} {' '.join(options)}".rstrip(), flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], cwd=ROOT, check=False).returncode


def main(arguments: list[str]) -> int:
    quick = arguments[:1] == ["--quick"]
    name, options = ([*arguments[quick:], ""][0], arguments[quick + 1 :])
    if name and name not in QUICK:
        print(f"Unknown benchmark {name!r}. Choose from: {', '.join(QUICK)}.", file=sys.stderr)
        return 2
    failed, began = [], time.perf_counter()
    for each in [name] if name else QUICK:
        if code := run(each, [*(QUICK[each] if quick else []), *options]):
            failed.append(f"{each} (exit code {code})")
    if not name:
        print(f"\n{len(QUICK) - len(failed)} of {len(QUICK)} benchmarks ran in {time.perf_counter() - began:.0f} s")
    if failed:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
