"""Attempts to make one client worth more than one clip, or to let one client decide about another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpsco.engines.flower import Attendance, Hashed, LocalNodes, app, linear_gradients, respond, wire
from dpsco.engines.flower.client import contribution
from dpsco.engines.flower.server import FederatedOracle
from dpsco.query import Query

from .worlds import PROBLEM, P, T, a_plan

PLAN = a_plan()
RUN = bytes.fromhex(PLAN.digest())
GRID = PLAN.schedule.calibration.grid
ROUND = 3
NAMES = [name for name in (f"device-{i}" for i in range(200)) if Hashed().place_of(name, RUN, T) == ROUND]
VICTIM, *OTHERS = NAMES
CLIENTS = {
    name: linear_gradients(PROBLEM, np.eye(P)[i % P], [i % 2]) for i, name in enumerate(NAMES)
}  # a row each, of norm 1
QUERY = Query(ROUND, (np.full(P, 0.3), np.full(P, -0.3)), (4.0, -3.0), PLAN.clip, PLAN.batch_size, GRID, True)


class Fixed:
    """A transport that carries what it was given."""

    def __init__(self, *nodes: dict, impostor: np.ndarray | None = None) -> None:
        self._nodes, self._impostor = LocalNodes(nodes), impostor

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
        yield from self._nodes.ask(query, step)
        if self._impostor is not None:
            yield -1, wire.encode_answer(wire.decode_query(query), [(VICTIM, self._impostor)])


def total(transport: Fixed, attendance: Attendance | None = None) -> np.ndarray:
    oracle = FederatedOracle(PLAN, transport, "client", Hashed(), attendance=attendance)
    return oracle.answer(QUERY).total


def bound() -> float:
    return PLAN.schedule.calibration.difference


def test_an_impostor_cannot_make_a_clients_absence_worth_two_clips() -> None:
    """With the first answer counted, a forged -v in the client's place moved the sum by 2 C when the client left."""
    query = wire.encode_query(
        run=RUN,
        first=ROUND,
        last=ROUND + 1,
        places=T,
        unit=1,
        clip=QUERY.clip,
        grid=GRID,
        weights=QUERY.weights,
        points=QUERY.points,
    )
    own = contribution(wire.decode_query(query), CLIENTS[VICTIM])
    assert GRID * np.linalg.norm(own) > 0.9 * PLAN.clip
    others = {name: CLIENTS[name] for name in OTHERS}
    for forged in (-own, own, np.zeros_like(own), 1000 * own):
        there = total(Fixed({**others, VICTIM: CLIENTS[VICTIM]}, impostor=forged))
        gone = total(Fixed(others, impostor=forged))
        assert np.linalg.norm(there - gone) <= bound()


def test_two_different_answers_under_one_id_count_as_zero() -> None:
    seen = Attendance()
    there = total(Fixed(CLIENTS, impostor=np.ones(P, dtype=np.int64)), seen)
    np.testing.assert_array_equal(there, total(Fixed({name: CLIENTS[name] for name in OTHERS})))
    assert seen.rounds[0]["contradicts another answer"] == 1


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, KeyError, MemoryError])
def test_a_client_whose_gradients_raise_leaves_the_others_of_its_node_alone(error: type[Exception]) -> None:
    def raises(x: np.ndarray) -> np.ndarray:
        raise error("a row")

    others = {name: CLIENTS[name] for name in OTHERS}
    there = total(Fixed({**others, VICTIM: raises}))
    np.testing.assert_array_equal(there, total(Fixed(others)))


@pytest.mark.parametrize("shape", [(2, P + 1), (1,), (0, P), (3, 2 * P)])
def test_gradients_of_another_shape_leave_the_others_alone(shape: tuple[int, ...]) -> None:
    others = {name: CLIENTS[name] for name in OTHERS}
    there = total(Fixed({**others, VICTIM: lambda x: np.full(shape, 5.0)}))
    assert np.linalg.norm(there - total(Fixed(others))) <= bound()


def test_hostile_bytes_are_malformed_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    query = wire.encode_query(
        run=RUN,
        first=ROUND,
        last=ROUND + 1,
        places=T,
        unit=1,
        clip=QUERY.clip,
        grid=GRID,
        weights=QUERY.weights,
        points=QUERY.points,
    )
    asked = wire.decode_query(query)
    good = respond(query, CLIENTS)
    for _ in range(2_000):
        hurt = bytearray(good)
        for place in rng.integers(0, len(hurt), rng.integers(1, 4)):
            hurt[place] = rng.integers(256)
        cut = bytes(hurt[: rng.integers(len(hurt) + 1)])
        for message in (bytes(hurt), cut):
            try:
                found = wire.decode_answer(asked, message)
            except wire.Malformed:
                continue
            assert all(numbers.shape == (P,) and numbers.dtype == np.int32 for _, numbers in found)
        hurt = bytearray(query)
        hurt[rng.integers(len(hurt))] = rng.integers(256)
        for message in (bytes(hurt), bytes(hurt[: rng.integers(len(hurt))])):
            try:
                wire.decode_query(message)
            except wire.Malformed:
                continue


def test_an_odd_id_in_the_rows_of_a_node_leaves_the_other_clients_their_ids(tmp_path: Path) -> None:
    """A missing id makes NumPy's whole numbers floats: "7" would become "7.0", another client in another round."""
    (tmp_path / "plan.json").write_text(PLAN.to_json())

    def names(ids: np.ndarray) -> list[str]:
        np.savez(tmp_path / "rows.npz", features=np.eye(P)[[0] * len(ids)], labels=np.zeros(len(ids)), ids=ids)
        config = {"plan": str(tmp_path / "plan.json"), "rows": str(tmp_path / "rows.npz")}
        return sorted(app.clients(SimpleNamespace(run_config=config, node_config={})))  # type: ignore[arg-type]

    assert names(np.array([7, 8, 8, 2**60 + 1])) == ["7", "8"]
    assert names(np.array([7, 8, np.nan, 2**60 + 1])) == ["7", "8"]
    assert names(np.array(["7", "8", "", "nan", str(2**60 + 1)])) == [str(2**60 + 1), "7", "8"]


def test_a_node_without_rows_has_its_client(tmp_path: Path) -> None:
    """With unit example a row is protected, and nodes without a client are not asked: no row decides who is one."""
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    config = {"plan": str(tmp_path / "plan.json"), "rows": str(tmp_path / "rows.npz"), "client": "clinic-7"}
    for n in (0, 1, 3):
        np.savez(tmp_path / "rows.npz", features=np.zeros((n, P)), labels=np.zeros(n))
        found = app.clients(SimpleNamespace(run_config={}, node_config=config))  # type: ignore[arg-type]
        assert list(found) == ["clinic-7"]
        assert found["clinic-7"](np.zeros(P)).shape == (n, P)
