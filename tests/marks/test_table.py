"""The table of marks names tests that are there: a renamed one cannot drop out of it in silence."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.proof_table import MARKS, marks_of

TESTS = Path(__file__).parents[1]


def test_there_are_twenty_marks() -> None:
    assert list(MARKS) == list(range(1, 21))


@pytest.mark.parametrize("number", MARKS)
def test_every_test_that_a_mark_names_is_there(number: int) -> None:
    for start in MARKS[number][1]:
        file, _, name = start.partition("::")
        functions = [node.name for node in ast.parse((TESTS / file).read_text()).body if hasattr(node, "name")]
        found = [each for each in functions if each.startswith(name or "test_")]
        assert found, start
        assert number in marks_of(f"tests/{file}::{found[0]}[a parameter]")
