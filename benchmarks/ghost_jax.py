"""Clipping the differences of a network in JAX: time and peak memory over two ordinary passes of the same batch.

    python -m benchmarks ghost_jax
    python -m benchmarks ghost_jax mlp time         some of: mlp cnn, and of: time formed memory
    python -m benchmarks ghost_jax cpu              CPU seconds of all threads, for a machine with other work on it

Float32, batch 4096; an ordinary pass is forward and backward with parameter gradients, compiled, at each of the two
points. "tight" has a clip that scales every row, "loose" one that scales few. vmap forms the gradient of every row: it
runs on a sixteenth of the batch, in blocks that fit, and its time is multiplied. Memory is measured in a separate
process, above the model, the rows and the compiled code.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpsco
from benchmarks.speed import REPEATS, interleaved, machine
from dpsco.query import Batch, Query

ROWS, PART = 4096, 16
PARTS, BASE = ("time", "formed", "memory"), "two ordinary passes"
_LAYOUT = ("NHWC", "HWIO", "NHWC")
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp": {"w1": (784, 1024), "b1": (1024,), "w2": (1024, 1024), "b2": (1024,), "w3": (1024, 10), "b3": (10,)},
    "cnn": {
        "k1": (5, 5, 1, 16),
        "c1": (16,),
        "k2": (5, 5, 16, 32),
        "c2": (32,),
        "w1": (1568, 64),
        "b1": (64,),
        "w2": (64, 10),
        "b2": (10,),
    },
}


def cross_entropy(outputs: Any, label: Any) -> Any:
    return jax.nn.logsumexp(outputs) - outputs[label]


def mlp(p: Any, row: Any) -> Any:
    """784-1024-1024-10."""
    hidden = jax.nn.relu(row[0] @ p["w1"] + p["b1"])
    hidden = jax.nn.relu(hidden @ p["w2"] + p["b2"])
    return cross_entropy(hidden @ p["w3"] + p["b3"], row[1])


def cnn(p: Any, row: Any) -> Any:
    """Two convolutions of stride 2 and two dense layers."""
    hidden = row[0].reshape(1, 28, 28, 1)
    for kernel, bias in (("k1", "c1"), ("k2", "c2")):
        hidden = jax.lax.conv_general_dilated(hidden, p[kernel], (2, 2), "SAME", dimension_numbers=_LAYOUT)
        hidden = jax.nn.relu(hidden + p[bias])
    hidden = jax.nn.relu(hidden.reshape(-1) @ p["w1"] + p["b1"])
    return cross_entropy(hidden @ p["w2"] + p["b2"], row[1])


def ways(name: str) -> dict[str, Callable[[], Any]]:
    """The same batch, done in each way."""
    rng = np.random.default_rng(0)
    loss = {"mlp": mlp, "cnn": cnn}[name]
    params = {
        leaf: jnp.asarray(rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[:-1]))), jnp.float32)
        for leaf, shape in SHAPES[name].items()
    }
    features, labels = rng.random((ROWS, 784), dtype=np.float32), rng.integers(0, 10, ROWS).astype(np.int32)
    ghost, formed = dpsco.jax.oracle(loss, params), dpsco.jax.oracle(loss, params, ghost=False, memory=1 << 30)
    before = ghost.start
    after = before + 1e-3 * rng.normal(size=before.size)
    points = params, ghost.weights(after)
    summed = jax.jit(jax.grad(lambda p, a, y: jax.vmap(lambda *row: loss(p, row))(a, y).sum()))

    def ordinary() -> None:
        for point in points:
            jax.block_until_ready(summed(point, features, labels))

    def answer(oracle: Any, clip: float, part: int = 1) -> Callable[[], Any]:
        many = ROWS // part
        query = Query(8, (after, before), (9.0, -8.0), clip, many, grid=2.0**-30)
        return lambda: oracle.answer(query, Batch(8, [(features[:many], labels[:many])]))

    return {
        BASE: ordinary,
        "ghost, loose clip": answer(ghost, 100.0),
        "ghost, tight clip": answer(ghost, 0.1),
        "vmap": answer(formed, 100.0, PART),
    }


def peak_megabytes(name: str, way: str) -> float:
    """Peak memory above what is there before, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.ghost_jax", "--peak", name, way]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return float(run.stdout)


def _peak(name: str, way: str) -> None:
    """The first call compiles; the compiler's memory must not hide the batch's, so most of it is given back first."""
    import ctypes
    import gc

    work = ways(name)[way]
    work()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    base = _status("VmHWM")
    work()
    print(_status("VmHWM") - base)


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def main(*chosen: str) -> None:
    parts = [part for part in PARTS if part in chosen] or list(PARTS)
    clock = time.process_time if "cpu" in chosen else time.perf_counter
    print(f"{machine()}, jax {jax.__version__}")
    for name in [name for name in SHAPES if name in chosen] or SHAPES:
        tasks = ways(name)
        slow = tasks.pop("vmap")
        print(f"\n{name}: {sum(int(np.prod(s)) for s in SHAPES[name].values()):,} parameters, batch {ROWS}")
        if "time" in parts:
            seconds = interleaved(tasks, 1 if "quick" in chosen else REPEATS, clock=clock)
            for way, took in seconds.items():
                print(f"  {way:<22}{took / seconds[BASE]:>8.2f}x time ({took:.3f} s)", flush=True)
        if "formed" in parts:
            seconds = interleaved({BASE: tasks[BASE], "vmap": slow}, repeats=1, clock=clock)
            print(f"  {'vmap':<22}{PART * seconds['vmap'] / seconds[BASE]:>8.2f}x time", flush=True)
        if "memory" in parts:
            memory = {way: peak_megabytes(name, way) for way in (*tasks, "vmap")}
            for way, most in memory.items():
                print(f"  {way:<22}{most / memory[BASE]:>8.2f}x memory ({most:.0f} MB)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        _peak(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
