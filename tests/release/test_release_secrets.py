"""Release: nothing secret is carried by what is handed out."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tests.method_plans import algorithm_1_plan
from tests.release.small_releaser import BUDGET, channel, query, total

from dpsco import (
    AcceleratedSRGD,
    L2Ball,
    Logistic,
    Plan,
    Problem,
    Result,
    stream,
    train,
)
from dpsco.query import Query, Released
from dpsco.release.ledger import MemoryLedger
from dpsco.run import watching


def test_sensitive_values_do_not_print_copy_or_pickle() -> None:
    for secret in (total(0.123456), MemoryLedger(bytes(range(32))), channel(key=bytes(range(32)))):
        assert "0.123456" not in repr(secret)
        assert bytes(range(32)).hex() not in repr(secret).lower()
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                duplicate(secret)


def test_only_release_makes_a_released_and_nobody_changes_one() -> None:
    with pytest.raises(TypeError):
        Released(0, np.zeros(3), by=object())
    with pytest.raises(TypeError):
        Released(0, np.zeros(3))  # type: ignore[call-arg]
    released = channel().release(query(0), total(0.0))
    with pytest.raises(AttributeError):
        released.value = np.zeros(3)
    with pytest.raises(ValueError, match="read-only"):
        released.value[0] = 0.0


def test_points_of_a_query_cannot_be_written_through() -> None:
    state = np.zeros(3)
    asked = Query(0, (state,), (1.0,), 1.0, 10)
    with pytest.raises(ValueError, match="read-only"):
        asked.points[0][0] = 1.0
    assert not np.any(state)


def _result() -> Result:
    rng = np.random.default_rng(0)
    plan = Plan(
        problem=Problem(Logistic(), L2Ball(1.0), 3),
        n=64,
        budget=BUDGET,
        method=AcceleratedSRGD(rounds=4, beta=0.25, clip=1.0, mechanism="sqrt"),
    )
    return train(plan, stream(rng.normal(size=(64, 3)), rng.integers(0, 2, 64)))


def test_no_key_or_noise_is_reachable_from_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key and every draw are recorded as they are made; none of their bytes is in the pickled result."""
    import dpsco.release.releaser as release

    keys: list[bytes] = []
    draws: list[np.ndarray] = []

    class Recorded(release.Normals):
        def __init__(self, key: bytes) -> None:
            keys.append(key)
            super().__init__(key)

        def rows(self, first: int, count: int, size: int, *, start: int = 0) -> np.ndarray:
            block = super().rows(first, count, size, start=start)
            draws.extend(block)
            return block

    monkeypatch.setattr(release, "Normals", Recorded)
    result = _result()
    assert len(draws) == 4
    assert len(keys) == 1
    held = pickle.dumps(result) + result.report.to_json().encode() + str(result.report).encode()
    sigma = result.plan.schedule.calibration.sigma
    assert keys[0] not in held
    assert keys[0].hex().encode() not in held
    for draw in draws:
        for number in (*draw, *(sigma * draw)):
            assert np.float64(number).tobytes() not in held


def test_a_seeded_run_says_not_private_and_a_fresh_one_never_repeats() -> None:
    plan = Plan(
        problem=Problem(Logistic(), L2Ball(9.0), 3),
        n=64,
        budget=BUDGET,
        method=AcceleratedSRGD(rounds=4, beta=0.25, clip=1.0),
    )
    X, y = np.ones((64, 3)) / 2, np.zeros(64)
    seeded = [train(plan, stream(X, y), key=bytes(32)) for _ in range(2)]
    fresh = [train(plan, stream(X, y)) for _ in range(2)]
    assert np.array_equal(seeded[0].model.coef, seeded[1].model.coef)
    assert not np.array_equal(fresh[0].model.coef, fresh[1].model.coef)
    assert not any(result.report.private for result in seeded)
    assert all("NOT PRIVATE" in str(result.report) for result in seeded)
    assert all(result.report.private for result in fresh)


def test_the_same_key_gives_unrelated_noise_to_another_plan_or_start() -> None:
    """Two plans, two starts under one key: otherwise the difference of two runs would be noise-free."""
    X, y = np.ones((64, 3)) / 2, np.zeros(64)
    problem = Problem(Logistic(), L2Ball(1e6), 3)

    def first_release(start: float = 0.0, **changes: float) -> np.ndarray:
        arguments = {"n": 64, "rounds": 4, "beta": 1.0, "clip": 1.0, **changes}
        plan = algorithm_1_plan(problem=problem, budget=BUDGET, **arguments)  # type: ignore[arg-type]
        values: list[np.ndarray] = []
        with watching(lambda _, clipped, released: values.append(released.value - clipped.total)):
            train(plan, stream(X, y), key=bytes(32), start=np.full(3, start))
        return values[0] / plan.schedule.calibration.sigma

    noises = [first_release(), first_release(start=1e-9), first_release(beta=1.0000001), first_release(n=65)]
    for i in range(4):
        for j in range(i):
            assert np.max(np.abs(noises[i] - noises[j])) > 1e-3
