"""The audit of dependencies: what it finds offline, and that no answer from the service is not a good answer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit_dependencies.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("audit_dependencies", SCRIPT)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def test_every_requirement_of_the_project_has_a_lower_bound_and_is_met_here(script: Any) -> None:
    ranges = script.requirements((SCRIPT.parents[1] / "pyproject.toml").read_text())
    lines = script.looked_at(ranges)
    assert len(lines) > 20
    assert {line.extra for line in lines} >= {"", "jax", "torch", "dask", "federated"}
    assert [line for line in lines if line.fault] == []
    assert all(line.installed for line in lines if line.extra == "")


@pytest.mark.parametrize(
    ("text", "here", "fault"),
    [
        ("numpy>=1.26", "2.4.0", ""),
        ("numpy>=1.26", "1.25.9", "outside its range"),
        ("flwr>=1.41,<1.42", "1.42.0", "outside its range"),
        ("numpy", "2.4.0", "no lower bound"),
        ("numpy<3", "2.4.0", "no lower bound"),
        ("numpy>=1.26", None, ""),
        ("numpy @ https://example.org/numpy.whl", None, "an address"),
        ("mkdocstrings[python]>=0.26; python_version < '4'", "0.30", ""),
    ],
)
def test_what_is_wrong_with_a_range_is_said(script: Any, text: str, here: str | None, fault: str) -> None:
    (line,) = script.looked_at({"extra": [text]}, lambda name: here)
    assert (fault in line.fault) if fault else (line.fault == "")


def test_a_package_the_service_does_not_know_is_not_taken_for_a_safe_one(script: Any) -> None:
    safe = {"name": "numpy", "version": "2.4.0", "vulns": []}
    bad = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "GHSA-2"}]}
    unknown = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}
    own = {"name": "dpsco", "skip_reason": "distribution marked as editable"}
    assert script.judged({"dependencies": [safe, own]}) == ([], [])
    assert script.judged({"dependencies": [safe, bad, unknown]}) == (["old 1.0: PYSEC-1", "old 1.0: GHSA-2"], ["rich"])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, 2),
        ({"dependencies": [{"name": "rich", "skip_reason": "not found"}]}, 2),
        ({"dependencies": [{"name": "old", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}, 1),
        ({"dependencies": [{"name": "numpy", "version": "2", "vulns": []}]}, 0),
    ],
)
def test_the_exit_code_says_what_was_learned(script: Any, answer: Any, code: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(script, "ask", lambda: answer)
    assert script.main(["--online"]) == code
    assert script.main([]) == 0


def test_the_offline_part_works_without_a_network() -> None:
    hook = (
        "import runpy, sys\n"
        "def told(event, arguments):\n"
        "    if event.startswith('socket.') or event == 'urllib.Request': raise SystemExit('asked for a network')\n"
        "sys.addaudithook(told)\n"
        f"sys.argv = [{str(SCRIPT)!r}]\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "numpy>=" in done.stdout
