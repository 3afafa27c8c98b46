"""A small run with a checkpoint, stopped after any of its rounds and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.method_plans import algorithm_1_plan

from dpsco import (
    Budget,
    L2Ball,
    Logistic,
    Plan,
    Problem,
    Result,
    Round,
    stream,
    train,
)

KEY = bytes(range(32))
ROUNDS, DIMENSION = 5, 3
_rng = np.random.default_rng(8)
X, Y = _rng.normal(size=(40, DIMENSION)), _rng.integers(0, 2, 40)


def plan(**changes: object) -> Plan:
    arguments: dict[str, object] = {
        "problem": Problem(Logistic(), L2Ball(2.0), DIMENSION),
        "n": 40,
        "budget": Budget(1.0, 1e-6),
        "rounds": ROUNDS,
        "beta": 0.25,
        "clip": 1.0,
        "mechanism": "sqrt",
    }
    return algorithm_1_plan(**{**arguments, **changes})  # type: ignore[arg-type]


PLAN = plan()


class Stopped(BaseException):
    pass


def stop_after(step: int) -> object:
    def on_round(done: Round) -> None:
        if done.step == step:
            raise Stopped

    return on_round


def stopped_run(folder: Path, step: int = 2, key: bytes | None = KEY) -> Path:
    """A checkpoint whose process ended right after round ``step``."""
    with pytest.raises(Stopped):
        train(PLAN, stream(X, Y), key=key, checkpoint=folder, on_round=stop_after(step))  # type: ignore[arg-type]
    return folder


def resume(folder: Path, **changes: object) -> Result:
    arguments: dict[str, object] = {"plan": PLAN, "stream": stream(X, Y), "key": KEY, "resume": True, **changes}
    return train(checkpoint=folder, **arguments)  # type: ignore[arg-type]


def released_values(folder: Path, dimension: int = DIMENSION) -> bytes:
    """The whole records of released.bin without their checksums, which name the run."""
    raw, size = (folder / "released.bin").read_bytes() if (folder / "released.bin").exists() else b"", 8 * dimension
    starts = range(0, len(raw) - size - 31, size + 32)
    return b"".join(raw[start : start + size] for start in starts)
