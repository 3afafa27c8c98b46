"""Networks in one pass over MNIST: ``plan_network`` untuned, beside tuned DP-FTRL and DP-SGD and the marks to reach.

    python -m benchmarks networks mnist.npz                       arrays X_train, y_train, X_test, y_test
    python -m benchmarks networks mnist.npz --keys 1 --only mlp   one noise key; of: mlp cnn jax
    python -m benchmarks networks mnist.npz --rivals              with tuned DP-FTRL and DP-SGD, in one pass and five
    python -m benchmarks networks mnist.npz --rivals Opacus       some: dpsco, jax_privacy or Opacus
    python -m benchmarks networks                                 no file: synthetic pictures, no marks

mlp is 784-64-10 and cnn has two convolutions, both by ``dpsco.torch.fit``; jax is mlp by ``dpsco.jax.fit``. Each begins
with (x - 0.13) / 0.31, public constants. A line shows the mean accuracy over keys and its range, rounds, the median CPU
seconds of a fit and the peak memory above the rows. ``network_rivals`` says what rivals do and how they are tuned.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.network_rivals import PLANNED, RIVALS, RUNS, Outcome, Rows, best_setting, run

MARKS = {("mlp", 1.0): 0.904, ("mlp", 3.0): 0.920, ("cnn", 3.0): 0.925}
NETWORKS = ("mlp", "cnn", "jax")


def pictures(path: str | None) -> tuple[Rows, Rows]:
    """Return the rows to train on and to test on, pixels in [0, 1]: those of a file, or synthetic ones of 8 x 8."""
    if path is None:
        rng = np.random.default_rng(0)
        shapes, labels = rng.normal(size=(10, 1, 8, 8)), rng.integers(0, 10, 5_000)
        X = (shapes[labels] + rng.normal(size=(5_000, 1, 8, 8))).astype(np.float32) / 4
        return (X[:4_000], labels[:4_000]), (X[4_000:], labels[4_000:])
    with np.load(path) as file:
        data = {name.lower(): file[name] for name in file}
    X, Z = (data[name].reshape(-1, 1, 28, 28).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    return (X, data["y_train"].astype(np.int64)), (Z, data["y_test"].astype(np.int64))


def show(what: str, method: str, passes: int, found: list[Outcome] | str, words: str) -> float:
    """Print a line and return the mean accuracy."""
    if isinstance(found, str):
        print(f"{what}  {method:<21} {found}", flush=True)
        return 0.0
    all_of = [each.accuracy for each in found]
    seconds, memory = statistics.median(each.seconds for each in found), max(each.megabytes for each in found)
    print(
        f"{what}  {method:<21} passes {passes}  {np.mean(all_of):.2%} ({min(all_of):.1%} to {max(all_of):.1%})"
        f"  T {found[0].rounds:>3}  {seconds:>4.0f} s {memory:>5.0f} MB  {words}",
        flush=True,
    )
    return float(np.mean(all_of))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks networks")
    parser.add_argument("file", nargs="?", help="mnist.npz")
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--only", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=(1.0, 3.0))
    parser.add_argument("--rivals", nargs="?", const="", help="tune and train DP-FTRL and DP-SGD too: all, or some")
    parser.add_argument("--passes", type=int, nargs="+", default=(1, 5), help="of rivals")
    parser.add_argument("--runs", type=int, default=RUNS, help="most runs of the search for the setting of a rival")
    options = parser.parse_args()
    if options.file is not None and not Path(options.file).is_file():
        parser.exit(0, f"Skipped: there is no file {options.file}.\n")
    train, test = pictures(options.file)
    print(f"{len(train[1]):,} pictures, delta = 1e-5, {options.keys} keys", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            for epsilon in options.epsilons:
                what, facts = f"{name}  epsilon {epsilon:g}", {"network": name, "epsilon": epsilon, "delta": 1e-5}
                planned = run(PLANNED[name == "jax"], train, test, facts, range(options.keys), Path(folder))
                mark = MARKS.get((name, epsilon)) if options.file else None
                ours = show(what, "plan_network, untuned", 1, planned, "" if mark is None else f"mark {mark:.1%}")
                if mark is not None:
                    print(f"    mark {'reached' if ours >= mark else 'missed'}", flush=True)
                for rival in RIVALS if options.rivals is not None and name != "jax" else ():
                    if options.rivals in f"{rival.name}, {rival.script}" and rival.passes in options.passes:
                        best, words = best_setting(rival, train, facts, Path(folder), options.runs)
                        found = words  # why it cannot run
                        if best:
                            found = run(rival, train, test, facts | best, range(options.keys), Path(folder))
                        show(what, rival.name, rival.passes, found, words)


if __name__ == "__main__":
    main()
