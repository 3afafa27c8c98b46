"""A federation with a survey: the bits of a hashed stream, one client in one round, no client asked twice."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import Hashed, LocalNodes, Roster, linear_gradients, serve, wire
from dpsco.engines.flower.transport import _fresh
from dpsco.errors import InvalidArgument
from dpsco.run import watching

from .worlds import KEY, spread

P, N = 5, 900
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), P, feature_norm=3.0, intercept=True)


def a_plan(adjacency: str = "add-remove", kind: str = "full", loss: Any = None) -> dpsco.Plan:
    problem = dataclasses.replace(PROBLEM, loss=loss or dpsco.Logistic())
    return dpsco.Plan(problem, N, dpsco.Budget(2.0, 1e-5, adjacency), dpsco.Surveyed(rounds=5, rows=300, kind=kind))


def rows() -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((N, P)) * [1.0, 0.2, 0.5, 0.1, 0.3]
    labels = (features @ [1.0, -2.0, 1.0, 0.0, 1.0] + rng.logistic(size=N) > 0).astype(float)
    return features / np.maximum(1, np.linalg.norm(features, axis=1) / 3)[:, None], labels, [f"d{i}" for i in range(N)]


def devices(plan: dpsco.Plan, features: np.ndarray, labels: np.ndarray, ids: list[str]) -> dict[str, Any]:
    names = np.array(ids)
    return {
        name: linear_gradients(plan.problem, features[names == name], labels[names == name])
        for name in dict.fromkeys(ids)
    }


@pytest.mark.parametrize(
    ("unit", "kind", "loss"),
    [
        ("client", "full", dpsco.Logistic()),
        ("example", "full", dpsco.Logistic()),
        ("client", "diagonal", dpsco.Softmax(2)),
        ("client", "low-rank", dpsco.Softmax(2)),
    ],
)
def test_devices_of_one_row_train_the_model_of_a_hashed_stream(unit: str, kind: str, loss: Any) -> None:
    plan, (features, labels, ids) = a_plan(kind=kind, loss=loss), rows()
    here = dpsco.train(plan, dpsco.stream(features, labels, ids=ids), key=KEY)
    there = serve(plan, LocalNodes(spread(devices(plan, features, labels, ids), 4)), unit=unit, key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
    assert there.trace == here.trace
    assert there.health == here.health
    assert there.report.rounds == here.report.rounds <= 5


@dataclasses.dataclass
class Noted:
    """Nodes that remember who was asked for what; a client may be absent or send what it likes in its round."""

    clients: dict[str, Any]
    absent: str = ""
    sends: Any = None
    asked: list[wire.Asked] = dataclasses.field(default_factory=list)
    answered: dict[str, int] = dataclasses.field(default_factory=dict)

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
        asked = wire.decode_query(query)
        self.asked.append(asked)
        hosted = {name: rows for name, rows in self.clients.items() if name != self.absent}
        answers = LocalNodes(spread(hosted, 3)).ask(query, step)
        for node, answer in answers:
            for name, _ in wire.decode_answer(asked, answer):
                self.answered[name] = self.answered.get(name, 0) + 1
            yield node, answer
        place = Hashed().place_of(self.absent, asked.run, asked.places) if self.absent else None
        if self.sends is not None and place is not None and asked.first <= place < asked.last:
            yield 9, wire.encode_answer(asked, [(self.absent, self.sends + np.zeros(asked.length))])


def test_every_client_is_asked_once_and_the_stretches_of_places_are_disjoint() -> None:
    plan, (features, labels, ids) = a_plan("zero-out"), rows()
    nodes = Noted(devices(plan, features, labels, ids))
    result = serve(plan, nodes)
    assert set(nodes.answered.values()) == {1}
    assert len(nodes.answered) > 0.97 * N  # a few places are left over behind the last round
    stretches = [(asked.first, asked.last) for asked in nodes.asked]
    assert stretches[0] == (0, 300)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(stretches))
    assert stretches[-1][1] <= N
    assert len(stretches) == result.report.rounds
    assert result.report.private
    assert result.geometry is not None


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out"])
def test_one_client_moves_one_sum_by_no_more_than_the_noise_covers_whatever_it_sends(adjacency: str) -> None:
    plan, (features, labels, _) = a_plan(adjacency), rows()
    ids = [f"home-{i % 450}" for i in range(N)]
    clients, run = devices(plan, features, labels, ids), bytes.fromhex(plan.digest())
    places = {name: Hashed().place_of(name, run, N) for name in clients}
    early, late = min(places, key=lambda name: places[name]), max(places, key=lambda name: places[name] % 850)

    def observed(transport: Any, frozen: Any = None) -> tuple[Any, ...]:
        sums, released, difference = [], [], []

        def observer(query: Any, clipped: Any, value: Any) -> None:
            sums.append(clipped.total.copy())
            released.append(value.value)
            difference.append((query.clip, query.grid))

        with watching(observer, replay=frozen):
            result = serve(plan, transport, key=KEY)
        return sums, released, (result.model.coef.tobytes(), result.health, result.trace), difference

    first = observed(Noted(clients))
    for name in (early, late):
        base = observed(Noted(clients, absent=name), first[1])
        for transport in (Noted(clients), Noted(clients, absent=name, sends=2**30), Noted(clients, name, -(2**20))):
            other = observed(transport, first[1])
            assert other[2] == base[2] == first[2]
            apart = [float(np.linalg.norm(a - b)) for a, b in zip(base[0], other[0], strict=True)]
            moved = [t for t, distance in enumerate(apart) if distance > 0]
            assert len(moved) == 1
            assert (moved[0] == 0) == (places[name] < 300)
            clip, grid = first[3][moved[0]]
            assert apart[moved[0]] <= (clip + np.sqrt(len(first[0][moved[0]])) * grid) * (1 + 1e-6)


def test_a_stopped_federation_goes_on_without_asking_twice(tmp_path) -> None:
    plan, world = a_plan(), rows()
    clients = devices(plan, *world)
    whole = serve(plan, Noted(clients), key=KEY)
    for at in (0, 1):

        def stop(done: Any, at: int = at) -> None:
            if done.step == at:
                raise KeyboardInterrupt

        first, second = Noted(clients), Noted(clients)
        with pytest.raises(KeyboardInterrupt):
            serve(plan, first, key=KEY, checkpoint=tmp_path / str(at), on_round=stop)
        again = serve(plan, second, key=KEY, checkpoint=tmp_path / str(at), resume=True)
        np.testing.assert_array_equal(again.model.coef, whole.model.coef)
        assert not set(first.answered) & set(second.answered)


def test_what_a_federation_cannot_survey_is_refused_or_counts_as_nothing() -> None:
    plan, (features, labels, ids) = a_plan(), rows()
    with pytest.raises(InvalidArgument, match="roster"):
        serve(a_plan("zero-out"), LocalNodes([]), assignment=Roster({"d1": 0}))
    clients = devices(plan, features, labels, ids)
    plain = {name: lambda x, rows=rows: rows(x) for name, rows in clients.items()}  # gradients without a survey
    nodes = Noted(plain)
    assert serve(plan, nodes, key=KEY).health.usable < 0.5
    assert {asked.survey is None for asked in nodes.asked} == {False, True}


def statistics(adjacency: str) -> dpsco.Plan:
    problem = dataclasses.replace(PROBLEM, loss=dpsco.Squared(label_bound=1.0))
    return dpsco.Plan(problem, N, dpsco.Budget(2.0, 1e-5, adjacency), dpsco.SufficientStatistics())


@pytest.mark.parametrize("unit", ["client", "example"])
def test_second_moments_under_replace_are_refused_whatever_method_asks_for_them(unit: str, tmp_path) -> None:
    for plan in (a_plan("replace"), statistics("replace")):
        with pytest.raises(InvalidArgument, match="cannot check that form"):
            serve(plan, LocalNodes([]), unit=unit, checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out"])
def test_a_hostile_client_moves_sufficient_statistics_by_one_clip(adjacency: str) -> None:
    plan, (features, labels, ids) = statistics(adjacency), rows()
    clients, sums = devices(plan, features[:40], labels[:40], ids[:40]), []
    length = plan.schedule.sum_length
    for sends in (None, np.eye(length)[1] * 2**30, -np.eye(length)[1] * 2**30):
        with watching(lambda query, clipped, value: sums.append(clipped.total.copy())):
            serve(plan, Noted(clients, absent="hostile", sends=sends), key=KEY)
    noise = plan.schedule.most_noise
    for pushed in sums[1:]:
        distance = float(np.linalg.norm(pushed - sums[0]))
        assert 0.9 * noise.clip < distance <= noise.difference


def test_a_node_answers_one_query_per_place() -> None:
    def asked(first: int, last: int, places: int = 9, clip: float = 1.0) -> wire.Asked:
        place: dict[str, Any] = {"run": bytes(32), "first": first, "last": last, "places": places, "unit": 1}
        return wire.decode_query(wire.encode_query(**place, clip=clip, grid=0.5, weights=[1.0], points=[np.zeros(2)]))

    memory: dict[str, bytes] = {}
    assert _fresh(memory, asked(0, 3))
    assert _fresh(memory, asked(0, 3))  # the same again
    assert _fresh(memory, asked(3, 5))
    for other in (asked(0, 3, clip=2.0), asked(2, 4), asked(4, 9), asked(0, 9), asked(6, 7, places=10)):
        assert not _fresh(memory, other)
    assert _fresh(memory, asked(5, 9))


def test_devices_with_very_many_columns_train_the_model_of_a_hashed_stream() -> None:
    """The map of such a survey is sent as one number per column."""
    width, n = 2100, 240
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), width, intercept=True)
    method = dpsco.Surveyed(rounds=3, rows=80, kind="diagonal")
    plan = dpsco.Plan(problem, n, dpsco.Budget(8.0, 1e-5, "add-remove"), method)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, width)) * (rng.random((n, width)) < 0.01) / 5
    labels, ids = (features[:, 0] + rng.standard_normal(n) > 0).astype(float), [f"d{i}" for i in range(n)]
    here = dpsco.train(plan, dpsco.stream(features, labels, ids=ids), key=KEY)
    nodes = Noted(devices(plan, features, labels, ids))
    there = serve(plan, nodes, unit="client", key=KEY)
    np.testing.assert_array_equal(there.model.coef, here.model.coef)
    assert [asked.factors is None for asked in nodes.asked] == [True, False, False][: len(nodes.asked)]
    assert nodes.asked[1].factors is not None
    assert nodes.asked[1].factors.directions.shape == (0, width + 1)
