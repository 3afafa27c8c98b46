"""Every public function and class documents its parameters and what it returns, in numpydoc sections.

Ruff checks that docstrings exist and how they are written; it does not ask for sections.
"""

from __future__ import annotations

import inspect
import re

import pytest

import dpsco


def sections(docstring: str) -> dict[str, str]:
    """Return the text of each numpydoc section by its title."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def unwritten(name: str) -> list[str]:
    """Return what the docstring of a public name leaves out: sections, or parameters of a section."""
    thing = getattr(dpsco, name)
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return []
    found = sections(inspect.getdoc(thing) or "")
    parameters = list(inspect.signature(thing).parameters)
    described = found.get("Parameters", "") + found.get("Attributes", "")
    missing = [
        each for each in parameters if not re.search(rf"^[\w*, ]*\b{each}\b[\w*, ]*( :|$)", described, re.MULTILINE)
    ]
    if not inspect.isclass(thing) and "Returns" not in found:
        missing.append("Returns")
    return missing


@pytest.mark.parametrize("name", sorted(dpsco.__all__))
def test_the_docstring_describes_every_parameter_and_the_value_returned(name: str) -> None:
    assert unwritten(name) == []


def test_a_docstring_that_leaves_something_out_is_noticed(monkeypatch) -> None:
    def half(first: int, second: int) -> int:
        """Do half.

        Parameters
        ----------
        first : int
            Described.
        """
        return first + second

    monkeypatch.setattr(dpsco, "half", half, raising=False)
    assert unwritten("half") == ["second", "Returns"]
