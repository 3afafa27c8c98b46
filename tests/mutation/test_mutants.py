"""Every seeded privacy bug is noticed by a test that is named beside it; without a bug the same tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutation.mutants import CONTROL, MUTANTS, NAMED, Mutant
from tests.optional_packages import MISSING, packages_of

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys, pytest, dpsco
assert dpsco.__file__.startswith(sys.argv[1]), "the copy is not what was imported"

class Collected:
    def pytest_collection_finish(self, session):
        for item in session.items:
            print("COLLECTED", item.nodeid)

options = ["-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *sys.argv[2:]]
sys.exit(pytest.main(options, plugins=[Collected()]))
"""


def mutated(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package with the bug in it.

    Compiled kernels come along: the library itself forgets them if their sources, which keep their dates, have changed.
    """
    copy = folder / "dpsco"
    shutil.copytree(ROOT / "src" / "dpsco", copy, ignore=shutil.ignore_patterns("*.pyc", ".*"))
    for name, snippet, replacement in mutant.changes if mutant else ():
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(snippet) == 1, f"{mutant.name}: the snippet is not once in {name}; mend the mutant"
        (copy / name).write_text(text.replace(snippet, replacement), encoding="utf-8")
    return folder


def run(tests: tuple[str, ...], folder: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of the time of a process, and none is needed
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), *tests], cwd=cwd, env=environment, capture_output=True, text=True
    )


def runnable(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return the named tests whose modules import no package that is not installed."""
    return tuple(
        test
        for test in tests
        if not packages_of((ROOT / test.partition("::")[0]).read_text(encoding="utf-8")) & MISSING
    )


def not_collected(tests: tuple[str, ...], output: str) -> list[str]:
    """Return the named tests of which the run collected none."""
    found = re.findall(r"^COLLECTED (.+)$", output, re.MULTILINE)
    return [test for test in tests if not any(item == test or item.startswith(f"{test}[") for item in found)]


def test_every_named_test_is_collected() -> None:
    named = runnable(CONTROL)
    assert len(named) > 100  # the packages that may be missing have few of them
    result = run((*named, "--collect-only", "-m", ""), ROOT / "src")
    assert not_collected(named, result.stdout) == [], result.stdout + result.stderr


def test_a_test_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    """With doctests collected first, half a module would remain in which pytest finds no test, without a word."""
    (tmp_path / "tests").mkdir()
    for name in ("pyproject.toml", "tests/conftest.py", "tests/optional_packages.py", "tests/proof_table.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests" / "test_broken.py").write_text("from dpsco import no_such_name\n", encoding="utf-8")
    result = run(("tests",), ROOT / "src", cwd=tmp_path)
    assert result.returncode == pytest.ExitCode.INTERRUPTED, result.stdout
    assert "ERROR tests/test_broken.py" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path, record_property) -> None:
    if runnable(mutant.tests) != mutant.tests:
        pytest.skip("its tests need a package that is not installed")
    result = run(mutant.tests, mutated(mutant, tmp_path))
    assert not_collected(mutant.tests, result.stdout) == [], result.stdout + result.stderr
    assert result.returncode == 1, (
        f"{mutant.name} survived, or its tests did not run:\n{result.stdout}\n{result.stderr}"
    )
    killer = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
    assert killer is not None, result.stdout
    record_property("mutant", [mutant.name, killer[1]])


@pytest.mark.slow
def test_without_a_bug_the_same_tests_pass(tmp_path: Path) -> None:
    named = runnable(CONTROL)
    result = run(named, mutated(None, tmp_path))
    assert not_collected(named, result.stdout) == [], result.stdout + result.stderr
    assert result.returncode == 0, result.stdout + result.stderr


def test_snippets_are_each_once_in_their_files_and_there_are_at_least_twenty() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20
    assert names >= set(NAMED)
    for mutant in MUTANTS:
        for name, snippet, replacement in mutant.changes:
            text = (ROOT / "src" / "dpsco" / name).read_text(encoding="utf-8")
            assert text.count(snippet) == 1, f"{mutant.name}: {snippet!r} is not once in {name}"
            assert snippet != replacement
