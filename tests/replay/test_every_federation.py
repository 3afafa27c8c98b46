"""Mark 12 for federations: whatever one client holds, does or says, its server shows the same and moves by one clip.

The server, the wire format and the client are those that run on Flower; nodes are objects in this process.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsco import AcceleratedSRGD, Budget, L2Ball, Logistic, Plan, Problem
from dpsco.audit.recording import Transcript, observe
from dpsco.engines.flower import Assignment, Gradients, Hashed, LocalNodes, Roster, linear_gradients, serve, wire
from dpsco.engines.flower.client import contribution

P, T, CLIENTS, ROWS = 5, 4, 60, 3
PROBLEM = Problem(Logistic(), L2Ball(8.0), P)
Holdings = dict[str, tuple[np.ndarray, np.ndarray]]
"""Rows of each client."""


def holdings(seed: int = 0, clients: int = CLIENTS) -> Holdings:
    rng = np.random.default_rng(seed)
    return {f"home-{i}": (rng.normal(size=(ROWS, P)), rng.integers(0, 2, ROWS)) for i in range(clients)}


def a_plan(adjacency: str, unit: str = "client") -> Plan:
    n = CLIENTS * (1 if unit == "client" else ROWS)
    return Plan(PROBLEM, n, Budget(2.0, 1e-5, adjacency), AcceleratedSRGD(rounds=T, beta=0.2, clip=0.3))


def on_devices(held: Holdings) -> dict[str, Gradients]:
    return {name: linear_gradients(PROBLEM, *rows) for name, rows in held.items()}


def spread(clients: Mapping[str, Gradients], nodes: int = 3) -> list[dict[str, Gradients]]:
    """A client's node is a function of its name alone."""
    hosts: list[dict[str, Gradients]] = [{} for _ in range(nodes)]
    for name, gradients in clients.items():
        hosts[int(name.split("-")[1]) % nodes][name] = gradients
    return hosts


def watch(
    plan: Plan, transport: Any, frozen: Transcript | None = None, *, folder: Path | None = None, **how: Any
) -> Transcript:
    """``serve``, and everything it shows: report without the run's id, trace, model, and public files."""

    def run() -> bytes:
        result = serve(plan, transport, checkpoint=folder, **how)
        shown = repr(dataclasses.replace(result.report, run_id="")) + repr(result.trace)
        files = [] if folder is None else sorted(path.relative_to(folder) for path in folder.rglob("*"))
        return shown.encode() + result.model.coef.tobytes() + repr(files).encode()

    return observe(run, frozen)


def distance(plan: Plan, one: Transcript, two: Transcript) -> float:
    """The largest difference of the sums, as a share of the declared one; nothing else may differ."""
    assert one.error is two.error is None
    assert one.warned == two.warned == ()
    assert one.visible == two.visible
    assert [q.digest() for q in one.queries] == [q.digest() for q in two.queries]
    assert [s.shape for s in one.sums] == [s.shape for s in two.sums]
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, two.sums, strict=True)]
    if len(distances) > plan.rounds:  # the count of clients, which has a budget of its own
        assert one.sums[-1].shape == (1,)
        assert distances.pop() <= 1.0
    assert len(distances) == plan.rounds
    assert sum(d > 0 for d in distances) <= 1
    assert max(distances) <= plan.schedule.calibration.difference
    return max(distances) / plan.schedule.calibration.difference


def raises(x: np.ndarray) -> np.ndarray:
    raise MemoryError("a device of its own")


VICTIM = "home-17"
HELD: dict[str, tuple[Any, Any]] = {
    "mirrored": (-30 * np.ones((ROWS, P)), np.ones(ROWS)),
    "one row": (np.ones((1, P)), np.zeros(1)),
    "no row": (np.zeros((0, P)), np.zeros(0)),
    "many rows": (np.full((500, P), 7.0), np.zeros(500)),
    "not finite": (np.array([[np.nan] * P, [np.inf] * P]), np.array([0, 1])),
    "huge": (np.full((ROWS, P), 1e200), np.zeros(ROWS)),
    "label unknown": (np.ones((ROWS, P)), np.full(ROWS, 7)),
}
DOES: dict[str, Gradients] = {
    "raises": raises,
    "wrong shape": lambda x: np.ones((2, x.size + 1)),
    "no numbers": lambda x: np.array([["a"] * x.size]),
    "enormous": lambda x: np.full((2, x.size), 1.7e308),
    "gradients that are nan": lambda x: np.full((2, x.size), np.nan),
}


def behaviours() -> dict[str, Gradients]:
    return {**{name: linear_gradients(PROBLEM, *rows) for name, rows in HELD.items()}, **DOES}


