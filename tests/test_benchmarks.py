"""Benchmarks run, and every command that the pages cite exists with the options they cite."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.__main__ import QUICK, main
from benchmarks.network_rivals import search

from dpsco.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"```.*?```|`[^`]+`|^ {4,}\S[^\n]*$", re.DOTALL | re.MULTILINE)
NEEDS = {
    "adult": "sklearn",
    "cluster": "distributed",
    "files": "pyarrow",
    "ghost_jax": "jax",
    "ghost_torch": "torch",
    "network_plans": "torch",
    "network_trials": "torch",
    "networks": "torch",
}


def cited(command: str) -> list[tuple[str, str]]:
    """Return page and rest of line of each command that a page cites as code."""
    found = []
    for page in PAGES:
        for code in CODE.findall(page.read_text(encoding="utf-8")):
            text = re.sub(r"\s*\\\n\s*", " ", code.strip("`"))
            found += [(page.name, rest) for rest in re.findall(rf"(?:^|[\s$]){command} ([^\n`]+)", text)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_benchmark_runs_at_a_small_size(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    command = [sys.executable, "-m", "benchmarks", "--quick", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.strip().splitlines()) > 1


def test_a_failing_benchmark_does_not_stop_the_others(monkeypatch, capsys) -> None:
    ran: list[str] = []

    def run(name: str, options: list[str]) -> int:
        ran.append(name)
        return 3 if name in ("memory", "files") else 0

    monkeypatch.setattr("benchmarks.__main__.run", run)
    assert main(["--quick"]) == 1
    assert ran == list(QUICK)
    assert capsys.readouterr().err == "FAILED: memory (exit code 3), files (exit code 3)\n"
    assert main(["--quick", "speed"]) == 0
    assert main(["memory", "1000"]) == 1
    assert main(["nothing"]) == 2


def test_every_benchmark_and_script_that_a_page_cites_exists() -> None:
    names = [rest.split()[0] for _, rest in cited("python -m benchmarks")]
    assert len(names) > 10
    assert set(names) - {"--quick", "NAME"} <= set(QUICK)
    for _, rest in cited("python"):
        if rest.startswith(("scripts/", "examples/", "benchmarks/")):
            assert (ROOT / rest.split()[0]).is_file(), rest


def test_every_make_target_that_a_page_cites_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [word for _, rest in cited("make") for word in rest.partition("#")[0].split() if "=" not in word]
    assert {"demo", "test"} <= set(named) <= targets


def test_every_option_of_a_command_that_a_page_cites_exists() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for name in COMMANDS:
        import_module(f"dpsco.cli.{name}").add_parser(commands)
    known = {name: set(each._option_string_actions) for name, each in commands.choices.items()}
    lines = [(page, rest) for page, rest in cited("dpsco") if rest.split()[0] in known]
    assert len(lines) > 20
    for page, rest in lines:
        name = rest.split()[0]
        for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", rest.partition("#")[0]):
            assert option in known[name], f"{page}: dpsco {rest}"


def test_rivals_are_searched_until_the_best_setting_has_all_its_neighbours() -> None:
    tried: list[tuple[int, int, bool]] = []

    def accuracies(places: list[tuple[int, int, bool]]) -> list[float]:
        tried.extend(places)
        return [-abs(longer - 2) - abs(more + 1) - 0.1 * decay for longer, more, decay in places]

    found, left = search(accuracies, 40)
    assert isinstance(found, dict)
    assert max(found, key=found.__getitem__) == (2, -1, False)
    assert {(1, -1, False), (3, -1, False), (2, 0, False), (2, -2, False), (2, -1, True)} <= set(found)
    assert not left
    assert len(tried) == len(set(tried)) == len(found)
    found, left = search(accuracies, 5)
    assert len(found) == 5
    assert left
    assert search(lambda places: "skipped", 5) == ("skipped", [])
