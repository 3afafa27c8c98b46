"""Clipping the differences of a network in PyTorch: time and peak memory over two ordinary passes of the same batch.

    python -m benchmarks ghost_torch
    python -m benchmarks ghost_torch mlp time       some of: mlp cnn, and of: time formed opacus memory
    python -m benchmarks ghost_torch layers         every layer with a rule: CPU time of one thread, batch 2048

Float32, batch 4096, two threads; an ordinary pass is forward and backward with parameter gradients, at each of the two
points. "tight" has a clip that scales every row, "loose" one that scales few. vmap and Opacus form the gradient of
every row: they run on a sixteenth of the batch, in parts that fit, and their time is multiplied. Memory is measured in
a separate process, above the model and the rows; the batch is read as in ``train``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import dpsco.torch
from benchmarks.ghost_layers import LAYERS
from benchmarks.speed import REPEATS, interleaved, machine
from benchmarks.speed_peers import HERE, TORCH, environment
from dpsco.query import Batch, Query

ROWS, PART = 4096, 16
NETWORKS, PARTS, BASE = ("mlp", "cnn"), ("time", "formed", "opacus", "memory"), "two ordinary passes"


def network(name: str) -> nn.Module:
    """784-1024-1024-10, or two convolutions and two linear layers."""
    torch.manual_seed(0)
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((ROWS, 784), dtype=np.float32), rng.integers(0, 10, ROWS)


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def ways(model: nn.Module, features: Any, labels: Any) -> dict[str, Callable[[], Any]]:
    """The same batch, done in each way."""
    shape = features.shape[1:]
    ghost = dpsco.torch.oracle(model, cross_entropy, input_shape=shape)
    formed = dpsco.torch.oracle(model, cross_entropy, input_shape=shape, ghost=False, memory=1 << 30)
    before = ghost.start
    after = before + np.random.default_rng(1).normal(size=before.size) * 1e-3
    other = ghost.load(after)
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    flat = features.reshape(len(features), -1)

    def ordinary() -> None:
        for each in (model, other):
            each.zero_grad(set_to_none=True)
            cross_entropy(each(x), y).sum().backward()

    def answer(oracle: Any, clip: float, part: int = 1) -> Callable[[], Any]:
        query = Query(8, (after, before), (9.0, -8.0), clip, len(labels), grid=2.0**-30)
        many = len(labels) // part
        return lambda: oracle.answer(query, Batch(8, [(flat[:many], labels[:many])]))

    return {
        BASE: ordinary,
        "ghost, loose clip": answer(ghost, 100.0),
        "ghost, tight clip": answer(ghost, 0.1),
        "vmap": answer(formed, 100.0, PART),
    }


def peak_megabytes(name: str, way: str) -> float:
    """Peak memory above what is there before, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.ghost_torch", "--peak", name, way]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE.parent).stdout)


def _peak(name: str, way: str) -> None:
    features, labels = rows()
    work = ways(network(name), features, labels)[way]
    tiny = dpsco.torch.oracle(nn.Linear(4, 2), cross_entropy)  # what loads on first use is not the batch's
    tiny.answer(Query(0, (tiny.start,), (1.0,), 1.0, 8), Batch(0, [(features[:8, :4], labels[:8] % 2)]))
    Path("/proc/self/clear_refs").write_text("5")
    base = _status("VmHWM")
    work()
    print(_status("VmHWM") - base)


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def opacus(name: str) -> float | None:
    """Seconds of Opacus on a sixteenth of the batch; None if it cannot be installed or fails."""
    python = environment(TORCH)
    if python is None:
        return None
    command = [str(python), "opacus_difference.py", name, str(ROWS // PART)]
    run = subprocess.run(command, cwd=HERE / "peers", capture_output=True, text=True, check=False, timeout=3600)
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def layers(chosen: Sequence[str]) -> None:
    """Print the CPU time of one network per layer, on one thread, over two ordinary passes."""
    torch.set_num_threads(1)
    for name, layer in LAYERS.items():
        if not set(chosen) & set(LAYERS) or name in chosen:
            torch.manual_seed(0)
            tasks = ways(layer.make(), *layer.rows())
            del tasks["vmap"]
            seconds = interleaved(tasks, 1 if "quick" in chosen else REPEATS, clock=time.process_time)
            base = seconds.pop(BASE)
            print(
                f"  {name:<24}" + "".join(f"{way} {took / base:.2f}x   " for way, took in seconds.items()), flush=True
            )


def main(*chosen: str) -> None:
    parts = [part for part in PARTS if part in chosen] or list(PARTS)
    torch.set_num_threads(2)
    print(f"{machine()}, torch {torch.__version__}")
    if "layers" in chosen:
        layers(chosen)
        return
    for name in [name for name in NETWORKS if name in chosen] or NETWORKS:
        tasks = ways(network(name), *rows())
        slow = tasks.pop("vmap")
        print(f"\n{name}: {sum(p.numel() for p in network(name).parameters()):,} parameters, batch {ROWS}")
        if "time" in parts:
            seconds = interleaved(tasks, 1 if "quick" in chosen else REPEATS)
            for way, took in seconds.items():
                print(f"  {way:<22}{took / seconds[BASE]:>8.2f}x time ({took:.3f} s)", flush=True)
        if "formed" in parts or "opacus" in parts:
            base = interleaved({BASE: tasks[BASE]}, repeats=3)[BASE]
        if "formed" in parts:
            start = time.perf_counter()
            slow()
            print(f"  {'vmap':<22}{PART * (time.perf_counter() - start) / base:>8.2f}x time", flush=True)
        if "opacus" in parts:
            took = opacus(name)
            words = (
                "skipped: it cannot be installed here, or failed"
                if took is None
                else f"{PART * took / base:>8.2f}x time"
            )
            print(f"  {'Opacus':<22}{words}", flush=True)
        if "memory" in parts:
            memory = {way: statistics.median(peak_megabytes(name, way) for _ in range(3)) for way in (*tasks, "vmap")}
            for way, most in memory.items():
                print(f"  {way:<22}{most / memory[BASE]:>8.2f}x memory ({most:.0f} MB)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        _peak(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
