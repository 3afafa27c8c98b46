"""Whole fits of other libraries on the same rows, each in an environment that this command creates under build/peers.

    python -m benchmarks speed_peers            n = 262,144, p = 256
    python -m benchmarks speed_peers 65536 2048 jax_privacy_sgd opacus_direct

Times are divided by the time of dpsco (one pass, 32 rounds). All libraries read NumPy arrays in memory, with compiled
code warm, and run one epoch, except LogisticRegression of scikit-learn and diffprivlib, which run until they converge.
A library that cannot be installed is skipped.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.speed import machine

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
TORCH = ["torch==2.13.0", "opacus"]
MARKS = {"sklearn_sgd": 1.0, "diffprivlib_logistic": 30.0, "opacus_direct": 8.0, "jax_privacy_sgd": 4.0}
"""How many times as long a peer should take at least."""
PEERS = {
    "sklearn_sgd": ("scikit-learn SGDClassifier (not private)", ["scikit-learn"]),
    "sklearn_logistic": ("scikit-learn LogisticRegression (not private)", ["scikit-learn"]),
    "diffprivlib_logistic": ("diffprivlib LogisticRegression", ["diffprivlib", "scikit-learn==1.5.2"]),
    "opacus_direct": ("Opacus, batches by hand", TORCH),
    "opacus_loader": ("Opacus with its data loader", TORCH),
    "jax_privacy_sgd": ("jax_privacy", ["jax_privacy", "jax", "optax"]),
}


def environment(packages: list[str]) -> Path | None:
    """The Python of an environment with ``packages``, made if it is not there; None if they cannot be installed."""
    folder = ENVIRONMENTS / "-".join(name.split("=")[0] for name in packages)
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy", *packages]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            return None
        done.touch()
    return python


def seconds(python: Path, script: str, n: int, width: int) -> float | None:
    """What the peer's script prints; None if it fails."""
    command = [str(python), f"{script}.py", str(n), str(width)]
    run = subprocess.run(command, cwd=HERE / "peers", capture_output=True, text=True, check=False, timeout=3600)
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def main(n: int = 262_144, width: int = 256, *only: str) -> None:
    print(machine())
    print(f"\nn = {n:,}, p = {width}: seconds of a fit over those of dpsco run just before it")
    for script, (name, packages) in PEERS.items():
        if only and script not in only:
            continue
        python = environment(packages)
        if python is None:
            print(f"  {name:<48} skipped: {', '.join(packages)} cannot be installed here")
            continue
        ours, theirs = seconds(Path(sys.executable), "dpsco_fit", n, width), seconds(python, script, n, width)
        if ours is None or theirs is None:
            print(f"  {name:<48} skipped: it stopped with an error")
            continue
        mark, ratio = MARKS.get(script), theirs / ours
        goal = "" if mark is None else f"mark {mark:g}  {'met' if ratio >= mark else 'MISSED'}"
        print(f"  {name:<48}{ratio:>8.1f}   {goal:<16} ({theirs:.2f} s over {ours:.3f} s)", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]), *sys.argv[3:])
