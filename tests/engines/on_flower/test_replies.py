"""Replies of nodes: each field is checked before it is used. Flower's own part is a stand-in."""

from __future__ import annotations

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
    for node in range(12)
}
LIAR = 7


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

    def has_content(self) -> bool:
        return True


FLOWER = SimpleNamespace(ConfigRecord=dict, RecordDict=Records, Message=Message)


@dataclass
class Grid:
    """Honest nodes, and one that says what it likes about its places."""

    lie: Any = None
    strangers: bool = False
    unreadable: bool = False
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


def model(monkeypatch: pytest.MonkeyPatch, grid: Grid) -> np.ndarray:
    monkeypatch.setattr(transport, "flwr", lambda part: FLOWER)
    plan = dpsco.plan(PROBLEM, n=12, budget=dpsco.Budget(4.0, 1e-5, "add-remove"), survey="none", rounds=2)
    return serve(plan, transport.FlowerNodes(grid, timeout=1.0), key=KEY).model.coef  # type: ignore[arg-type]


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
    assert grid.asked == [node for node in honest.asked if node != LIAR]


def test_a_reply_that_cannot_be_read_is_that_of_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is asked in every round, as one that does not say where its clients are; it counts as 0."""
    grid, silent = Grid(unreadable=True), Grid([])
    assert np.array_equal(model(monkeypatch, grid), model(monkeypatch, silent))
    assert sorted(set(grid.asked)) == [node for node in HOSTS if node != LIAR]
