"""A releaser of a few coordinates and rounds, and what it is given."""

from __future__ import annotations

import numpy as np

from dpsco import (
    Budget,
    Mechanism,
    mechanism,
)
from dpsco.query import Clipped, Query
from dpsco.release.calibration import Calibration, calibrate
from dpsco.release.ledger import MemoryLedger
from dpsco.release.noise import new_key
from dpsco.release.releaser import Releaser

BUDGET = Budget(1.0, 1e-6)


def calibrated(name: str, horizon: int, dimension: int) -> tuple[Mechanism, Calibration]:
    strategy = mechanism(name, horizon=horizon)
    return strategy, calibrate(BUDGET, strategy, clip=1.0, dimension=dimension, rows=1000)


def channel(name: str = "sqrt", horizon: int = 4, dimension: int = 3, key: bytes | None = None) -> Releaser:
    strategy, noise = calibrated(name, horizon, dimension)
    return Releaser(noise, strategy, dimension, MemoryLedger(new_key() if key is None else key))


def query(step: int, noise: Calibration | None = None, *, dimension: int = 3, point: float = 0.0) -> Query:
    noise = calibrated("sqrt", 4, dimension)[1] if noise is None else noise
    return Query(step, (np.full(dimension, point),), (1.0,), noise.clip, 10, noise.grid, noise.rowwise)


def total(value: float, dimension: int = 3) -> Clipped:
    return Clipped(np.full(dimension, value), 1)
