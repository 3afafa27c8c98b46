"""Replies of nodes: each field is checked before it is used. Flower's own part is a stand-in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import Hashed, linear_gradients, serve, transport
from dpsco.engines.flower.client import places_of, respond

from .worlds import KEY

PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), dimension=3)
HOSTS = {
    node: {f"c{node}": linear_gradients(PROBLEM, np.random.default_rng(node).normal(size=(2, 3)), [0, 1])}
    for node in range(24)
}
LIAR, LATE = 7, frozenset(range(8, 24))  # half of the late ones, or about, are in the liar's round: a hash places them


class Records(dict[str, Any]):
    """The content of a message."""

    @property
    def config_records(self) -> Records:
        return self


@dataclass
class Message:
    """What the transport uses of Flower's message."""

    content: Records
    dst_node_id: int = -1
    message_type: str = ""
    ttl: float = 0.0
    metadata: Any = None
    sent: float = field(default_factory=time.monotonic)

    def has_content(self) -> bool:
        return True


FLOWER = SimpleNamespace(ConfigRecord=dict, RecordDict=Records, Message=Message)


@dataclass
class Grid:
    """Honest nodes, and one that says what it likes about its places."""

    lie: Any = None
    strangers: bool = False
    unreadable: bool = False
    slow: bool = False
    late: float = 0.0
    asked: list[int] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return list(HOSTS)

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.sent += messages
        return [str(len(self.sent) - 1)]

    def pull_messages(self, message_ids: list[str]) -> list[Message]:
        if self.unreadable and any(self.sent[int(sent)].dst_node_id == LIAR for sent in message_ids):
            raise ValueError("Flower cannot read the reply.")
        return [reply for sent in message_ids for reply in self._replies(self.sent[int(sent)])]

    def _replies(self, message: Message) -> Iterator[Message]:
        node, record = message.dst_node_id, message.content["dpsco"]
        if message.message_type == transport.QUERY:
            if self.slow and node == LIAR:  # it announced a reply, and sends its parts one by one
                time.sleep(1.0)
            if node in LATE and time.monotonic() < message.sent + self.late:
                return
        if message.message_type == transport.CALL:
            said: Any = places_of(HOSTS[node], record["run"], record["places"], Hashed())
            values = {"places": self.lie if self.lie is not None and node == LIAR else said}
            if self.strangers and node == LIAR:
                values, node = {"places": []}, 0
        else:
            self.asked.append(node)
            values = {"answer": respond(record["query"], HOSTS[node], Hashed())}
        yield _reply(node, values)


def _reply(node: int, values: dict[str, Any]) -> Message:
    return Message(Records(dpsco=values), metadata=SimpleNamespace(src_node_id=node))


def model(monkeypatch: pytest.MonkeyPatch, grid: Grid, timeout: float = 1.0) -> np.ndarray:
    monkeypatch.setattr(transport, "flwr", lambda part: FLOWER)
    plan = dpsco.plan(PROBLEM, n=len(HOSTS), budget=dpsco.Budget(4.0, 1e-5, "add-remove"), survey="none", rounds=2)
    return serve(plan, transport.FlowerNodes(grid, timeout), key=KEY).model.coef  # type: ignore[arg-type]


@pytest.mark.parametrize("lie", [["x"], [b"x"], [1.5], [float("nan")], [None], [[0]], [True], "01", 3, b"0"])
def test_a_node_that_names_no_places_is_asked_in_every_round(lie: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, other = Grid(), Grid(lie)
    assert np.array_equal(model(monkeypatch, other), model(monkeypatch, honest))
    assert (honest.asked.count(LIAR), other.asked.count(LIAR)) == (1, 2)


def test_places_that_no_round_has_call_for_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid([-5, 10**30])
    model(monkeypatch, grid)
    assert LIAR not in grid.asked


def test_a_reply_in_the_name_of_another_node_says_nothing_about_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 7 says, as node 0, that it hosts nobody: node 0 is asked as before, and 7 is not."""
    grid, honest = Grid(strangers=True), Grid()
    model(monkeypatch, grid)
    model(monkeypatch, honest)
    assert sorted(grid.asked) == sorted(node for node in honest.asked if node != LIAR)


def test_a_reply_that_cannot_be_read_is_that_of_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is asked in every round, as one that does not say where its clients are; it counts as 0."""
    grid, silent = Grid(unreadable=True), Grid([])
    assert np.array_equal(model(monkeypatch, grid), model(monkeypatch, silent))
    assert sorted(set(grid.asked)) == [node for node in HOSTS if node != LIAR]


@pytest.mark.parametrize("late", [0.5, 60.0])
def test_a_reply_that_takes_long_to_read_lets_no_late_one_count(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 7 is read from 0 s to 1 s and the round ends at 0.25 s: nodes 8 to 23, there at 0.5 s, are late anyway."""
    nobody = Grid(late=60.0)
    assert np.array_equal(model(monkeypatch, Grid(slow=True, late=late), 0.25), model(monkeypatch, nobody, 0.25))
    assert not LATE & set(nobody.asked)


def test_a_reply_that_takes_long_to_read_makes_no_other_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes 8 to 23 answer before the timeout, while node 7 is read; and node 7 itself was there in time."""
    assert np.array_equal(model(monkeypatch, Grid(slow=True, late=0.2), 0.5), model(monkeypatch, Grid()))


def test_a_reply_without_an_end_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node counts as 0 once the time for reading is over, and the others are counted."""
    monkeypatch.setattr(transport, "_READ", 0.25)
    silent = Grid([])
    assert np.array_equal(model(monkeypatch, Grid(slow=True), 0.25), model(monkeypatch, silent))


def test_nodes_that_serve_a_second_run_are_asked_for_their_places_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places belong to a run: with those of the first, most clients of the second would never be called."""
    monkeypatch.setattr(transport, "flwr", lambda part: FLOWER)
    grid = Grid()
    nodes = transport.FlowerNodes(grid, 1.0)  # type: ignore[arg-type]
    for epsilon in (4.0, 3.0, 2.0):
        plan = dpsco.plan(
            PROBLEM, n=len(HOSTS), budget=dpsco.Budget(epsilon, 1e-5, "add-remove"), survey="none", rounds=2
        )
        grid.asked.clear()
        found = serve(plan, nodes, key=KEY).model.coef
        assert sorted(grid.asked) == sorted(HOSTS)
        fresh = transport.FlowerNodes(Grid(), 1.0)  # type: ignore[arg-type]
        assert np.array_equal(found, serve(plan, fresh, key=KEY).model.coef)
