"""Every public function and class documents its parameters and what it returns, in numpydoc sections.

Of engines, audit and adapters these are the functions that the API reference names.

Ruff checks that docstrings exist and how they are written; it does not ask for sections.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import dpsco


def sections(docstring: str) -> dict[str, str]:
    """Return the text of each numpydoc section by its title."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


API = sorted(
    name
    for page in (Path(__file__).parents[1] / "docs" / "api").rglob("*.md")
    for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def unwritten(thing: object) -> list[str]:
    """Return what the docstring of a public thing leaves out: sections, or parameters of a section."""
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
    assert unwritten(getattr(dpsco, name)) == []


@pytest.mark.parametrize("name", API)
def test_the_docstring_of_a_function_in_the_reference_describes_parameters_and_value(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    try:
        thing = getattr(import_module(module), attribute)
    except ImportError:
        pytest.skip(f"{module} needs a package that is not installed")
    assert not inspect.isfunction(thing) or unwritten(thing) == []


def test_a_docstring_that_leaves_something_out_is_noticed() -> None:
    def half(first: int, second: int) -> int:
        """Do half.

        Parameters
        ----------
        first : int
            Described.
        """
        return first + second

    assert unwritten(half) == ["second", "Returns"]
