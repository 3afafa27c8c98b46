"""Mark 8, counted: every mechanism, every round of it, every way to ask again, and every place to stop."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpsco import (
    AcceleratedSRGD,
    Budget,
    CheckpointError,
    HorizonError,
    L2Ball,
    LedgerError,
    Logistic,
    Plan,
    Problem,
    stream,
    train,
)
from dpsco.query import Clipped, Query
from dpsco.release.ledger import MemoryLedger, open_folder
from dpsco.release.mechanisms import MECHANISMS
from dpsco.release.noise import new_key
from dpsco.release.releaser import Releaser
from dpsco.run import Round

pytestmark = pytest.mark.slow

P, T, N = 3, 8, 64
KEY = bytes(range(32))
Note = Callable[[int, str], None]


def a_plan(name: str, beta: float = 0.25) -> Plan:
    return Plan(
        Problem(Logistic(), L2Ball(2.0), P),
        N,
        Budget(1.0, 1e-6),
        AcceleratedSRGD(rounds=T, beta=beta, clip=1.0, mechanism=name),
    )


def refused(source: Releaser, query: Query, value: np.ndarray, error: type[Exception] = LedgerError) -> int:
    with pytest.raises(error):
        source.release(query, Clipped(value, 1))
    return 1


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "folder"])
def test_a_round_is_released_once(on_disk: bool, tmp_path: Path, mark_figure: Note) -> None:
    """Of each round again: another sum, another point, weight or size, in the last bit; then rounds past the end."""
    no, stored = 0, 0
    for name in MECHANISMS:
        plan = a_plan(name)
        noise, folder = plan.schedule.calibration, tmp_path / name
        with contextlib.ExitStack() as stack:
            if on_disk:
                ledger = stack.enter_context(open_folder(folder, {}, plan.digest(), P, T, KEY, resume=False))
            else:
                ledger = MemoryLedger(new_key())
            source = Releaser(noise, plan.schedule.mechanism, P, ledger)
            queries, released = [], []
            for step in range(T):
                sums = np.full(P, step * noise.grid)
                points, weights = (np.zeros(P), np.ones(P)), (step + 1.0, -float(step))
                queries.append((Query(step, points, weights, noise.clip, 8, noise.grid, noise.rowwise), sums))
                released.append(source.release(queries[-1][0], Clipped(sums, 1)).value)
                for (query, value), before in zip(queries, released, strict=True):
                    assert np.array_equal(source.release(query, Clipped(value, 1)).value, before)
                    stored += 1
                    no += refused(source, query, value + noise.grid)
                    for change in (
                        {"points": (np.nextafter(points[0], 1.0), points[1])},
                        {"weights": (float(np.nextafter(query.weights[0], 99)), query.weights[1])},
                        {"size": 9},
                    ):
                        no += refused(source, dataclasses.replace(query, **change), value)
            for past in (-1, T, T + 1):
                no += refused(source, dataclasses.replace(queries[0][0], step=past), np.zeros(P), HorizonError)
    where = "on disk" if on_disk else "in memory"
    mark_figure(8, f"{where}: {no} of {no} other attempts refused, {stored} repeated rounds returned as stored")


class Stop(Exception):
    pass


def test_a_run_goes_on_from_every_round_bit_for_bit(tmp_path: Path, mark_figure: Note) -> None:
    rng = np.random.default_rng(8)
    rows, labels = rng.normal(size=(N, P)), rng.integers(0, 2, N)
    points = 0
    for name in MECHANISMS:
        plan = a_plan(name)
        expected = train(plan, stream(rows, labels), key=KEY).model.coef.tobytes()
        for last in range(T):

            def strike(at: Round, last: int = last) -> None:
                if at.step == last:
                    raise Stop

            folder = tmp_path / f"{name} {last}"
            with pytest.raises(Stop):
                train(plan, stream(rows, labels), key=KEY, checkpoint=folder, on_round=strike)
            before = (folder / "released.bin").read_bytes()
            with pytest.raises(CheckpointError):
                train(a_plan(name, 0.26), stream(rows, labels), key=KEY, checkpoint=folder, resume=True)
            with pytest.raises(LedgerError):
                train(plan, stream(-rows, labels), key=KEY, checkpoint=folder, resume=True)
            assert (folder / "released.bin").read_bytes() == before
            resumed = train(plan, stream(rows, labels), key=KEY, checkpoint=folder, resume=True)
            assert resumed.model.coef.tobytes() == expected
            assert (folder / "released.bin").read_bytes().startswith(before)
            points += 1
    mark_figure(8, f"{points} of {points} stop points resumed bit for bit, another plan or other rows refused at each")
