"""The wire format is what its page says, byte for byte, and refuses everything else."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import linear_gradients, wire
from dpsco.engines.flower.assignment import Hashed
from dpsco.engines.flower.client import respond
from dpsco.engines.flower.linear_gradients import survey_numbers
from dpsco.query import Moment

PAGE = (Path(__file__).parents[3] / "docs" / "wire-format.md").read_text(encoding="utf-8")
RUN = bytes(range(32))


def vector(name: str) -> bytes:
    """A block of hexadecimal digits of the page."""
    return bytes.fromhex(re.search(rf"```text {name}\n(.*?)```", PAGE, re.DOTALL).group(1))


def a_query(unit: int = wire.CLIENT, grid: float = 0.25) -> bytes:
    points = [np.array([1.0, 0.0]), np.array([0.0, -2.0])]
    return wire.encode_query(
        run=RUN, first=3, last=4, places=4, unit=unit, clip=1.0, grid=grid, weights=(4.0, -3.0), points=points
    )


def map_query() -> bytes:
    points, matrix = [np.array([1.0, 0.0]), np.array([0.0, -1.0])], np.array([[1.0, 1.0], [0.0, 2.0]])
    place = {"run": RUN, "first": 3, "last": 4, "places": 4, "unit": wire.CLIENT}
    return wire.encode_query(**place, clip=1.0, grid=0.25, weights=(4.0, -3.0), points=points, matrix=matrix)


def survey_query() -> bytes:
    numbers = survey_numbers(Moment("full", 1.0, 0.0, 1, 2, slope=0.5, gradient=0.5, health=0.5))
    place = {"run": RUN, "first": 2, "last": 4, "places": 4, "unit": wire.CLIENT}
    return wire.encode_query(**place, clip=2.0, grid=1 / 16, length=9, survey=numbers)


SURVEYED = linear_gradients(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=2), [[0.5, 0.5]], [1])


def gradients(x: np.ndarray) -> np.ndarray:
    """Of the page's client: two rows, a (<a, x> - y)."""
    a, y = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([1.0, 0.0])
    return a * (a @ x - y)[:, None]


def test_the_query_is_the_one_on_the_page() -> None:
    assert a_query() == vector("query")
    assert hashlib.sha256(a_query()).hexdigest() in PAGE


@pytest.mark.parametrize(("unit", "name"), [(1, "client"), (2, "example")])
def test_the_answers_are_those_on_the_page(unit: int, name: str) -> None:
    assert respond(a_query(unit), {"d4": gradients, "d6": gradients}) == vector(f"answer-{name}")


def test_maps_and_surveys_are_those_on_the_page() -> None:
    assert map_query() == vector("query-map")
    assert respond(map_query(), {"d4": gradients, "d6": gradients}) == vector("answer-map")
    assert survey_query() == vector("query-survey")
    assert respond(survey_query(), {"d4": SURVEYED, "d6": SURVEYED}) == vector("answer-survey")
    ((name, numbers),) = wire.decode_answer(wire.decode_query(survey_query()), vector("answer-survey"))
    assert (name, numbers.tolist()) == ("d4", [4, 6, 4, -4, -4, 8, 0, 0, 8])
    assert respond(survey_query(), {"d4": gradients}) == respond(survey_query(), {})  # it has no rows to survey


@pytest.mark.parametrize("at", [66, 68, 76, 80])
def test_a_survey_or_map_of_another_shape_is_refused(at: int) -> None:
    for message in (bytearray(map_query()), bytearray(survey_query())):
        message[at] ^= 1
        with pytest.raises(wire.Malformed):
            wire.decode_query(bytes(message))


def test_a_survey_of_another_length_gets_no_answer() -> None:
    """Nine numbers are one contribution of nine, never three of three."""
    message = bytearray(survey_query())
    message[72] = 3
    assert wire.decode_answer(wire.decode_query(bytes(message)), respond(bytes(message), {"d4": SURVEYED})) == []


def test_the_answer_without_a_grid_is_that_on_the_page_to_rounding() -> None:
    query = a_query(grid=0.0)
    asked, answer = wire.decode_query(query), respond(query, {"d4": gradients, "d6": gradients})
    ((name, numbers),), ((expected_name, expected),) = (
        wire.decode_answer(asked, message) for message in (answer, vector("answer-no-grid"))
    )
    assert name == expected_name
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)


def test_the_clients_numbers_follow_the_formula() -> None:
    """By hand: rows of 4 grad(x_t) - 3 grad(x_{t-1}), their mean of norm > 1 clipped to 1, in steps of 1/4."""
    rows = 4 * gradients(np.array([1.0, 0.0])) - 3 * gradients(np.array([0.0, -2.0]))
    mean = rows.mean(axis=0)
    steps = np.rint(mean / max(1.0, np.linalg.norm(mean)) / 0.25)
    ((name, numbers),) = wire.decode_answer(wire.decode_query(a_query()), vector("answer-client"))
    assert name == "d4"
    assert numbers.dtype == np.int32
    assert numbers.tolist() == steps.tolist()
    each = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    ((_, total),) = wire.decode_answer(wire.decode_query(a_query(unit=2)), vector("answer-example"))
    assert total.tolist() == np.rint(each / 0.25).sum(axis=0).tolist()


def test_the_page_s_hashes_are_the_library_s() -> None:
    table = re.findall(r"^\| `(\S+)` \| ([0-9a-f]{32}) \| (\d) \|$", PAGE, re.MULTILINE)
    assert len(table) >= 3
    for client, digest, step in table:
        data = hashlib.blake2b(f"'{client}'".encode(), key=RUN, digest_size=16).hexdigest()
        assert (data, int(step)) == (digest, Hashed().place_of(client, RUN, 4))


@pytest.mark.parametrize("at", [0, 7, 40, 48, 64, 66, 68, 72, 76, 80])
def test_a_query_with_another_magic_step_unit_or_size_is_refused(at: int) -> None:
    message = bytearray(a_query())
    message[at] ^= 0x10
    with pytest.raises(wire.Malformed):
        wire.decode_query(bytes(message))


@pytest.mark.parametrize("cut", [0, 10, 60, 100])
def test_a_cut_message_is_refused(cut: int) -> None:
    with pytest.raises(wire.Malformed):
        wire.decode_query(a_query()[:cut])
    asked = wire.decode_query(a_query())
    with pytest.raises(wire.Malformed):
        wire.decode_answer(asked, vector("answer-client")[: min(cut, 50)])
    with pytest.raises(wire.Malformed):
        wire.decode_answer(asked, vector("answer-client") + b"\0")


def test_a_query_that_is_not_finite_is_refused() -> None:
    asked = wire.decode_query(a_query())
    fields = {f.name: getattr(asked, f.name) for f in dataclasses.fields(asked) if f.name != "digest"}
    for name, value in (("clip", np.nan), ("weights", (np.inf, 1.0)), ("points", asked.points * np.nan), ("first", 4)):
        with pytest.raises(wire.Malformed):
            wire.decode_query(wire.encode_query(**{**fields, name: value}))
