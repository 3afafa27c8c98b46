"""Flower's messages carry the protocol: real apps and messages, a grid in memory (test_engine.py starts the engine)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
pytest.importorskip("flwr.serverapp", reason="needs dpsco[federated]")
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import dpsco
from dpsco.engines.flower import Attendance, serve
from dpsco.engines.flower.transport import FlowerNodes, client_app
from dpsco.errors import ClusterError

from .worlds import KEY, T, a_plan, devices, rows, spread

PLAN = a_plan()
FEATURES, LABELS, IDS = rows()
NODES = spread(devices(FEATURES, LABELS, IDS), 4)


@pytest.fixture(autouse=True)
def identity() -> None:
    """What the engine tells a process about itself before an app runs in it."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class MemoryGrid(Grid):
    """Four nodes with a ClientApp and a context each; what they were sent is noted."""

    def __init__(self, faults: dict[int, Any] | None = None) -> None:
        self.sent: list[tuple[str, int]] = []
        self._apps = [client_app(lambda context, node=node: NODES[node]) for node in range(4)]
        self._contexts = [Context(1, node, {}, RecordDict(), {}) for node in range(4)]
        self._faults = faults or {}
        self._unread: dict[str, Message] = {}

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return range(4)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        taken = []
        for message in messages:
            self.sent.append((message.metadata.message_type, message.metadata.dst_node_id))
            message.metadata._message_id = f"{len(self.sent)}"  # as the engine would
            self._unread[message.metadata.message_id] = message
            taken.append(message.metadata.message_id)
        return taken

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to some messages; as in the engine, one that cannot be read is an error for all."""
        replies = []
        for sent in message_ids:
            message = self._unread[sent]
            node = message.metadata.dst_node_id
            fault = self._faults.get(node)
            reply = self._apps[node](message, self._contexts[node]) if fault is None else fault(message)
            replies += [] if reply is None else [reply]
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


def in_process(there: list[int]) -> np.ndarray:
    return dpsco.train(
        PLAN, dpsco.stream(FEATURES[there], LABELS[there], ids=[IDS[i] for i in there]), key=KEY
    ).model.coef


def test_the_model_has_the_bits_of_a_run_in_process() -> None:
    result = serve(PLAN, FlowerNodes(MemoryGrid(), timeout=5.0), key=KEY)
    np.testing.assert_array_equal(result.model.coef, in_process(list(range(400))))


def test_a_node_is_asked_only_in_rounds_of_its_clients() -> None:
    few = {"device-1": NODES[1]["device-1"]}
    grid = MemoryGrid()
    grid._apps[1] = client_app(lambda context: few)
    serve(PLAN, FlowerNodes(grid, timeout=5.0))
    assert grid.sent.count(("query.dpsco", 1)) == 1
    assert grid.sent.count(("train.dpsco", 1)) == 1
    assert grid.sent.count(("train.dpsco", 0)) == T


def empty(message: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


def wrong_type(message: Message) -> Message:
    return Message(RecordDict({"dpsco": ConfigRecord({"answer": "text", "places": 3})}), reply_to=message)


def error(message: Message) -> Message:
    return Message(Error(code=0, reason="it failed"), reply_to=message)


def unreadable(message: Message) -> Message:
    """Bytes that are no message, which the engine finds when the server reads the reply."""
    raise ValueError("Error parsing message")


def as_another(message: Message) -> Message:
    """A reply states by itself who sent it: the engine compares the envelope alone."""
    reply = Message(RecordDict({"dpsco": ConfigRecord({"answer": b"none", "places": []})}), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 2
    return reply


@pytest.mark.parametrize("fault", [lambda message: None, empty, wrong_type, error, unreadable, as_another])
def test_a_node_that_is_silent_fails_or_sends_something_else_counts_as_zero(fault: Any) -> None:
    result = serve(PLAN, FlowerNodes(MemoryGrid({3: fault}), timeout=0.1), key=KEY)
    np.testing.assert_array_equal(result.model.coef, in_process([i for i in range(400) if i % 4 != 3]))
    assert result.report.mu == PLAN.budget.mu


def test_a_superlink_that_is_gone_ends_the_run_and_does_not_count_as_silence() -> None:
    class Gone(MemoryGrid):
        def get_node_ids(self) -> Iterable[int]:
            if len(self.sent) > 6:
                raise ConnectionError
            return range(4)

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            self.get_node_ids()
            return super().pull_messages(message_ids)

    with pytest.raises(ConnectionError):
        serve(PLAN, FlowerNodes(Gone(), timeout=0.1))


def test_a_node_answers_one_query_a_round_and_refuses_a_second_one() -> None:
    grid = MemoryGrid()
    serve(PLAN, FlowerNodes(grid, timeout=5.0))
    seen = Attendance()
    with pytest.raises(ClusterError, match="Nobody answered"):
        serve(PLAN, FlowerNodes(grid, timeout=5.0), start=np.ones(6), key=KEY, attendance=seen)
    assert [counts["answered"] for counts in seen.rounds] == [4] * T
    assert sum(counts["counted"] for counts in seen.rounds) == 0


def test_a_survey_over_flower_has_the_bits_of_a_run_in_process() -> None:
    plan = dpsco.Plan(PLAN.problem, PLAN.n, PLAN.budget, dpsco.Surveyed(rounds=5, rows=120))
    there = serve(plan, FlowerNodes(MemoryGrid(), timeout=5.0), key=KEY)
    here = dpsco.train(plan, dpsco.stream(FEATURES, LABELS, ids=IDS), key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
    assert there.health == here.health


def test_why_flowers_secure_aggregation_is_not_offered() -> None:
    """Its masks come from 32 bits: two keys that differ give the same one (docs/federated.md)."""
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    key = bytes(range(32))
    other = bytes([key[0] ^ 0xFF, *key[1:4], key[4] ^ 0xFF, *key[5:]])
    masks = [pseudo_rand_gen(seed, 1 << 24, [(50,)])[0] for seed in (key, other)]
    np.testing.assert_array_equal(*masks)
