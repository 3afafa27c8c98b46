"""Whatever a client does, the others' sum and the guarantee are as if it had not answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import Attendance, Hashed, LocalNodes, Roster, serve, wire
from dpsco.engines.flower.client import Gradients, clipped, contribution, places_of, respond
from dpsco.engines.flower.server import FederatedOracle
from dpsco.errors import InvalidArgument
from dpsco.query import Query

from .worlds import KEY, P, T, a_plan, devices, rows, spread

PLAN = a_plan()
RUN = bytes.fromhex(PLAN.digest())
FEATURES, LABELS, IDS = rows()
CLIENTS = devices(FEATURES, LABELS, IDS)
VICTIM = next(name for name in IDS if Hashed().place_of(name, RUN, T) == 3)
HONEST = {name: gradients for name, gradients in CLIENTS.items() if name != VICTIM}


class WithGuest:
    """Honest nodes, and one more that answers as ``guest(query, step)`` says."""

    def __init__(self, guest: Callable[[bytes, int], list[tuple[int, bytes | None]]], clients: dict = HONEST) -> None:
        self._guest, self._nodes = guest, LocalNodes(spread(clients, 3))

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes | None]]:
        yield from self._guest(query, step)
        yield from self._nodes.ask(query, step)


def without_victim() -> dpsco.Result:
    keep = [i for i, name in enumerate(IDS) if name != VICTIM]
    return dpsco.train(PLAN, dpsco.stream(FEATURES[keep], LABELS[keep], ids=[IDS[i] for i in keep]), key=KEY)


def answer(query: bytes, name: str = VICTIM, numbers: Any = None) -> bytes:
    asked = wire.decode_query(query)
    return wire.encode_answer(asked, [(name, contribution(asked, CLIENTS[VICTIM]) if numbers is None else numbers)])


def only_in_round_3(reply: Callable[[bytes], bytes | None]) -> Callable[[bytes, int], list[tuple[int, bytes | None]]]:
    return lambda query, step: [(9, reply(query))] if step == 3 else []


def another_query(query: bytes) -> bytes:
    """The same round of the same run, with one coordinate moved."""
    asked = wire.decode_query(query)
    points = [asked.points[0] + 1e-9, *asked.points[1:]]
    return wire.encode_query(
        run=asked.run,
        first=asked.first,
        last=asked.last,
        places=asked.places,
        unit=asked.unit,
        clip=asked.clip,
        grid=asked.grid,
        weights=asked.weights,
        points=points,
    )


def another_number(query: bytes) -> bytes:
    """The right vector in another number format, float64 for int32."""
    asked = wire.decode_query(query)
    steps = contribution(asked, CLIENTS[VICTIM]).astype(np.float64)
    head = answer(query)[:48]
    return head + len(VICTIM).to_bytes(2, "little") + VICTIM.encode() + steps.tobytes()


FAULTS = {
    "never answers": lambda query, step: [],
    "fails": only_in_round_3(lambda query: None),
    "answers nothing": only_in_round_3(lambda query: b""),
    "answers noise": only_in_round_3(lambda query: bytes(range(200))),
    "wrong shape": only_in_round_3(
        lambda query: answer(query)[:44] + (P + 1).to_bytes(4, "little") + answer(query)[48:]
    ),
    "too short": only_in_round_3(lambda query: answer(query)[:-1]),
    "too long": only_in_round_3(lambda query: answer(query) + b"\0"),
    "more contributions than there are": only_in_round_3(
        lambda query: answer(query)[:40] + (2**31).to_bytes(4, "little") + answer(query)[44:]
    ),
    "wrong dtype": only_in_round_3(another_number),
    "wrong query": only_in_round_3(lambda query: answer(another_query(query))),
    "not its round": lambda query, step: [(9, answer(query))] if step != 3 else [],
    "unknown id": only_in_round_3(lambda query: answer(query, name="no such/id")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_client_counts_as_zero(fault: str) -> None:
    result = serve(PLAN, WithGuest(FAULTS[fault]), key=KEY)
    expected = without_victim()
    np.testing.assert_array_equal(result.model.coef, expected.model.coef)
    assert (result.report.mu, result.report.noise_std) == (expected.report.mu, expected.report.noise_std)
    assert (result.report.epsilon, result.report.rows_missing) == (2.0, None)


def test_an_answer_that_comes_a_round_late_is_dropped() -> None:
    kept: list[bytes] = []

    def late(query: bytes, step: int) -> list[tuple[int, bytes | None]]:
        if step == 3:
            kept.append(answer(query))
            return []
        return [(9, kept[0])] if step == 4 else []

    result = serve(PLAN, WithGuest(late), key=KEY)
    np.testing.assert_array_equal(result.model.coef, without_victim().model.coef)
    assert kept


def test_a_repeated_answer_counts_once() -> None:
    expected = dpsco.train(PLAN, dpsco.stream(FEATURES, LABELS, ids=IDS), key=KEY)
    for replies in (
        lambda query: [(9, answer(query)), (9, answer(query))],
        lambda query: [(9, answer(query)), (10, answer(query))],
    ):
        seen = Attendance()
        nodes = WithGuest(lambda query, step, replies=replies: replies(query) if step == 3 else [])
        result = serve(PLAN, nodes, key=KEY, attendance=seen)
        np.testing.assert_array_equal(result.model.coef, expected.model.coef)
        assert seen.rounds[3]["repeated"] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_client_whose_rows_or_gradients_are_not_finite_counts_as_zero(value: float) -> None:
    bad = {**HONEST, VICTIM: lambda x: np.full((2, P), value)}
    result = serve(PLAN, LocalNodes(spread(bad, 3)), key=KEY)
    np.testing.assert_array_equal(result.model.coef, without_victim().model.coef)


def test_an_answer_of_nan_counts_as_zero_where_the_format_can_say_nan() -> None:
    """Without noise there is no grid, and numbers are float64."""
    plan = a_plan(epsilon=np.inf, adjacency="zero-out")
    run = bytes.fromhex(plan.digest())
    victim = next(name for name in IDS if Hashed().place_of(name, run, T) == 3)
    honest = {name: gradients for name, gradients in CLIENTS.items() if name != victim}
    for value in (np.nan, np.inf, -np.inf):
        nodes = WithGuest(only_in_round_3(lambda query, value=value: answer(query, victim, np.full(P, value))), honest)
        seen = Attendance()
        result = serve(plan, nodes, attendance=seen)
        assert seen.rounds[3]["not finite"] == 1
        np.testing.assert_array_equal(result.model.coef, serve(plan, LocalNodes(spread(honest, 3))).model.coef)


@pytest.mark.parametrize("scale", [2, 1000, 2**31 - 1])
def test_a_client_that_does_not_clip_is_clipped_by_the_server(scale: int) -> None:
    """What it adds to the sum is at most the difference the noise was calibrated for."""
    noise = PLAN.schedule.calibration
    query = Query(3, (np.zeros(P),), (1.0,), PLAN.clip, PLAN.batch_size, noise.grid, noise.rowwise)

    def total(numbers: np.ndarray | None) -> np.ndarray:
        guest = (lambda q, step: []) if numbers is None else only_in_round_3(lambda q: answer(q, numbers=numbers))
        return FederatedOracle(PLAN, WithGuest(guest), "client", Hashed()).answer(query).total

    step = min(scale * int(PLAN.clip / noise.grid), 2**31 - 1)
    for numbers in (np.full(P, step), np.array([step, -step, 0, 0, 0, 0]), np.full(P, -(2**31))):
        moved = np.linalg.norm(total(numbers) - total(None))
        assert 0.99 * PLAN.clip < moved <= noise.difference


def _of_one_node(plan: dpsco.Plan, numbers: np.ndarray, seen: Attendance | None = None) -> np.ndarray:
    """The sum of a round whose only node sends ``numbers`` for its rows."""
    noise = plan.schedule.calibration
    query = Query(0, (np.zeros(P),), (1.0,), plan.clip, plan.batch_size, noise.grid, noise.rowwise)

    def ask(message: bytes, step: int) -> list[tuple[int, bytes]]:
        return [(0, wire.encode_answer(wire.decode_query(message), [("", numbers)]))]

    transport = type("Node", (), {"ask": staticmethod(ask)})()
    return FederatedOracle(plan, transport, "example", Hashed(), attendance=seen).answer(query).total


def test_an_example_level_sum_longer_than_all_rows_together_is_scaled_down_to_them() -> None:
    seen, noise = Attendance(), PLAN.schedule.calibration
    total = _of_one_node(PLAN, np.full(P, 2**60), seen)
    assert seen.rounds[0]["longer than all rows together"] == 1
    assert np.linalg.norm(total) == pytest.approx(PLAN.n * PLAN.clip, rel=1e-3)
    assert np.all(total / noise.grid == np.rint(total / noise.grid))


@pytest.mark.parametrize("count", [399, 400, 401, 500, 40_000])
def test_one_more_row_moves_a_long_sum_by_no_more_than_one_row(count: int) -> None:
    """n = 400 rows are planned. Once a longer sum counted as 0: 400 equal rows gave 400 clips, one more gave 0."""
    noise = PLAN.schedule.calibration
    row = np.rint(clipped(np.ones((1, P)), PLAN.clip)[0] / noise.grid).astype(np.int64)
    rng = np.random.default_rng(0)
    for other in (row, -row, *np.rint(clipped(rng.normal(size=(5, P)), PLAN.clip) / noise.grid).astype(np.int64)):
        moved = _of_one_node(PLAN, count * row + other) - _of_one_node(PLAN, count * row)
        assert np.linalg.norm(moved) <= noise.difference


def test_sums_that_are_driven_out_of_range_do_not_drown_an_honest_row() -> None:
    """Float64 beyond 2^53 steps has no room for it, and int64 beyond 2^63 wraps around."""
    plan = a_plan(n=2**40)
    noise = plan.schedule.calibration
    query = Query(0, (np.zeros(P),), (1.0,), plan.clip, plan.batch_size, noise.grid, noise.rowwise)
    largest = int(0.4 * plan.n * plan.clip / noise.grid)

    def total(nodes: int, mine: int) -> np.ndarray:
        def ask(message: bytes, step: int) -> Iterator[tuple[int, bytes]]:
            asked = wire.decode_query(message)
            yield 0, wire.encode_answer(asked, [("", np.full(P, mine))])
            for node in range(nodes):
                yield node + 1, wire.encode_answer(asked, [("", np.full(P, largest))])

        transport = type("Nodes", (), {"ask": staticmethod(ask)})()
        return FederatedOracle(plan, transport, "example", Hashed()).answer(query).total

    row = int(plan.clip / noise.grid / np.sqrt(P))
    for nodes in (1, 2, 20, 6_000):
        assert np.linalg.norm(total(nodes, row) - total(nodes, 0)) <= noise.difference
        assert np.all(np.abs(total(nodes, row)) <= 2**53 * noise.grid)


def test_a_node_that_dies_costs_its_clients_answers_and_nothing_else() -> None:
    nodes = spread(CLIENTS, 4)

    class Dying:
        def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
            return LocalNodes(nodes if step < 3 else nodes[:3]).ask(query, step)

    result = serve(PLAN, Dying(), key=KEY)
    there = [i for i, name in enumerate(IDS) if name not in nodes[3] or (Hashed().place_of(name, RUN, T) or 0) < 3]
    expected = dpsco.train(PLAN, dpsco.stream(FEATURES[there], LABELS[there], ids=[IDS[i] for i in there]), key=KEY)
    np.testing.assert_array_equal(result.model.coef, expected.model.coef)
    assert result.report.mu == expected.report.mu


def test_a_round_without_any_answer_goes_on() -> None:
    nodes = LocalNodes(spread(CLIENTS, 3))

    class Silent:
        def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
            return nodes.ask(query, step) if step != 3 else iter(())

    assert np.all(np.isfinite(serve(PLAN, Silent()).model.coef))


def test_a_roster_refuses_add_remove_and_rounds_that_are_not_there() -> None:
    with pytest.raises(InvalidArgument, match="hashed"):
        serve(PLAN, LocalNodes([]), assignment=Roster({"a": 0}))
    with pytest.raises(InvalidArgument, match="from 0 to 7"):
        serve(a_plan("zero-out"), LocalNodes([]), assignment=Roster({"a": 8}))


@pytest.mark.parametrize("name", ["p" * 65, "Zo\u00eb", "a 0\nb"])
def test_an_id_that_an_answer_cannot_name_costs_no_other_client_of_its_node(name: str) -> None:
    """Its rows would decide whether the answer of the whole node can be read: without any, nothing is sent of it."""

    class Listed:
        def place_of(self, client: str, run: bytes, places: int) -> int | None:
            return 0

        def digest(self) -> str:
            return "listed"

    query = wire.encode_query(
        run=bytes(32), first=0, last=1, places=1, unit=1, clip=1.0, grid=0.5, weights=[1.0], points=[np.zeros(2)]
    )
    others: dict[str, Gradients] = {"a": lambda x: np.ones((1, 2)), "b": lambda x: np.ones((1, 2))}
    with_it = respond(query, {name: lambda x: np.ones((1, 2)), **others}, Listed())
    without_rows = respond(query, {name: lambda x: np.ones((0, 2)), **others}, Listed())
    assert with_it == without_rows
    assert [who for who, _ in wire.decode_answer(wire.decode_query(query), with_it)] == ["a", "b"]
    with pytest.raises(InvalidArgument, match="at most 64 printable ASCII"):
        serve(a_plan("zero-out"), LocalNodes([]), assignment=Roster({name: 0}))


@pytest.mark.parametrize("name", [None, float("nan"), 7, True, b"p7", ("p", 7)])
def test_an_id_that_is_no_text_costs_no_other_client_of_its_node(name: Any) -> None:
    query = wire.encode_query(
        run=bytes(32), first=0, last=1, places=1, unit=1, clip=1.0, grid=0.5, weights=[1.0], points=[np.zeros(2)]
    )
    others: dict[Any, Gradients] = {"a": lambda x: np.ones((1, 2)), "b": lambda x: np.ones((1, 2))}
    with_it: dict[Any, Gradients] = {name: lambda x: np.ones((1, 2)), **others}
    assert respond(query, with_it) == respond(query, others)
    assert places_of(with_it, bytes(32), 9, Hashed()) == places_of(others, bytes(32), 9, Hashed())


ONES = np.ones(2)


@pytest.mark.parametrize("fails", [False, True])
def test_a_gradient_function_that_works_in_place_changes_no_other_client(fails: bool) -> None:
    query = wire.encode_query(
        run=bytes(32),
        first=0,
        last=1,
        places=1,
        unit=1,
        clip=9.0,
        grid=0.5,
        weights=[2.0, -1.0],
        points=[ONES, 3.0 * ONES],
    )

    def in_place(x: Any) -> Any:
        x += 5.0
        if fails:
            raise ValueError
        return x[None]

    def answers(*names: str) -> dict[str, Any]:
        others: dict[str, Gradients] = dict.fromkeys(names, lambda x: x[None])
        sent = respond(query, {"a": in_place, **others})
        return dict(wire.decode_answer(wire.decode_query(query), sent))

    assert answers("b", "c")["b"].tolist() == answers("b", "c")["c"].tolist() == [-2, -2]
    if not fails:
        assert answers("b")["a"].tolist() == [8, 8]  # 2 (1 + 5) - (3 + 5), in steps of the grid


def test_clients_that_are_not_on_the_roster_are_not_counted() -> None:
    plan = a_plan("zero-out")
    roster = Roster({name: i // 50 for i, name in enumerate(IDS) if name != VICTIM})
    nodes = LocalNodes(spread(HONEST, 3), roster)

    class Intruder:
        def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
            yield 9, answer(query)
            yield from nodes.ask(query, step)

    results = [serve(plan, transport, assignment=roster, key=KEY) for transport in (nodes, Intruder())]
    np.testing.assert_array_equal(results[0].model.coef, results[1].model.coef)


def test_a_list_that_changes_during_the_run_gives_no_client_a_second_round() -> None:
    plan, seen = a_plan("zero-out"), Attendance()
    places = {VICTIM: 0}
    roster = Roster(places)
    serve(
        plan,
        LocalNodes(spread(CLIENTS, 3), roster),
        assignment=roster,
        attendance=seen,
        on_round=lambda done: places.update({VICTIM: done.step + 1}),
        key=KEY,
    )
    assert [counts["counted"] for counts in seen.rounds] == [1] + [0] * 7


def test_the_report_says_whom_it_protects_and_whom_it_trusts() -> None:
    nodes = LocalNodes(spread(CLIENTS, 3))
    client, example = (serve(PLAN, nodes, unit=unit).report for unit in ("client", "example"))
    assert client.unit.startswith("one client")
    assert example.unit.startswith("one row")
    assert any("trusted" in line for line in client.assumptions)
    assert any("cannot check" in line for line in example.assumptions)
    assert any("number of nodes that sent a sum, without noise" in line for line in example.assumptions)
    assert type(client).from_json(client.to_json()) == client
