"""The API reference shows every public name, and nothing that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = set(
    re.findall(r"^::: (\S+)$", "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")), re.M)
)

EXPORTED_BY_DPSCO = ("problem", "methods", "release.mechanisms", "clipping", "planning", "run", "rows", "estimators")
"""Packages whose names may be shown as names of ``dpsco``."""
ON_THEIR_OWN = ("jax", "torch", "engines.dask", "engines.flower", "audit", "pages")
"""Packages whose names must be shown as their own: two of them have a ``train`` or an ``oracle``."""


def public_names(module: str) -> list[str]:
    """Return ``__all__`` of a module, from its source: optional packages need not be installed."""
    path = ROOT / "src" / Path(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [name for name in ast.literal_eval(node.value) if name != "__version__"]
    raise AssertionError(f"{module} has no __all__")


def test_every_name_of_dpsco_is_in_the_reference() -> None:
    packages = ["dpsco", "dpsco.errors", *(f"dpsco.{each}" for each in EXPORTED_BY_DPSCO)]
    missing = [name for name in public_names("dpsco") if not {f"{package}.{name}" for package in packages} & SHOWN]
    assert missing == []


@pytest.mark.parametrize("package", EXPORTED_BY_DPSCO)
def test_every_name_of_a_package_is_in_the_reference(package: str) -> None:
    names = public_names(f"dpsco.{package}")
    assert [name for name in names if not {f"dpsco.{name}", f"dpsco.{package}.{name}"} & SHOWN] == []


@pytest.mark.parametrize("package", ON_THEIR_OWN)
def test_every_name_of_an_adapter_engine_or_command_is_in_the_reference(package: str) -> None:
    assert [name for name in public_names(f"dpsco.{package}") if f"dpsco.{package}.{name}" not in SHOWN] == []


def test_every_page_of_the_reference_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "api").glob("*.md"):
        assert f": api/{page.name}\n" in navigation