@pytest.mark.parametrize(
    ("adjacency", "roster"),
    [("zero-out", False), ("replace", False), ("add-remove", False), ("zero-out", True), ("replace", True)],
)
def test_a_client_moves_one_round_whatever_it_holds_or_does(
    adjacency: str, roster: bool, mark_figure: Callable[[int, str], None]
) -> None:
    plan, base = a_plan(adjacency), on_devices(holdings())
    rule: Assignment = Roster({name: i % T for i, name in enumerate(base)}) if roster else Hashed()
    largest = 0.0
    for gradients in behaviours().values():
        with_it = {**base, VICTIM: gradients}
        other = dict(base)
        if adjacency == "zero-out":
            other[VICTIM] = DOES["gradients that are nan"]
        elif adjacency == "add-remove":
            del other[VICTIM]
        one = watch(plan, LocalNodes(spread(with_it), rule), assignment=rule)
        two = watch(plan, LocalNodes(spread(other), rule), one, assignment=rule)
        largest = max(largest, distance(plan, one, two))
    assert largest > 0.4  # the test would see a clip that is too large
    if not roster:
        mark_figure(12, f"federation, {adjacency} {largest:.2f}")


class Liar:
    """Honest nodes, and one whose messages in the victim's round are whatever ``say`` makes of the query."""

    def __init__(self, clients: Mapping[str, Gradients], say: Callable[[bytes], list[bytes | None]]) -> None:
        self._nodes, self._say = LocalNodes(spread(clients)), say

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes | None]]:
        asked = wire.decode_query(query)
        if Hashed().place_of(VICTIM, asked.run, asked.places) == step:
            yield from ((99, message) for message in self._say(query))
        yield from self._nodes.ask(query, step)


def said(query: bytes, numbers: Any = None) -> bytes:
    asked = wire.decode_query(query)
    mine = contribution(asked, lambda x: np.ones((1, x.size))) if numbers is None else numbers
    return wire.encode_answer(asked, [(VICTIM, mine)])


SAYS: dict[str, Callable[[bytes], list[bytes | None]]] = {
    "never answers": lambda query: [],
    "fails": lambda query: [None],
    "nothing": lambda query: [b""],
    "noise": lambda query: [bytes(range(256))],
    "twice": lambda query: [said(query), said(query)],
    "twice, otherwise": lambda query: [said(query), said(query, np.full(P, 3))],
    "cut off": lambda query: [said(query)[:-3]],
    "another width": lambda query: [said(query, np.full(P + 1, 3))],
    "unclipped": lambda query: [said(query, np.full(P, 2**31 - 1))],
    "the most negative": lambda query: [said(query, np.full(P, -(2**31)))],
}


@pytest.mark.parametrize("name", SAYS)
def test_a_client_moves_one_round_whatever_it_says(name: str) -> None:
    """Against the same federation without it: add-remove."""
    plan, base = a_plan("add-remove"), on_devices(holdings())
    del base[VICTIM]
    one = watch(plan, Liar(base, SAYS[name]))
    share = distance(plan, one, watch(plan, LocalNodes(spread(base)), one))
    assert (share > 0.9) if name in ("twice", "unclipped", "the most negative") else (share == 0.0)


WORLDS: dict[str, Callable[[], Holdings]] = {
    "duplicate clients": lambda: dict.fromkeys(holdings(), next(iter(holdings().values()))),
    "one class only": lambda: {name: (x, np.zeros_like(y)) for name, (x, y) in holdings(1).items()},
    "all rows nan": lambda: {name: (x * np.nan, y) for name, (x, y) in holdings(2).items()},
    "few clients": lambda: holdings(3, 7),
    "one client": lambda: {VICTIM: holdings(4)[VICTIM]},
    "far more than planned": lambda: holdings(5, 4 * CLIENTS),
}


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("name", WORLDS)
def test_degenerate_federations_and_their_neighbours_look_alike(name: str, unit: str) -> None:
    """Rounds without any client among them; the neighbour lacks a client, or one row of it (unit example)."""
    plan, world = a_plan("add-remove", unit), WORLDS[name]()
    who = next(iter(world))
    fewer = dict(world)
    features, labels = fewer.pop(who)
    if unit == "example":
        fewer[who] = features[1:], labels[1:]
    one = watch(plan, LocalNodes(spread(on_devices(world))), unit=unit)
    distance(plan, one, watch(plan, LocalNodes(spread(on_devices(fewer))), one, unit=unit))


def test_one_row_of_a_client_moves_one_round_where_rows_are_protected() -> None:
    for adjacency, row in itertools.product(("replace", "add-remove"), (np.full(P, 1e3), np.full(P, np.nan))):
        plan, base, changed = a_plan(adjacency, "example"), holdings(), holdings()
        features, labels = changed[VICTIM]
        if adjacency == "replace":
            features[1], labels[1] = row, 1 - labels[1]
        else:
            changed[VICTIM] = np.vstack([features, row]), np.append(labels, 1)
        one = watch(plan, LocalNodes(spread(on_devices(base))), unit="example")
        distance(plan, one, watch(plan, LocalNodes(spread(on_devices(changed))), one, unit="example"))


def test_the_public_files_of_a_federation_have_the_same_names_too(tmp_path: Path) -> None:
    plan, base = a_plan("add-remove"), on_devices(holdings())
    one = watch(plan, LocalNodes(spread(base)), folder=tmp_path / "one")
    del base[VICTIM]
    distance(plan, one, watch(plan, LocalNodes(spread(base)), one, folder=tmp_path / "two"))
    names = ["federation.json", "run/run.json"]
    assert [(tmp_path / k / name).exists() for k in ("one", "two") for name in names] == [True] * 4
