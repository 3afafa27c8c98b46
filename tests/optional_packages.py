"""Tests of optional packages are skipped, not failed, where the package is not installed.

A test module that imports one of ``OPTIONAL`` at its top, or imports a test helper that does, is skipped as a whole.
Tests that import one inside a function call ``pytest.importorskip``.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIONAL = ("distributed", "flwr", "jax", "matplotlib", "pandas", "polars", "pyarrow", "sklearn", "torch")
MISSING = frozenset(name for name in OPTIONAL if find_spec(name) is None)
ADAPTERS = {
    "dpsco.jax": "jax",
    "dpsco.torch": "torch",
    "dpsco.engines.dask": "distributed",
    "dpsco.estimators": "sklearn",
}


def packages_of(source: str) -> set[str]:
    """Return the optional packages that a piece of source imports at its top, helpers of tests included."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            found |= {name.partition(".")[0]} & set(OPTIONAL)
            found |= {package for module, package in ADAPTERS.items() if f"{name}.".startswith(f"{module}.")}
            helper = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and helper.is_file():
                found |= packages_of(helper.read_text(encoding="utf-8"))
    return found


def skip_without(source: str) -> None:
    """Skip the running test if the source that it is about to run imports a package that is not installed."""
    if missing := packages_of(source) & MISSING:
        pytest.skip(f"needs {', '.join(sorted(missing))}")


class _NeedsPackage(pytest.Module):
    """A test module that is not imported."""

    needed = ""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"needs {self.needed}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip a test module whose packages are not all installed; None leaves it to pytest."""
    missing = packages_of(module_path.read_text(encoding="utf-8")) & MISSING if MISSING else set()
    if not missing:
        return None
    module = _NeedsPackage.from_parent(parent, path=module_path)
    module.needed = ", ".join(sorted(missing))
    return module
