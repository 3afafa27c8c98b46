"""The federation on Flower: a transport for the server's ``main`` and a ClientApp (app.py is a pair made of them).

    @server.main()
    def main(grid, context):
        result = serve(plan, FlowerNodes(grid, timeout=600))

    client = client_app(lambda context: {"device-7": linear_gradients(problem, X, y)})

A round is one message to every node that may host a client of it, and one message back; both hold the bytes of
wire.py. Flower carries them: its strategies, aggregation and noise play no part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from dpsco.engines.flower.assignment import Assignment, Hashed
from dpsco.engines.flower.client import Gradients, places_of, respond
from dpsco.engines.flower.wire import Asked, Malformed, decode_query
from dpsco.errors import ExtraMissing

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

__all__ = ["FlowerNodes", "client_app", "flwr"]

RECORD, CALL, QUERY = "dpsco", "query.dpsco", "train.dpsco"

_PAUSE = 1.0
"""Seconds between two looks at a reply."""
_READ = 200.0
"""Seconds beyond the timeout for the whole of a reply that was there in time. SuperLink waits 180 for its parts."""
_SPARE = 600.0
"""Seconds that replies are kept beyond a round."""


class FlowerNodes:
    """A transport over Flower's grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of the ServerApp.
    timeout : float
        Seconds that a round waits for answers.

    A node that is new is asked once which places its clients have, and then only in rounds of these: a device downloads
    one query. A node that does not say is asked in every round.

    Cost: a thread for each node that is asked, while its reply is waited for.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.timeout = timeout
        self._grid = grid
        self._of: tuple[object, object] = (None, None)
        self._places: dict[int, frozenset[int] | None] = {}
        """Places of the clients of each node in the run ``_of``; in another run they have others."""

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield the answer of each node that hosts clients of this round; None for a node that failed."""
        nodes = sorted(self._grid.get_node_ids())
        asked = decode_query(query)
        if self._of != (asked.run, asked.places):
            self._of, self._places = (asked.run, asked.places), {}
        self._call([node for node in nodes if node not in self._places], asked)
        called = [
            node
            for node in nodes
            if (places := self._places[node]) is None or any(asked.first <= place < asked.last for place in places)
        ]
        for node, answer in self._exchange(called, QUERY, {"query": query}, "answer"):
            yield node, answer if isinstance(answer, bytes) else None

    def wait(self, nodes: int, seconds: float) -> None:
        """Until ``nodes`` are connected, at most ``seconds``: who comes later joins from the next round on."""
        end = time.monotonic() + seconds
        while len(list(self._grid.get_node_ids())) < nodes and time.monotonic() < end:
            time.sleep(0.5)

    def _call(self, nodes: list[int], asked: Asked) -> None:
        self._places.update(dict.fromkeys(nodes))
        for node, places in self._exchange(nodes, CALL, {"run": asked.run, "places": asked.places}, "places"):
            if isinstance(places, list) and all(type(place) is int for place in places):
                self._places[node] = frozenset(places)

    def _exchange(self, nodes: list[int], kind: str, values: dict[str, Any], name: str) -> Iterator[tuple[int, Any]]:
        """Send a message to each node; yield (node, what its reply carries under ``name``), None for one that failed.

        Guarantee: no node decides how another is read. Each message is sent, and its reply read, by itself: Flower's
        ``send_and_receive`` raises for all if it cannot read one reply. Each reply has a thread that looks for it until
        the timeout: while one is read, which its sender can draw out, no other is seen later or becomes late. Inside a
        reply its sender states who it is and what it answers; neither is used. SuperLink has compared its envelope with
        the message and the node asked.
        """
        waiting, over = self._sent(nodes, kind, values), Event()
        end = time.monotonic() + self.timeout
        read: SimpleQueue[tuple[int, list[Any] | BaseException]] = SimpleQueue()
        try:
            for message, node in waiting.items():
                look = partial(self._of_one_node, partial(self._replies, message, name))
                reader = Thread(target=_read, args=(node, look, end, over, read), daemon=True)
                reader.start()
            for _ in waiting:
                node, found = read.get(timeout=max(0.0, end + _READ - time.monotonic()))
                if isinstance(found, BaseException):
                    raise found
                yield from ((node, value) for value in found)
        except Empty:  # what has not been read by now is late
            return
        finally:
            over.set()

    def _sent(self, nodes: list[int], kind: str, values: dict[str, Any]) -> dict[str, int]:
        """Send a message to each node; return the node of each message that SuperLink took."""
        waiting: dict[str, int] = {}
        if nodes:
            flower, content, ttl = flwr("app"), _content(values), self.timeout + _SPARE
            for node in nodes:
                message = flower.Message(content, dst_node_id=node, message_type=kind, ttl=ttl)
                taken = self._of_one_node(partial(self._grid.push_messages, [message]))
                waiting |= {name: node for name in taken if name}
        return waiting

    def _replies(self, message: str, name: str) -> list[Any]:
        return [_value(reply, name) for reply in self._grid.pull_messages([message])]

    def _of_one_node(self, call: Callable[[], Iterable[Any]]) -> list[Any]:
        """Return what ``call`` gives; [None] if it fails over one node. Raise if SuperLink does not answer at all."""
        try:
            return list(call())
        except Exception:
            self._grid.get_node_ids()  # no message of a node is read for that
            return [None]


def _read(node: int, look: Callable[[], list[Any]], end: float, over: Event, read: SimpleQueue[Any]) -> None:
    """Look for the reply of ``node`` until it is there, the last time at ``end``; put what was found, or an error."""
    try:
        while not over.is_set():
            last = time.monotonic() >= end
            found = look()
            if found or last:
                read.put((node, found))
                return
            over.wait(max(0.0, min(_PAUSE, end - time.monotonic())))
    except BaseException as error:  # of SuperLink: raised in the thread that waits
        read.put((node, error))


def client_app(
    clients: Callable[[Context], Mapping[str, Gradients]],
    *,
    assignment: Callable[[Context], Assignment] = lambda context: Hashed(),
) -> ClientApp:
    """Return a ClientApp that answers for the clients its node hosts.

    Parameters
    ----------
    clients : callable
        Returns, for the node's context, the id of each client -> gradients of its rows.
    assignment : callable, optional
        Returns, for the node's context, the server's assignment; ``Hashed()`` unless given.

    Returns
    -------
    flwr.clientapp.ClientApp

    A node answers one query per place and run: the same one again gets the same answer, another one gets none.
    """
    flower, app = flwr("app"), flwr("clientapp").ClientApp()

    @app.query("dpsco")
    def call(message: Message, context: Context) -> Message:
        record = message.content.config_records[RECORD]
        run, places = record["run"], record["places"]
        if not isinstance(run, bytes) or not isinstance(places, int):
            raise Malformed("Not a call.")
        mine = places_of(clients(context), run, places, assignment(context))
        return flower.Message(_content({"places": mine}), reply_to=message)

    @app.train("dpsco")
    def answer(message: Message, context: Context) -> Message:
        query = _value(message, "query")
        if not isinstance(query, bytes):
            raise Malformed("Not a query.")
        asked = decode_query(query)
        memory = context.state.config_records.get(RECORD, flower.ConfigRecord())
        hosted = clients(context) if _fresh(memory, asked) else {}
        context.state[RECORD] = memory
        return flower.Message(_content({"answer": respond(query, hosted, assignment(context))}), reply_to=message)

    return app


def _fresh(memory: Any, asked: Asked) -> bool:
    """Whether no other query asked for one of these places of the run before; notes this one. Same number of places."""
    run, own = asked.run.hex(), f"{asked.first}-{asked.last}-{asked.places}"
    for name, digest in memory.items():
        known, _, stretch = name.partition("/")
        if known != run or (stretch, digest) == (own, asked.digest):
            continue
        first, last, places = map(int, stretch.split("-"))
        if places != asked.places or (first < asked.last and asked.first < last):
            return False
    memory[f"{run}/{own}"] = asked.digest
    return True


def flwr(part: str) -> Any:
    """Flower's module ``part``, loaded on first use."""
    try:
        return import_module(f"flwr.{part}")
    except ImportError:
        raise ExtraMissing("A federation on Flower needs it: pip install 'dpsco[federated]'.") from None


def _content(values: dict[str, Any]) -> Any:
    flower = flwr("app")
    return flower.RecordDict({RECORD: flower.ConfigRecord(values)})


def _value(message: Message, name: str) -> Any:
    """Return what a message carries under ``name``; None if it failed or carries something else."""
    if not message.has_content():
        return None
    record = message.content.config_records.get(RECORD)
    return None if record is None else record.get(name)
