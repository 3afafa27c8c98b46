"""Wall time to a test loss: the one that DP-SGD (Opacus, tuned) has after 20 epochs.

    python -m benchmarks time_to_loss                       n = 1,000,000, p = 64, epsilon = 1, delta = 1e-6
    python -m benchmarks time_to_loss 100000 64             fewer rows
    python -m benchmarks time_to_loss 100000 64 dpsco objective

All libraries fit logistic regression with an intercept to the same simulated float32 rows of norm at most 1, in memory,
with two threads. Compiled code is warm: a first fit is not counted. Opacus runs 20 epochs with each of the settings
below, on all rows. The one with the least test loss counts, and only its own run: choosing costs it neither time nor
budget. jax_privacy runs the same batches, rate and noise. dpsco runs with default arguments. After each epoch the
coefficients are noted, and the clock stands still meanwhile. Each library runs in an environment of its own, which
this command creates under build/peers. One that cannot be installed is skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.simulated import simulated_rows
from benchmarks.speed import machine
from benchmarks.speed_peers import HERE, PEERS, environment

EPOCHS, MARK = 20, 50.0
SETTINGS = [(8192, 1.0), (8192, 4.0), (8192, 16.0), (8192, 64.0)]
"""Batch and learning rate of DP-SGD; its clip is 1."""
OPACUS, OTHERS = "opacus", ("jax_privacy", "diffprivlib", "objective", "dpsco")
ENVIRONMENTS = {"opacus": "opacus_direct", "jax_privacy": "jax_privacy_sgd", "diffprivlib": "diffprivlib_logistic"}
NAMES = {
    "opacus": "Opacus, DP-SGD, 20 epochs",
    "jax_privacy": "jax_privacy, the same DP-SGD",
    "diffprivlib": "diffprivlib LogisticRegression",
    "objective": "dpsco, objective perturbation",
    "dpsco": "dpsco, default arguments",
}


def fit(peer: str, n: int, width: int, **settings: float) -> dict[str, Any] | None:
    """Return what the script of a peer prints: seconds and coefficients after each epoch; None if it cannot run."""
    python = environment(PEERS[ENVIRONMENTS[peer]][1]) if peer in ENVIRONMENTS else Path(sys.executable)
    if python is None:
        return None
    command = [str(python), f"loss_{peer}.py", str(n), str(width), json.dumps({"epochs": EPOCHS, **settings})]
    run = subprocess.run(command, cwd=HERE / "peers", capture_output=True, text=True, check=False, timeout=3600)
    found: dict[str, Any] | None = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None
    return found


def losses(found: dict[str, Any], features: Any, labels: Any) -> list[float]:
    """Return the mean logistic loss on test rows of each of the coefficients; the intercept comes last."""
    scores = [features @ np.asarray(x[:-1], dtype=np.float32) + x[-1] for x in found["coefficients"]]
    return [float(np.mean(np.logaddexp(0.0, np.where(labels == 1, -s, s), dtype=np.float64))) for s in scores]


def tuned(n: int, width: int, test: tuple[Any, Any]) -> tuple[dict[str, Any], list[float]] | None:
    """Return the best run of Opacus and its test losses, and print all."""
    runs = []
    for batch, rate in SETTINGS:
        found = fit(OPACUS, n, width, batch=min(batch, n // 4), rate=rate)
        if found is None:
            return None
        reached = losses(found, *test)
        print(f"  Opacus, batch {batch:,}, rate {rate:g}: test loss {reached[-1]:.5f} in {found['seconds'][-1]:.2f} s")
        runs.append((reached[-1], found, reached))
    _, found, reached = min(runs, key=lambda run: run[0])
    return found, reached


def first(reached: list[float], seconds: list[float], target: float) -> float | None:
    """Return the seconds after which the loss is at most ``target`` for the first time."""
    return next((s for loss, s in zip(reached, seconds, strict=True) if loss <= target), None)


def main(n: int = 1_000_000, width: int = 64, *only: str) -> None:
    print(machine())
    peers = only or (OPACUS, *OTHERS)
    test = simulated_rows(200_000, width, seed=1)
    print(f"\nn = {n:,}, p = {width}, epsilon = 1, delta = 1e-6; {len(test[1]):,} test rows", flush=True)
    results: dict[str, tuple[dict[str, Any], list[float]] | None] = {}
    if OPACUS in peers:
        results[OPACUS] = tuned(n, width, test)
    best = results.get(OPACUS)
    same = {"batch": SETTINGS[0][0], "rate": 4.0, "noise": 1.0} if best is None else best[0]["settings"]
    for peer in OTHERS:
        if peer in peers:
            found = fit(peer, n, width, **same)
            results[peer] = None if found is None else (found, losses(found, *test))
    own = results.get("dpsco")
    target = None if best is None else best[1][-1]
    ours = None if target is None or own is None else first(own[1], own[0]["seconds"], target)
    if target is not None:
        print(f"  target: test loss {target:.5f}, of Opacus after {EPOCHS} epochs")
    print(f"  {'':<34}{'seconds':>9}{'test loss':>11}   seconds to the target, times dpsco")
    for peer, result in results.items():
        if result is None:
            print(f"  {NAMES[peer]:<34} skipped: it cannot be installed, or it stopped with an error")
            continue
        run, reached = result
        when = None if target is None else first(reached, run["seconds"], target)
        to = "not reached" if when is None else f"{when:.3f}" + ("" if ours is None else f"   {when / ours:.1f}x")
        print(f"  {NAMES[peer]:<34}{run['seconds'][-1]:>9.3f}{reached[-1]:>11.5f}   {to}", flush=True)
    if best is not None and ours is not None:
        ratio = best[0]["seconds"][-1] / ours
        said = "met" if ratio >= MARK else "MISSED"
        print(f"  20 epochs of Opacus over dpsco to its loss: {ratio:.0f}   mark {MARK:g}  {said}")


if __name__ == "__main__":
    main(*(int(float(argument)) for argument in sys.argv[1:3]), *sys.argv[3:])
